"""Validators: what they sign and when, who is down, who lies, and what a restart may not change."""

import asyncio
from typing import Any

import pytest

from hashing.audit import audit_key, draw
from ledger.base import WHOLE_FILE, Digest, Fault, State, Version
from ledger.messages import Have, NoFault, SignedMessage, sign
from node.errors import Malformed, NotFound
from node.peers.server import add_routes
from node.peers.wire import BatchAnswer
from node.roles.frauds import OtherModel
from node.rollouts.assignment import unit_list
from node.rollouts.file import decode_file
from node.runspec import AuditSpec, RunSpec
from node.transport import make_app, serve
from tests.roles.network import Build, Network, Part
from tests.roles.stage import Watched, key, until


def signed(network: Network, place: int, message: Have | NoFault | Fault) -> SignedMessage:
    """What validator number `place` would have signed."""
    domain = network.parts[0].member.domain
    return SignedMessage(type(message).__name__, message, sign(network.validators[place], domain, message))  # type: ignore[arg-type]


async def accepts(part: Part, network: Network, commitment: Digest) -> bool:
    """Whether the validator answers a proposal of this one commitment with a signature."""
    answer = await part.mailbox.sign_batch(network.run, [commitment])
    assert (answer.signature is None) == (answer.refused == (commitment,))
    return answer.signature is not None


async def test_settling_and_slashing_go_on_when_one_of_four_validators_is_down(build: Build) -> None:
    network = await build(validators=4)
    for place in (0, 1, 3):
        (await network.validator(place)).go()
    worker, cheat = await network.worker(200), await network.worker(300, work=OtherModel())
    honest, fraud = await network.commit_honestly(worker), await network.commit_honestly(cheat)

    await until(
        lambda: all(len(network.case(part, c).haves) == 3 for part in network.parts[:3] for c in (honest, fraud))
    )
    await network.audited(honest)
    record = network.parts[0].member.record
    await until(lambda: record.submissions[fraud].conviction is not None)

    assert await network.settled(honest) == State.SETTLED
    assert await network.final(fraud) == State.SLASHED


async def test_no_batch_is_signed_when_too_few_held_the_file_before_the_audit_was_known(build: Build) -> None:
    network = await build(validators=4)
    early = [(await network.validator(place)).go() for place in (0, 1)]
    commitment = await network.commit_honestly(await network.worker())
    await network.confirmed(commitment)
    await network.audited(commitment)

    late = (await network.validator(2)).go()
    await until(lambda: all(len(network.case(part, commitment).haves) == 3 for part in [*early, late]))
    await until(lambda: all(network.validators[2].address in network.case(p, commitment).no_faults for p in early))

    assert [await accepts(part, network, commitment) for part in [*early, late]] == [False, False, False]
    await network.pass_time(60)
    assert network.state(commitment) == State.SUBMITTED
    await network.pass_time(80)
    assert await network.final(commitment) == State.EXPIRED


async def test_nothing_is_signed_while_a_drawn_leaf_is_unchecked(build: Build) -> None:
    network = await build(validators=2)
    seeing = (await network.validator(0)).go()
    blind_engine = network.engine(failures=10**9)
    blind = (await network.validator(1, engine=blind_engine)).go()
    commitment = await network.commit_honestly(await network.worker())
    await network.confirmed(commitment)
    await network.pass_time(6)
    for _ in range(3):
        await network.pass_time(1)
    await until(lambda: seeing.member.account in network.case(blind, commitment).no_faults)
    await until(lambda: blind_engine.replayed >= 2)

    # The one that looked at every leaf signs; the other one holds one auditor's word of two for each leaf.
    assert await accepts(seeing, network, commitment)
    assert not await accepts(blind, network, commitment)
    assert blind.member.account not in network.case(blind, commitment).no_faults
    assert not network.case(blind, commitment).faults

    blind_engine.failures = 0
    await until(lambda: blind.member.account in network.case(blind, commitment).no_faults)
    assert await accepts(blind, network, commitment)


async def test_a_leaf_counts_as_checked_when_both_its_auditors_say_so(build: Build, spec: Any) -> None:
    one = spec.model_copy(update={"audit": AuditSpec(leaves=1)})
    network = await build(validators=4, spec=one)
    validators = [(await network.validator(place)).go() for place in range(4)]
    commitment = await network.commit_honestly(await network.worker())
    await network.confirmed(commitment)
    await network.audited(commitment)

    cases = [network.case(part, commitment) for part in validators]
    leaves = [case.clean(part.member.account) for case, part in zip(cases, validators, strict=True)]
    assert sorted(len(each) for each in leaves) == [0, 0, 1, 1]  # one leaf is drawn, by hash to two of four
    block = network.chain.blocks.block_at(network.parts[0].member.record.submissions[commitment].made.block.time + 6)
    rows = decode_file(validators[0].role.intake.store.get(commitment), one)
    beacon = network.chain.blocks.beacon(block.number, 0)
    (drawn,) = draw(audit_key(beacon, commitment), unit_list(rows, one), 1)
    assert set.union(*map(set, leaves)) == {drawn}
    assert [await accepts(part, network, commitment) for part in validators] == [True] * 4


async def test_an_engine_that_fails_on_one_submission_leaves_that_one_pending_and_settles_the_others(
    build: Build,
) -> None:
    network = await build(validators=1)
    bad = await network.commit_honestly(await network.worker(200))
    honest = await network.commit_honestly(await network.worker(300))
    engine = network.engine()
    validator = await network.validator(engine=engine)
    plain = engine.replay
    seeds = {}

    def replay(seed: bytes, rollouts: Any, progress: Any) -> Any:
        first = seeds.setdefault("bad", seed)
        if seed == first:
            raise ValueError("a bug that only this file meets")
        return plain(seed, rollouts, progress)

    engine.replay = replay  # type: ignore[method-assign]
    validator.go()
    for commitment in (bad, honest):
        await until(lambda c=commitment: len(network.case(validator, c).haves) == 1)  # type: ignore[misc]
    await network.audited(honest)

    assert await network.settled(honest) == State.SETTLED
    assert network.state(bad) == State.SUBMITTED
    assert not network.case(validator, bad).no_faults and not network.case(validator, bad).faults
    assert not validator.finished


async def test_nothing_is_signed_of_the_audit_while_the_weights_are_missing(build: Build) -> None:
    network = await build(validators=1)
    worker = await network.worker()
    commitment = await network.commit_honestly(worker)
    worker.member.checkpoints.keep(())  # nobody has the weights any more
    validator = (await network.validator(weights=False)).go()
    await network.confirmed(commitment)
    await network.pass_time(6)
    for _ in range(3):
        await network.pass_time(1)
    await until(lambda: validator.role.examiner.pauses.rests(commitment))

    case = network.case(validator, commitment)
    assert (list(case.haves), case.no_faults, case.faults) == ([validator.member.account], {}, {})
    assert validator.member.versions.wanted == {0}

    await asyncio.to_thread(validator.member.checkpoints.add, network.base)
    await until(lambda: validator.member.account in case.no_faults)
    assert await network.settled(commitment) == State.SETTLED


async def test_a_validator_started_again_says_what_it_said_before_and_nothing_else(build: Build) -> None:
    network = await build(validators=2)
    staying, first = await network.all_validators()
    commitment = await network.commit_honestly(await network.worker())
    await network.confirmed(commitment)
    await network.audited(commitment)
    before = {(type(m.message), m.signature) for m in network.case(first, commitment).messages()}
    assert len(before) == 4  # Have and NoFault of both
    await first.stop()

    engine = network.engine()
    again = (await network.validator(1, engine=engine)).go()
    await network.pass_time(1)  # 11 s after the commit; from 12 s on it can be settled
    await until(lambda: commitment in again.role.casebook.cases)

    after = await again.mailbox.verdicts(commitment)
    assert {(type(m.message), m.signature) for m in after} == before
    assert engine.replayed == 0
    assert await network.settled(commitment) == State.SETTLED
    assert not staying.finished


async def test_another_validator_takes_over_when_the_one_whose_turn_it_is_is_silent(build: Build) -> None:
    network = await build(validators=4)
    worker = await network.worker()
    commitment = await network.commit_honestly(worker)
    first = int.from_bytes(commitment[:4]) % 4
    order = [(first + rank) % 4 for rank in range(4)]
    parts = {place: (await network.validator(place)).go() for place in order[1:]}
    await network.confirmed(commitment)
    await network.pass_time(3)  # three validators have announced themselves in as many seconds: 6 s after the commit
    for _ in range(3):
        await network.pass_time(1)
    await until(lambda: network.all_said(commitment))

    assert not any(commitment in part.role.closer.batcher.batches for part in parts.values())
    # The second one's turn began 6 s after the audit. It looks at the silent one's leaves itself once their time is
    # over, 12 s after the commit; that was the third one's turn, of 6 s each, and 18 s after it is the fourth one's.
    await network.pass_time(4)
    await until(lambda: commitment in parts[order[1]].role.closer.batcher.batches)
    assert await network.settled(commitment) == State.SETTLED


async def test_a_validator_that_refuses_and_accuses_everything_holds_up_nothing(build: Build) -> None:
    network = await build(validators=4)

    class Refusing:
        """Answers every proposal with a refusal, and every other request as if it knew nothing."""

        max_file_bytes = 0

        async def sign_batch(self, _: int, commitments: list[Digest]) -> BatchAnswer:
            return BatchAnswer(None, tuple(commitments))

        async def take_verdicts(self, *_: object) -> None:
            return

        async def _nothing(self, *_: object) -> Any:
            raise NotFound("nothing here")

        submission = wants_submission = take_submission = verdicts = batch = evidence = _nothing

    parts = [(await network.validator(place)).go() for place in range(3)]
    app = make_app(1 << 20)
    add_routes(app, Refusing())  # type: ignore[arg-type]
    runner, port = await serve(app, "127.0.0.1", 0)
    network.cleanups.append(runner.cleanup)
    await network.connect(network.validators[3]).set_endpoint(f"http://127.0.0.1:{port}")
    commitment = await network.commit_honestly(await network.worker())
    await network.confirmed(commitment)
    lie = signed(network, 3, Fault(network.run, commitment, 1, 6, Digest(bytes(32))))
    for part in parts:
        await part.mailbox.take_verdicts(commitment, [lie])

    await network.audited(commitment)
    assert await network.settled(commitment) == State.SETTLED


async def test_a_reported_leaf_that_is_clean_is_looked_at_once_and_voids_without_loss(build: Build, spec: Any) -> None:
    network = await build(validators=4, spec=spec.model_copy(update={"audit": AuditSpec(leaves=1)}))
    plain, concluded = network.connect, []

    def watch(name: str, _: tuple[Any, ...]) -> None:
        concluded.extend([name] if name == "conclude" else [])

    network.connect = lambda account: Watched(plain(account), after=watch)  # type: ignore[arg-type,assignment]
    engines = [network.engine() for _ in range(3)]
    parts = [(await network.validator(place, engine=engines[place])).go() for place in range(3)]
    worker = await network.worker()
    commitment = await network.commit_honestly(worker)
    before = await worker.member.ledger.allocation(network.run, worker.member.account)
    await network.confirmed(commitment)
    await network.audited(commitment)
    clean = set().union(*(network.case(p, commitment).clean(p.member.account) for p in parts))
    leaf = min({0, 1, 2, 3} - clean)
    looked = [engine.replayed for engine in engines]

    liar = plain(network.validators[3])
    fault = Fault(network.run, commitment, leaf, 8, Digest(bytes(32)))
    await liar.report(network.run, [fault], [signed(network, 3, fault).signature])
    await network.pass_time(1)
    await until(lambda: all(leaf in part.role.auditor.checked(commitment) for part in parts))
    await network.pass_time(18)

    assert [engine.replayed for engine in engines] == [count + 1 for count in looked]
    assert network.state(commitment) == State.FAULTED and concluded == []
    await network.pass_time(26)
    assert await network.final(commitment) == State.VOIDED
    after = await worker.member.ledger.allocation(network.run, worker.member.account)
    assert after.amount == before.amount
    assert len(concluded) <= 3


async def test_a_report_of_the_whole_file_is_answered_once(build: Build, spec: Any) -> None:
    network = await build(validators=4, spec=spec.model_copy(update={"audit": AuditSpec(leaves=1)}))
    engines = [network.engine() for _ in range(3)]
    parts = [(await network.validator(place, engine=engines[place])).go() for place in range(3)]
    cheat = await network.worker(work=OtherModel())
    commitment = await network.commit_honestly(cheat)
    fault = Fault(network.run, commitment, WHOLE_FILE, 9, Digest(bytes(32)))
    await network.confirmed(commitment)
    await network.connect(network.validators[3]).report(network.run, [fault], [signed(network, 3, fault).signature])
    await network.audited(commitment)
    record = parts[0].member.record
    await until(lambda: record.submissions[commitment].conviction is not None)
    await network.pass_time(40)

    assert await network.final(commitment) == State.SLASHED
    assert all(engine.replayed <= 1 + 1 + 4 for engine in engines)  # its own draw, the file, each leaf reported since


async def test_a_proposal_of_another_run_or_of_the_same_commitment_twice_is_refused(build: Build) -> None:
    network = await build(validators=1)
    validator = await network.validator()
    with pytest.raises(Malformed):
        await validator.mailbox.sign_batch(network.run + 1, [Digest(bytes(32))])
    with pytest.raises(Malformed):
        await validator.mailbox.sign_batch(network.run, [Digest(bytes(32))] * 2)
    unknown = Digest(key(7).key[:32])
    assert (await validator.mailbox.sign_batch(network.run, [unknown])).refused == (unknown,)


async def test_a_worker_that_withholds_many_files_takes_few_connections(build: Build, spec: RunSpec) -> None:
    economics = spec.economics.model_copy(update={"max_open": 12})
    network = await build(validators=1, spec=spec.model_copy(update={"economics": economics}))
    validator, cheat = await network.validator(), await network.worker()
    connected: list[asyncio.StreamWriter] = []

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.append(writer)
        await reader.read()

    server = await asyncio.start_server(swallow, "127.0.0.1", 0)
    async with server:
        await cheat.member.ledger.set_endpoint(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        for slot in range(12):
            root = Digest(bytes([slot + 1]) * 32)
            await cheat.member.ledger.submit(network.run, Version(0), slot, root, 1, root)
        validator.go()
        await until(lambda: len(validator.role.inquiries) == 12 and len(connected) == 4, "all are inquired after")
        await validator.member.clock.sleep(12)

        assert len(connected) == 4
        await validator.stop()
        for writer in connected:
            writer.close()
