"""Whatever an endpoint answers, web3 reads only what has the form of an answer, or says that it does not."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from web3.providers.async_base import AsyncBaseProvider
from web3.types import RPCEndpoint, RPCResponse

from ledger.answers import checked
from ledger.blocks import read_header
from ledger.interfaces import web3_over
from ledger.translation import BadAnswer, reading

HEX = st.integers(0, 2**300).map(hex) | st.binary(max_size=70).map(lambda value: "0x" + value.hex())
WORD = st.binary(min_size=32, max_size=32).map(lambda value: "0x" + value.hex())
LEAF = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | HEX | WORD
NAMES = st.sampled_from(["number", "timestamp", "hash", "mixHash", "baseFeePerGas", "extraData", "uncles", "status"])
JSON = st.recursive(LEAF, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=6))
BLOCK = {"number": "0x5", "timestamp": "0x6", "hash": "0x" + "07" * 32, "mixHash": "0x" + "08" * 32,
         "baseFeePerGas": "0x9", "transactions": []}  # fmt: skip


class OneAnswer(AsyncBaseProvider):
    """An endpoint that gives one answer to everything."""

    def __init__(self, answer: object) -> None:
        super().__init__()
        self.answer = answer

    async def make_request(self, method: RPCEndpoint, params: object) -> RPCResponse:
        return {"jsonrpc": "2.0", "id": 1, "result": checked(method, self.answer)}


@settings(deadline=None, max_examples=300)
@given(JSON)
async def test_any_answer_is_a_number_or_bad(answer: object) -> None:
    w3 = web3_over(OneAnswer(json.loads(json.dumps(answer))))
    try:
        with reading():
            count = await w3.eth.get_transaction_count("0x" + "00" * 20)
    except BadAnswer:
        return
    assert type(count) is int
    assert 0 <= count < 2**63


@settings(deadline=None, max_examples=300)
@given(st.dictionaries(NAMES, LEAF, max_size=2))
async def test_any_block_is_a_header_or_bad(changes: dict[str, object]) -> None:
    try:
        with reading():
            header = await read_header(web3_over(OneAnswer({**BLOCK, **changes})), 5)
    except BadAnswer:
        return
    assert header is not None
    assert (header.number, len(header.hash), len(header.mix)) == (5, 32, 32)
    assert 0 <= header.time < 2**63
    assert 0 <= header.base_fee < 2**128


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("eth_call", "0x1"),
        ("eth_call", None),
        ("eth_chainId", "0x" + "f" * 16),
        ("eth_chainId", 1),
        ("eth_chainId", "0x1\n"),
        ("eth_getBalance", "0x" + "f" * 65),
        ("eth_getBalance", "-0x1"),
        ("eth_getBlockByNumber", {**BLOCK, "hash": "0x" + "07" * 31}),
        ("eth_getLogs", None),
        ("eth_getLogs", [{}]),
        ("eth_sendRawTransaction", "0x"),
        ("web3_clientVersion", 5),
    ],
)
def test_another_form_is_bad(method: str, answer: object) -> None:
    with pytest.raises(BadAnswer, match=method):
        checked(method, answer)


def test_only_what_is_read_is_passed_on() -> None:
    assert checked("eth_getBlockByNumber", {**BLOCK, "extraData": {}, "uncles": 7}) == BLOCK


def test_one_wrong_log_is_enough() -> None:
    with pytest.raises(BadAnswer) as caught:
        checked("eth_getLogs", [{}] * 10_000)

    assert isinstance(caught.value.__context__, ValidationError)
    assert caught.value.__context__.error_count() < 10  # fields of the first
