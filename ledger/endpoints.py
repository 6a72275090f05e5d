"""The endpoints of one chain, each an `AsyncWeb3`: a question goes to one after another until an answer counts.

Not one provider that fails over below web3: whether an answer counts is known only where it was decoded, and answers
that belong together have to come from one endpoint.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from web3 import AsyncWeb3

from ledger.errors import PASSING, LedgerError, Reorganised, Reverted, Unreachable, WrongChain
from ledger.interfaces import web3_over
from ledger.provider import TIMEOUT_SECONDS, Provider, Refused
from ledger.translation import BadAnswer, reading

log = logging.getLogger(__name__)

EACH_SECONDS: Final = 3.0  # for an endpoint that is asked beside others: one that hangs must hold up nothing

REPEAT_SECONDS: Final = 4.0  # before a refusal is asked for again: two of Base's blocks

T = TypeVar("T")
Web3 = AsyncWeb3[Provider]


class ChainReplaced(WrongChain):
    """The endpoint served the chain that was meant, and now serves one with another beginning."""


@dataclass(slots=True)
class _Endpoint:
    w3: Web3
    right_chain: bool = False
    doubted: bool = False
    left_behind: bool = False  # it was said that it lags

    @property
    def label(self) -> str:
        return self.w3.provider.label


class Endpoints:
    """The one that answered last is asked first."""

    def __init__(self, urls: Sequence[str], chain_id: int | None, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """`chain_id` None takes whatever chain the endpoints serve. Raises: InvalidEndpoint."""
        self._endpoints = [_Endpoint(web3_over(Provider(url, timeout_seconds))) for url in urls]
        self._chain_id = chain_id
        self.repeat_seconds = REPEAT_SECONDS
        self._genesis: bytes | None = None  # hash of block 0; a chain that is started anew keeps its id

    async def ask(self, question: Callable[[Web3], Awaitable[T]]) -> T:
        """What `question` makes of one endpoint's answers; it raises BadAnswer where another should be asked.

        Raises:
            Reverted: a contract refused.
            Refused: the endpoints understood and refused.
            ChainReplaced: every endpoint serves a chain with another beginning than `keep_genesis` found.
            Reorganised: every endpoint has other blocks than `question` had read.
            Unreachable: no endpoint gave an answer that `question` takes.
        """
        problems: list[str] = []
        replaced: list[ChainReplaced | Reorganised] = []
        refusal: Refused | None = None
        for endpoint in tuple(self._endpoints):
            try:
                answer = await self._put(endpoint, question)
            except Refused as problem:
                refusal = refusal or problem
            except (ChainReplaced, Reorganised) as problem:
                replaced.append(problem)
                problems.append(str(problem))
            except (BadAnswer, Unreachable, WrongChain) as problem:
                problems.append(f"{endpoint.label}: {problem}")
            else:
                self._prefer(endpoint)
                return answer
        if replaced and len(replaced) == len(self._endpoints):  # one that lies is outvoted
            raise replaced[0]
        raise refusal or Unreachable("; ".join(problems) or "no RPC endpoint is set")

    async def each(self, question: Callable[[Web3], Awaitable[T]]) -> list[T]:
        """What `question` makes of the answers of all endpoints at once, the preferred one's first; without those that
        refuse, fail, or take long."""

        async def put(endpoint: _Endpoint) -> list[T]:
            try:
                async with asyncio.timeout(EACH_SECONDS):
                    return [await self._put(endpoint, question)]
            except (BadAnswer, LedgerError, TimeoutError) as problem:
                log.debug("%s: %s", endpoint.label, problem)
                return []

        return [answer for found in await asyncio.gather(*map(put, self._endpoints)) for answer in found]

    async def insist(self, act: Callable[[], Awaitable[T]]) -> T:
        """What `act` comes to. A refusal that may end a role is believed only when it is said again after a pause, by
        another endpoint where there is one: one of the nodes behind a URL may lag, or an answer be made up.

        Raises: as `act`.
        """
        try:
            return await act()
        except PASSING:
            raise
        except Reverted as refusal:
            log.debug("%s: asked again in %g s", refusal, self.repeat_seconds)
            self._endpoints.append(self._endpoints.pop(0))
        await asyncio.sleep(self.repeat_seconds)
        return await act()

    def leave_for(self, w3: Web3, blocks: int) -> None:
        """The endpoint of `w3` is asked first from now on: the one that was lags `blocks` behind it."""
        left = self._endpoints[0]
        better = next(endpoint for endpoint in self._endpoints if endpoint.w3 is w3)
        if not left.left_behind:
            left.left_behind = True
            log.warning("%s is %d blocks behind: %s is asked instead", left.label, blocks, better.label)
        self._prefer(better)

    @property
    def several(self) -> bool:
        return len(self._endpoints) > 1

    async def chain_id(self) -> int:
        """Of the first endpoint that answers."""
        return await self.ask(lambda w3: w3.eth.chain_id)

    async def is_anvil(self) -> bool:
        """Whether this is a devnet, which says so itself."""
        return (await self.ask(lambda w3: w3.client_version)).startswith("anvil")

    async def require_chain(self) -> None:
        """Every endpoint that answers serves the right chain, and at least one answers.

        Raises: WrongChain, Unreachable.
        """
        problems: list[str] = []
        for endpoint in self._endpoints:
            try:
                await self._check_chain(endpoint)
            except (BadAnswer, Unreachable) as problem:
                problems.append(f"{endpoint.label}: {problem}")
        if len(problems) == len(self._endpoints):
            raise Unreachable("; ".join(problems) or "no RPC endpoint is set")

    async def keep_genesis(self) -> None:
        """From now on only the chain that is served now is the right one. Raises: Unreachable."""
        self._genesis = await self.ask(_genesis)

    async def require_genesis(self, w3: Web3) -> None:
        """For a question that has reason to doubt. Raises: ChainReplaced, BadAnswer."""
        if self._genesis is None:
            return
        with reading():
            served = await _genesis(w3)
        if served != self._genesis:
            raise ChainReplaced(
                f"the chain at {w3.provider.label} was started anew: its first block is another than when this process "
                "began, and its contracts and runs are gone. Give the chain that was meant with --rpc, or deploy the "
                "contracts and create the run again"
            )

    def doubt(self) -> bool:
        """See `Ledger.doubt`."""
        doubted = self._endpoints[0]
        once, doubted.doubted = not doubted.doubted, True
        self._endpoints.append(self._endpoints.pop(0))
        if once and not self._endpoints[0].doubted:
            log.warning(
                "%s gave an answer that cannot be: %s is asked instead", doubted.label, self._endpoints[0].label
            )
            return True
        for endpoint in self._endpoints:
            endpoint.doubted = False
        return False

    async def close(self) -> None:
        for endpoint in self._endpoints:
            await endpoint.w3.provider.disconnect()

    def _prefer(self, endpoint: _Endpoint) -> None:
        if self._endpoints[0] is not endpoint:
            self._endpoints.remove(endpoint)
            self._endpoints.insert(0, endpoint)

    async def _put(self, endpoint: _Endpoint, question: Callable[[Web3], Awaitable[T]]) -> T:
        try:
            if not endpoint.right_chain:
                await self._check_chain(endpoint)
            with reading():
                return await question(endpoint.w3)
        except Refused:
            raise
        except (Unreachable, ChainReplaced):
            endpoint.right_chain = False  # whatever answers next may be another node
            raise

    async def _check_chain(self, endpoint: _Endpoint) -> None:
        with reading():
            served = await endpoint.w3.eth.chain_id
        if self._chain_id is not None and served != self._chain_id:
            raise WrongChain(
                f"{endpoint.label} serves chain {served}, not {self._chain_id}, which the deployment is on: correct "
                "--rpc or --deployment"
            )
        await self.require_genesis(endpoint.w3)
        endpoint.right_chain = True


async def _genesis(w3: Web3) -> bytes:
    return bytes((await w3.eth.get_block(0))["hash"])
