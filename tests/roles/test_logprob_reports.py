"""A lie that only the model sees and that costs no stake: a quorum must name one leaf, though each audits others."""

from collections.abc import Sequence
from dataclasses import replace

from ledger.base import Digest, Fault, State
from ledger.messages import SignedMessage, sign
from node.roles.frauds import Honest
from node.rollouts.rollout import Sample
from node.verdicts import Check
from tests.roles.network import Build
from tests.roles.stage import until


class MadeUpLogprobs(Honest):
    """Claims the same log-probability for every token."""

    def samples(self, samples: Sequence[Sample]) -> list[Sample]:
        return [replace(sample, logprobs=(-5.0,) * len(sample.logprobs)) for sample in samples]


async def test_made_up_log_probabilities_are_void_when_every_validator_audits_other_leaves(build: Build) -> None:
    network = await build(validators=4)  # of four leaves each goes to two; three must name the same one
    validators = [(await network.validator(place)).go() for place in range(3)]  # the fourth is away
    commitment = await network.commit_honestly(await network.worker(work=MadeUpLogprobs()))
    await until(lambda: all(len(network.case(part, commitment).haves) == 3 for part in validators))
    for seconds in (6, 1, 1, 1):  # the audit's beacon is that of two blocks later
        await network.pass_time(seconds)

    def agreed() -> bool:
        leaves = [
            {fault.leaf for fault in network.case(part, commitment).found(part.member.account)} for part in validators
        ]
        return bool(set.intersection(*leaves)) or network.state(commitment).final

    await until(agreed, "a leaf that all three name")
    await network.pass_time(24)

    assert await network.final(commitment) == State.VOIDED
    record = validators[0].member.record
    await until(lambda: record.is_final(commitment))
    assert record.submissions[commitment].check == Check.LOGPROBS


async def test_a_false_word_about_log_probabilities_costs_one_look_and_holds_up_nothing(build: Build) -> None:
    network = await build(validators=4)
    engines = [network.engine() for _ in range(3)]
    validators = [(await network.validator(place, engine=engine)).go() for place, engine in enumerate(engines)]
    commitment = await network.commit_honestly(await network.worker())
    await until(lambda: all(len(network.case(part, commitment).haves) == 3 for part in validators))
    domain, liar = validators[0].member.domain, network.validators[3]
    for leaf in range(4):
        fault = Fault(network.run, commitment, leaf, Check.LOGPROBS, Digest(bytes([leaf]) * 32))
        said = SignedMessage("Fault", fault, sign(liar, domain, fault))
        for part in validators:
            await part.role.casebook.add(commitment, [said], "http://liar")
    await network.audited(commitment)
    await network.pass_time(6)  # it is due: drawn leaves that the liar left are looked at by all

    assert await network.settled(commitment) == State.SETTLED
    assert all(engine.replayed <= 3 for engine in engines)  # its own leaves, the one that the liar named, what it left
