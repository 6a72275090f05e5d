"""The relay: holds the newest versions of the weights and serves them, so that the trainer need not."""

from dataclasses import dataclass

from node.log import warn
from node.roles.member import Member


@dataclass(slots=True)
class Relay:
    """One relay in one run. It goes on after the run's end, since the last weights are what people come for."""

    member: Member

    async def run(self) -> None:
        """Serves until it is stopped."""
        await self.member.sync()
        if self.member.account not in self.member.record.relays:
            warn(
                "this key is not an approved relay of the run: the owner approves it with `intellect-node run approve`",
                relay=self.member.account,
            )
        async with self.member.weights.following():
            while True:
                await self.member.wait()
                await self.member.sync()
