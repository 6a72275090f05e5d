"""A worker of a run that no validator watches is told so, and does not wait for ever for what nobody will settle."""

import pytest

from ledger.base import State
from node.roles.expiring import OVERDUE_SECONDS
from tests.roles.network import Build
from tests.roles.stage import until


async def test_a_worker_concludes_what_no_validator_settled_in_time_and_goes_on(build: Build) -> None:
    network = await build(validators=1)
    worker = (await network.worker()).go()
    (first,) = await network.committed()
    settle_by = network.spec.windows.settle_by

    await network.pass_time(settle_by + OVERDUE_SECONDS)
    assert network.state(first.made.commitment) == State.SUBMITTED  # validators may still be at it

    await network.pass_time(4)
    assert await network.final(first.made.commitment) == State.EXPIRED
    await until(lambda: len(worker.member.record.submissions) > 1, "the next slot")


async def test_receivers_that_take_nothing_are_said_once_each_whatever_is_handed_to_them(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    network = await build(validators=1)  # which does not run, as the trainer does not
    (await network.worker()).go()
    await until(lambda: caplog.text.count("file not handed over") == 2, "the last tries of the first file")
    await network.pass_time(network.spec.windows.settle_by + OVERDUE_SECONDS + 4)
    await until(lambda: caplog.text.count("file not handed over") == 4, "the last tries of the second file")

    assert caplog.text.count("takes no file, trying on") == 2
