"""An observer takes nothing from a peer that does not hash to what the chain names."""

from dataclasses import dataclass, field

import numpy as np
from eth_account import Account

from hashing.proof import build_proofs
from ledger.base import (
    Address,
    Block,
    CheckpointPublished,
    Digest,
    EndpointSet,
    Event,
    Reported,
    Run,
    RunId,
    RunParams,
    Settled,
    Submitted,
    Version,
    Windows,
)
from ledger.messages import Domain, NoFault, SignedMessage, sign
from node.checks.evidence import Evidence, Versions, gather
from node.checks.subject import Claim
from node.devnet.observer import QUIET_SECONDS, Observer
from node.errors import NotFound
from node.record import Record
from node.rollouts.file import encode_file, file_root, split_file
from node.rollouts.rollout import FINISH_LENGTH, Rollout
from node.runspec import RunSpec
from node.verdicts import Check, Rejected
from tests.clocks import HandClock

WORKER, LIAR, TRAINER = (Address("0x" + f"{number:02x}" * 20) for number in range(1, 4))
KEY = Account.from_key(b"\x05" * 32)
VALIDATOR = Address(KEY.address)
WINDOWS = Windows(available=6, audit=10, settle_by=100, confirm=20, contest=8, panel=0, grace=30)
PARAMS = RunParams(TRAINER, (LIAR, VALIDATOR), 1, 1, 1, 0, 1, 100, 2, 2, 0, 0, WINDOWS)
RUN, COMMITMENT, ZERO = RunId(1), Digest(b"\x07" * 32), "0" * 64
HEAD = Block(10, 100)


def spec_of_run() -> RunSpec:
    files = dict.fromkeys(("manifest_root", "config", "tokenizer", "chat_template", "generation_config"), ZERO)
    return RunSpec.model_validate(
        {
            "protocol": 1, "name": "observed", "max_steps": 1, "async_level": 2, "max_provider_share": 1.0,
            "model": {"architecture": "Llama", **files, "dtype": "bfloat16", "vocabulary": 100, "eos_ids": [2]},
            "sampling": {"temperature": 1.0, "max_prompt_tokens": 4, "max_output_tokens": 4},
            "tasks": [
                {
                    "name": "any", "version": 1, "config": {}, "size": 1, "dataset_digest": ZERO, "scorer_version": 1,
                    "fuel_limit": 1,
                }
            ],
            "slot": {"groups": 1, "group_size": 1},
            "proof": {
                "chunk": 32, "top_k": 128, "exponent_mismatches": 20, "mantissa_mean": 5.0, "mantissa_median": 4.0,
                "logprob_mean_error": 0.1, "logprob_max_error": 0.5,
            },
            "sampling_test": {"tail": [(0.0, 0.5), (0.5, 0.0001)], "suspect": 1e5, "alarm": 1e9},
            "audit": {"leaves": 1},
            "units": {"w_prompt": 1, "w_output": 1, "w_attention": 0, "max_units": 100},
            "economics": {
                **dict.fromkeys(("price_per_unit", "submission_bond", "fault_bond", "penalty"), "1"),
                "max_open": 1, "checkpoint_interval": 0, "trainer_delay": 0,
            },
            "windows": dict.fromkeys(("available", "audit", "settle_by", "confirm", "contest", "panel", "grace"), 10),
        }
    )  # fmt: skip


SPEC = spec_of_run()


def file_of(reward: float) -> bytes:
    proofs = build_proofs(np.arange(4 * 64, dtype=np.uint16).reshape(4, 64) + 1)
    return encode_file([Rollout(0, 0, (5, 6), (7, 8, 9, 10), (-1.0,) * 4, proofs, FINISH_LENGTH, reward)])


def evidence_of(measured: str) -> Evidence:
    digest = Digest(bytes(32))
    claim = Claim(1, TRAINER, RUN, digest, digest, WORKER, Version(0), 0, digest, 1, digest)
    rejected = Rejected(Check.TOPLOC, 0, measured, "20, 5, 4", "chunk 0")
    return gather(claim, rejected, split_file(file_of(0.0), 10_000), (0,), 1, Versions("m", "e", "c"))


class Chain:
    """A ledger that only reads."""

    origin_block, confirmations, chain_id, coordinator = 0, 0, 1, TRAINER

    def __init__(self, *events: Event) -> None:
        self.all = list(events)

    async def head(self) -> Block:
        return HEAD

    async def events(self, run: RunId, first: int, last: int) -> list[Event]:
        return self.all


@dataclass
class Peers:
    """What each URL gives out."""

    files: dict[str, bytes] = field(default_factory=dict)
    exhibits: dict[str, bytes] = field(default_factory=dict)
    statements: dict[str, tuple[SignedMessage, ...]] = field(default_factory=dict)

    async def submission(self, url: str, commitment: Digest, limit: int) -> bytes:
        return _given(self.files, url)

    async def manifest(self, url: str, root: Digest, limit: int) -> bytes:
        raise NotFound("no weights here")

    async def have(self, url: str, root: Digest) -> bytes:
        raise NotFound("no weights here")

    async def evidence(self, url: str, digest: Digest, limit: int) -> bytes:
        return _given(self.exhibits, url)

    async def verdicts(self, url: str, commitment: Digest) -> tuple[SignedMessage, ...]:
        return self.statements.get(url, ())


def _given(answers: dict[str, bytes], url: str) -> bytes:
    if url not in answers:
        raise NotFound("not here")
    return answers[url]


async def observed(peers: Peers, *events: Event) -> Observer:
    endpoints = (EndpointSet(HEAD, who, f"http://{name}") for who, name in ((LIAR, "liar"), (VALIDATOR, "validator")))
    chain, record = (
        Chain(*endpoints, CheckpointPublished(HEAD, RUN, Version(0), Digest(bytes(32))), *events),
        Record(Run(RUN, TRAINER, PARAMS, b"{}", SPEC.digest, 0)),
    )
    seen = Observer(chain, SPEC, record, peers, {}, lambda _: None)  # type: ignore[arg-type]
    await seen.look()
    return seen


def submitted(data: bytes) -> Submitted:
    top = file_root(data, 10_000)
    return Submitted(HEAD, RUN, COMMITMENT, WORKER, Version(0), 0, top, 4, Digest(bytes(32)))


def reported(validator: Address, evidence: Digest) -> Reported:
    return Reported(HEAD, RUN, COMMITMENT, validator, 0, Check.TOPLOC, evidence, 1)


async def test_another_file_than_the_committed_one_is_not_taken() -> None:
    true, false = file_of(0.25), file_of(1.0)

    seen = await observed(Peers(files={"http://liar": false, "http://validator": true}), submitted(true))
    deceived = await observed(Peers(files={"http://liar": false}), submitted(true))

    assert [row.reward for row in seen.files[COMMITMENT]] == [0.25]
    assert deceived.files == {}


async def test_other_evidence_than_the_reported_one_is_not_taken() -> None:
    true, false = evidence_of("57, 12.1, 9"), evidence_of("9999, 0, 0")
    peers = Peers(exhibits={"http://liar": false.encode(), "http://validator": true.encode()})
    whole = submitted(file_of(0.25))

    honest = await observed(peers, whole, reported(VALIDATOR, true.digest))
    deceived = await observed(peers, whole, reported(LIAR, true.digest))

    assert honest.findings[true.digest].measured == "57, 12.1, 9"
    assert deceived.findings == {}


async def test_an_audit_counts_only_by_the_signature_of_the_validator_that_tells_of_it() -> None:
    message = NoFault(COMMITMENT, (0,))
    signed = SignedMessage("NoFault", message, sign(KEY, Domain(1, TRAINER), message))
    final = (submitted(file_of(0.25)), Settled(HEAD, RUN, COMMITMENT, WORKER, 4))

    honest = await observed(Peers(statements={"http://validator": (signed,)}), *final)
    borrowed = await observed(Peers(statements={"http://liar": (signed,)}), *final)

    assert honest.audits == {(COMMITMENT, VALIDATOR): 1}
    assert borrowed.audits == {}


async def test_after_a_while_without_a_line_it_says_what_is_waited_for() -> None:
    said: list[str] = []
    clock = HandClock()
    chain = Chain(CheckpointPublished(HEAD, RUN, Version(0), Digest(bytes(32))), submitted(file_of(0.25)))
    record = Record(Run(RUN, TRAINER, PARAMS, b"{}", SPEC.digest, 0))
    seen = Observer(chain, SPEC, record, Peers(), {}, said.append, clock.now, clock.monotonic)  # type: ignore[arg-type]
    await seen.look()
    said.clear()

    for seconds in (QUIET_SECONDS - 1, 1, 1):
        clock.now += seconds
        await seen.look()

    assert said == ["  20.0 s  waiting: version 0 is the newest, 1 submission being checked"]
