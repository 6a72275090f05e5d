"""What a validator sends to bring submissions to their end, when the chain's endpoint has lied about the time."""

from eth_account.signers.local import LocalAccount

from ledger.base import Block, State
from ledger.memory import MemoryLedger
from tests.roles.network import Build
from tests.roles.stage import until


async def test_a_submission_is_concluded_when_an_endpoint_has_told_a_time_to_come_for_a_while(build: Build) -> None:
    ahead = [0]

    class Lying(MemoryLedger):
        async def head(self) -> Block:
            head = await super().head()
            return Block(head.number, head.time + ahead[0])

    network = await build(validators=2)  # of which one runs: no quorum, so it can only expire

    def connect(account: LocalAccount) -> Lying:
        return Lying(network.chain, account)

    network.connect = connect
    validator = (await network.validator()).go()
    commitment = await network.commit_honestly(await network.worker())
    await network.confirmed(commitment)

    ahead[0] = 100_000
    await until(
        lambda: any(act.what == "conclude" for act in validator.role.closer.tried.resting), "a conclude too early"
    )
    assert not network.state(commitment).final
    ahead[0] = 0
    await until(lambda: validator.member.record.head.time <= network.chain.head.time, "the truth")

    await network.pass_time(network.spec.windows.settle_by + 20)
    assert await network.final(commitment) == State.EXPIRED
