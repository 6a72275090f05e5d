"""A worker from its assignment to its pay, killed wherever it hurts."""

from ledger.base import State
from tests.roles.network import Build


async def test_work_is_accepted_settled_and_claimed_when_it_is_honest(build: Build) -> None:
    network = await build(validators=2)
    await network.all_validators()
    worker = (await network.worker()).go()

    (submission,) = await network.committed()
    commitment = submission.made.commitment
    await network.confirmed(commitment)
    await network.audited(commitment)
    assert await network.settled(commitment) == State.SETTLED
