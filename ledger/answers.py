"""What an endpoint may answer to each method that is asked of it.

web3's formatters pass on what they do not know and raise whatever they run into, so nothing else reaches them: only the
members named here, only in these forms.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from ledger.translation import BadAnswer

# Ethereum JSON-RPC, "Quantities" and "Unformatted data".
_Word = Annotated[str, StringConstraints(pattern=r"^0x[0-9a-fA-F]{1,64}$")]  # 256 bits
_Wei = Annotated[str, StringConstraints(pattern=r"^0x0*[0-9a-fA-F]{1,32}$")]  # 128 bits
_Number = Annotated[str, StringConstraints(pattern=r"^0x0*[0-7]?[0-9a-fA-F]{1,15}$")]  # 63 bits, what SQLite stores
_Bit = Literal["0x0", "0x1"]
_Bytes = Annotated[str, StringConstraints(pattern=r"^0x([0-9a-fA-F]{2})*$")]
_Digest = Annotated[str, StringConstraints(pattern=r"^0x[0-9a-fA-F]{64}$")]
_Address = Annotated[str, StringConstraints(pattern=r"^0x[0-9a-fA-F]{40}$")]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class _Block(_Part):
    number: _Number
    timestamp: _Number
    hash: _Digest
    mixHash: _Digest  # noqa: N815 - this and all like it are JSON-RPC's names
    baseFeePerGas: _Wei  # noqa: N815


class _Log(_Part):
    address: _Address
    topics: Annotated[list[_Digest], Field(max_length=4)]
    data: _Bytes
    blockNumber: _Number  # noqa: N815
    blockHash: _Digest  # noqa: N815
    blockTimestamp: _Number | None = None  # noqa: N815 - not every client tells
    logIndex: _Number  # noqa: N815
    transactionIndex: _Number  # noqa: N815
    transactionHash: _Digest  # noqa: N815
    removed: Literal[False] = False  # true: its block was replaced


class _Receipt(_Part):
    transactionHash: _Digest  # noqa: N815
    blockNumber: _Number  # noqa: N815
    status: _Bit
    gasUsed: _Number  # noqa: N815
    contractAddress: _Address | None = None  # noqa: N815
    logs: list[_Log]


_ANSWERS: Final[dict[str, TypeAdapter[Any]]] = {
    "eth_call": TypeAdapter(_Bytes),
    "eth_blockNumber": TypeAdapter(_Number),
    "eth_chainId": TypeAdapter(_Number),
    "eth_estimateGas": TypeAdapter(_Number),
    "eth_getBalance": TypeAdapter(_Word),
    "eth_getBlockByNumber": TypeAdapter(_Block | None),
    "eth_getCode": TypeAdapter(_Bytes),
    "eth_getLogs": TypeAdapter(list[_Log]),
    "eth_getTransactionCount": TypeAdapter(_Number),
    "eth_getTransactionReceipt": TypeAdapter(_Receipt | None),
    "eth_maxPriorityFeePerGas": TypeAdapter(_Wei),
    "eth_sendRawTransaction": TypeAdapter(_Digest),
    "web3_clientVersion": TypeAdapter(str),
}


def checked(method: str, result: object) -> object:
    """`result` as web3 may read it; of a method that has no form here, whatever it is. Raises: BadAnswer."""
    form = _ANSWERS.get(method)
    if form is None:
        return result
    try:
        return form.dump_python(form.validate_python(result))
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, (method, *first["loc"])))
        raise BadAnswer(f"{where}: {first['msg']}") from None
