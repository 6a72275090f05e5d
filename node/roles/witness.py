"""What a validator says: signed, written down, then told to the other validators."""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from eth_account.signers.local import LocalAccount

from ledger.base import Digest, Fault
from ledger.messages import Have, NoFault, SignedMessage
from ledger.messages import sign as sign_message
from node.errors import Malformed, NotFound
from node.log import event, warn
from node.p2p.announcements import Verdicts
from node.peers.wire import encode_verdicts
from node.record import Submission
from node.roles.casebook import Casebook
from node.roles.chronicle import leaf_name, named
from node.roles.directory import validators
from node.roles.exhibits import Exhibits
from node.roles.member import Member
from node.verdicts import Rejected, check_name


@dataclass(slots=True)
class Witness:
    """Of one validator; `engine` names what its findings come from."""

    member: Member
    signer: LocalAccount
    casebook: Casebook
    exhibits: Exhibits
    engine: str
    telling: set[asyncio.Task[None]] = field(default_factory=set)

    async def say(self, message: Have | NoFault | Fault) -> None:
        """Signs `message`, writes it down, and tells the others in the background. Raises: StoreError."""
        signature = await asyncio.to_thread(sign_message, self.signer, self.member.domain, message)
        signed = SignedMessage(type(message).__name__, message, signature)  # type: ignore[arg-type]
        if await self.casebook.say(self.member.account, signed):
            if not isinstance(message, Fault):  # the accusation has a line of its own
                rollouts = len(message.leaves) if isinstance(message, NoFault) else None
                event(f"{signed.kind} signed", **named(self.member.record, message.commitment), rollouts=rollouts)
            self._background(self._tell(message.commitment, [signed]))

    async def accuse(self, submission: Submission, rejected: Rejected) -> None:
        """Writes the evidence of a rejection and signs the `Fault` that names it, once. Raises: StoreError."""
        commitment = submission.made.commitment
        case = await self.casebook.case(commitment)
        if any((f.leaf, f.check) == (rejected.leaf, rejected.check) for f in case.found(self.member.account)):
            return
        digest = await asyncio.to_thread(self.exhibits.write, submission, rejected, self.engine)
        made = submission.made
        event("rejected", version=made.version, slot=made.slot, commitment=commitment, node=made.node,
              check=check_name(rejected.check), leaf=leaf_name(rejected.leaf), measured=rejected.measured,
              permitted=rejected.threshold, what=rejected.detail, evidence=digest)  # fmt: skip
        await self.say(Fault(self.member.run.id, commitment, rejected.leaf, rejected.check, digest))

    async def close(self) -> None:
        """Stops telling; whoever was not told asks."""
        for task in self.telling:
            task.cancel()
        await asyncio.gather(*self.telling, return_exceptions=True)

    async def _tell(self, commitment: Digest, messages: Sequence[SignedMessage]) -> None:
        """By gossip, which finds those too that nobody can connect to, and one by one."""
        with suppress(Malformed):  # too long for an announcement
            self.member.others.announce(Verdicts(commitment, encode_verdicts(messages)))
        urls = validators(self.member.record, self.member.account).values()
        await asyncio.gather(*(self._tell_one(url, commitment, messages) for url in urls))

    async def _tell_one(self, url: str, commitment: Digest, messages: Sequence[SignedMessage]) -> None:
        try:
            await self.member.peers.push_verdicts(url, commitment, messages)
        except (NotFound, Malformed) as error:
            warn("verdict not handed over: the other validator asks for it later", url=url, reason=error)

    def _background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self.telling.add(task)
        task.add_done_callback(self.telling.discard)
