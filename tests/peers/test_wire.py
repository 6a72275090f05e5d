"""What nodes say to each other as JSON: read back as it was written, and refused when it is anything else."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.base import Digest, Fault, RunId
from ledger.messages import Have, NoFault, SignedMessage
from node.errors import Malformed
from node.peers.wire import (
    MAX_BATCH,
    MAX_VERDICTS,
    BatchAnswer,
    SignedBatch,
    encode_answer,
    encode_batch,
    encode_proposal,
    encode_verdicts,
    from_hex,
    parse_answer,
    parse_batch,
    parse_proposal,
    parse_verdicts,
)

HASH, SIGNATURE = "0x" + "ab" * 32, "0x" + "cd" * 65
digests = st.binary(min_size=32, max_size=32).map(Digest)
signatures = st.binary(min_size=65, max_size=65)
lists = st.lists(digests, min_size=1, max_size=5)
PARSERS = [parse_proposal, parse_answer, parse_batch, parse_verdicts]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**53 - 1), lists, st.lists(signatures, min_size=1, max_size=4), st.none() | signatures)
def test_what_was_written_is_read_back(
    run: int, commitments: list[Digest], signed: list[bytes], signature: bytes | None
) -> None:
    batch = SignedBatch(RunId(run), tuple(commitments), tuple(signed))
    answer = BatchAnswer(signature, tuple(commitments))

    assert parse_proposal(encode_proposal(RunId(run), commitments)) == (run, tuple(commitments))
    assert parse_batch(encode_batch(batch)) == batch
    assert parse_answer(encode_answer(answer)) == answer


@settings(deadline=None, max_examples=30)
@given(digests, signatures, st.sets(st.integers(0, 1000), max_size=5))
def test_verdicts_are_read_back(commitment: Digest, signature: bytes, leaves: set[int]) -> None:
    said = [
        SignedMessage("Have", Have(commitment, 5), signature),
        SignedMessage("NoFault", NoFault(commitment, tuple(sorted(leaves))), signature),
        SignedMessage("Fault", Fault(RunId(1), commitment, 2**32 - 1, 9, commitment), signature),
    ]
    assert parse_verdicts(encode_verdicts(said)) == tuple(said)


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "data",
    [
        b"", b"null", b"7", b'"x"', b"<html>no</html>", b"\xff\xfe", b"NaN", b"{", b"{}" * 2, b'{"a": 1}', b"[[]]",
        b"[null]",
        b"[" * 200_000, b'{"a":' * 100_000, b"[" + b"1" * 10_000 + b"]", b"[" + b"0," * 400_000 + b"0]",
        b"{" + b",".join(b'"%x":1' % n for n in range(100_000)) + b"}",
        b'{"run": ' + b"9" * 5000 + b"}", b'[{"kind": "Have"}]', b'[{"kind": ["Have"], "message": 5}]',
    ],
    ids=range(20),
)  # fmt: skip
def test_anything_else_is_malformed_and_said_shortly(parse: Any, data: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        parse(data)
    assert len(str(caught.value)) < 500


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(PARSERS),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(HASH),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["run", "commitments", "signatures", "signature", "refused", "kind", "message"]), inner
            )
        ),
    ),
)
def test_whatever_json_comes_it_is_parsed_or_malformed(parse: Any, value: Any) -> None:
    try:
        parse(json.dumps(value).encode())
    except Malformed:
        return


def proposal(**changes: object) -> bytes:
    return json.dumps({"run": 1, "commitments": [HASH], **changes}).encode()


@pytest.mark.parametrize(
    "changes",
    [
        {"run": -1}, {"run": "1"}, {"run": 1.0}, {"run": True}, {"run": 2**53}, {"commitments": []},
        {"commitments": HASH},
        {"commitments": [HASH] * (MAX_BATCH + 1)}, {"commitments": [HASH[:-2]]}, {"commitments": [HASH.upper()]},
        {"commitments": [HASH[2:]]}, {"commitments": [HASH + "\n"]}, {"extra": 1}, {"signatures": [SIGNATURE]},
    ],
    ids=str,
)  # fmt: skip
def test_a_proposal_is_refused_when_a_field_is_not_as_it_must_be(changes: dict[str, object]) -> None:
    assert parse_proposal(proposal()) == (1, (bytes.fromhex("ab" * 32),))
    with pytest.raises(Malformed):
        parse_proposal(proposal(**changes))


def test_lists_are_refused_when_they_are_longer_than_any_run_needs() -> None:
    assert (MAX_BATCH, MAX_VERDICTS) == (64, 128)
    row = SignedMessage("Have", Have(Digest(bytes(32)), 0), bytes(65))
    assert len(parse_verdicts(encode_verdicts([row] * 128))) == 128
    with pytest.raises(Malformed, match="at most 128"):
        parse_verdicts(encode_verdicts([row] * 129))
    with pytest.raises(Malformed):
        parse_batch(proposal(signatures=[SIGNATURE] * 33))
    with pytest.raises(Malformed):
        parse_answer(json.dumps({"signature": None, "refused": [HASH] * 65}).encode())


@pytest.mark.parametrize("text", ["0", "zz", "AB", "a b ", "0xab\n", "0x0xab", "ａｂ", "-1"])
def test_hex_has_one_spelling(text: str) -> None:
    with pytest.raises(Malformed):
        from_hex(text)
    assert from_hex("0x0aff") == from_hex("0aff") == b"\x0a\xff"
