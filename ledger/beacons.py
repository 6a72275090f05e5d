"""The randomness that nobody knew when a block was made: which later block holds a block's beacon, by kind of chain.

Source: protocol 1, "Beacons".
"""

from collections import OrderedDict
from typing import Final, Self

from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from ledger.base import Address, Digest
from ledger.blocks import REMEMBERED, SETTLED_DEPTH, Header, Headers
from ledger.endpoints import Endpoints, Web3
from ledger.translation import BadAnswer

ANVIL_DELAY_BLOCKS: Final = 2
L1_DELAY_SECONDS: Final = 24  # two slots of the beacon chain
L1_BLOCK: Final = Address("0x4200000000000000000000000000000000000015")  # OP stack, predeploys: L1Block
L1_TIMESTAMP: Final = keccak(text="timestamp()")[:4]


class AnvilBeacons:
    """keccak256 of the mixHash two blocks later."""

    def __init__(self, headers: Headers) -> None:
        self._headers = headers

    async def find(self, block_number: int) -> tuple[Header, Digest] | None:
        """The header that holds the beacon of `block_number`, and the beacon; None while there is no such block."""
        header = await self._headers.get(block_number + ANVIL_DELAY_BLOCKS)
        return None if header is None else (header, Digest(keccak(header.mix)))


class OpStackBeacons:
    """prevrandao of the first block whose L1 origin is at least 24 s younger than the given block."""

    def __init__(self, endpoints: Endpoints, headers: Headers) -> None:
        self._endpoints = endpoints
        self._headers = headers

    async def find(self, block_number: int) -> tuple[Header, Digest] | None:
        """See `AnvilBeacons.find`."""
        given = await self._headers.get(block_number)
        if given is None:
            return None
        least = given.time + L1_DELAY_SECONDS

        async def reached(header: Header) -> bool:
            # an L1 origin is never younger than its L2 block, which spares most of the calls
            return header.time >= least and await self._l1_time(header.number) >= least

        header = await self._headers.first(reached)
        return None if header is None else (header, header.mix)

    async def _l1_time(self, block_number: int) -> int:
        """Timestamp of the L1 origin of L2 block `block_number`."""

        async def question(w3: Web3) -> int:
            word = await w3.eth.call({"to": to_checksum_address(L1_BLOCK), "data": L1_TIMESTAMP}, block_number)
            if len(word) != 32:
                raise BadAnswer(f"{len(word)} bytes instead of a word")
            return int.from_bytes(word)

        return await self._endpoints.ask(question)


class BeaconReader:
    """Beacons that enough blocks lie over; each is read once."""

    def __init__(self, source: AnvilBeacons | OpStackBeacons, headers: Headers, confirmations: int) -> None:
        self._source = source
        self._headers = headers
        self._confirmations = confirmations
        self._settled: OrderedDict[int, Digest] = OrderedDict()

    @classmethod
    async def open(cls, endpoints: Endpoints, headers: Headers, confirmations: int) -> Self:
        """For the chain of `endpoints`: a devnet names itself, everything else is an OP stack. Raises: Unreachable."""
        devnet = await endpoints.is_anvil()
        source = AnvilBeacons(headers) if devnet else OpStackBeacons(endpoints, headers)
        return cls(source, headers, confirmations)

    async def beacon(self, block_number: int) -> Digest | None:
        """See `Ledger.beacon`."""
        if block_number in self._settled:
            return self._settled[block_number]
        found = await self._source.find(block_number)
        if found is None:
            return None
        header, value = found
        depth = (await self._headers.latest()).number - header.number
        if depth < self._confirmations:
            return None
        if depth >= SETTLED_DEPTH:
            self._settled[block_number] = value
            if len(self._settled) > REMEMBERED:
                self._settled.popitem(last=False)
        return value
