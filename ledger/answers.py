"""What an endpoint may answer to each method that is asked of it.

web3's formatters pass on what they do not know and raise whatever they run into, so nothing else reaches them: only the
members named here, only in these forms.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field, StringConstraints, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from ledger.parsing import first_problem
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
    model_config = ConfigDict(strict=True, frozen=True, alias_generator=to_camel)


class _Block(_Part):
    number: _Number
    timestamp: _Number
    hash: _Digest
    mix_hash: _Digest
    base_fee_per_gas: _Wei
    transactions: Annotated[list[_Digest], FailFast()]


class _Log(_Part):
    address: _Address
    topics: Annotated[list[_Digest], Field(max_length=4)]
    data: _Bytes
    block_number: _Number
    block_hash: _Digest
    block_timestamp: _Number | None = None  # not every client tells
    log_index: _Number
    transaction_index: _Number
    transaction_hash: _Digest
    removed: Literal[False] = False  # true: its block was replaced


_Logs = Annotated[list[_Log], FailFast()]  # one wrong entry is enough: each that is named takes memory


class _Receipt(_Part):
    transaction_hash: _Digest
    block_hash: _Digest
    block_number: _Number
    status: _Bit
    gas_used: _Number
    contract_address: _Address | None = None
    logs: _Logs


_ANSWERS: Final[dict[str, TypeAdapter[Any]]] = {
    "eth_call": TypeAdapter(_Bytes),
    "eth_blockNumber": TypeAdapter(_Number),
    "eth_chainId": TypeAdapter(_Number),
    "eth_estimateGas": TypeAdapter(_Number),
    "eth_getBalance": TypeAdapter(_Word),
    "eth_getBlockByNumber": TypeAdapter(_Block | None),
    "eth_getCode": TypeAdapter(_Bytes),
    "eth_getLogs": TypeAdapter(_Logs),
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
        return form.dump_python(form.validate_python(result), by_alias=True)
    except ValidationError as problem:
        raise BadAnswer(f"{method}, {first_problem(problem, 'result')}") from None
