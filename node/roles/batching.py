"""Agreeing on lists of submissions without fault: signatures given to others, and a quorum's collected from them."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field

from eth_account.signers.local import LocalAccount

from ledger.base import Address, Digest, ascending
from ledger.errors import InvalidSignature
from ledger.messages import Batch, recover
from ledger.messages import sign as sign_message
from node.errors import Malformed, NotFound
from node.log import event, warn
from node.peers.wire import MAX_BATCH, BatchAnswer, SignedBatch
from node.record import Submission
from node.roles.directory import validators
from node.roles.member import Member
from node.roles.turns import is_turn

MAX_SIGNATURES_KEPT = 256  # lists whose signature is remembered: anyone may ask for one again and again

Acceptable = Callable[[Submission], Awaitable[bool]]
Answers = dict[Address, BatchAnswer]


@dataclass(slots=True)
class Batcher:
    """Of one validator. `batches` are the quorum's signatures that it collected, by commitment."""

    member: Member
    signer: LocalAccount
    batches: dict[Digest, SignedBatch] = field(default_factory=dict)
    signatures: OrderedDict[tuple[Digest, ...], bytes] = field(default_factory=OrderedDict)
    signing: asyncio.Lock = field(default_factory=asyncio.Lock)
    share_seconds: float = 5.0  # for the others to answer about one list

    async def sign(self, commitments: Sequence[Digest]) -> bytes:
        """This validator's signature over the list."""
        key = tuple(commitments)
        async with self.signing:
            if key not in self.signatures:
                batch = Batch(self.member.run.id, key)
                self.signatures[key] = await asyncio.to_thread(sign_message, self.signer, self.member.domain, batch)
            self.signatures.move_to_end(key)
            while len(self.signatures) > MAX_SIGNATURES_KEPT:
                self.signatures.popitem(last=False)
            return self.signatures[key]

    async def propose(self, acceptable: Acceptable) -> None:
        """Asks the others to sign what this validator accepts, in its turn. Raises: Unreachable."""
        record = self.member.record
        ready = [
            s.made.commitment
            for s in record.open_submissions()
            if s.made.commitment not in self.batches
            and is_turn(self.member, s.made.commitment, record.audit_time(s))
            and await acceptable(s)
        ]
        if ready:
            await self._collect(ready[:MAX_BATCH])

    def forget(self, commitment: Digest) -> None:
        """Drops what concerns a submission that is final."""
        self.batches.pop(commitment, None)

    async def _collect(self, commitments: list[Digest]) -> None:
        """Asks for the whole list, then once more for what a quorum would have signed without the rest."""
        answers = await self._ask(commitments)
        if not await self._keep(commitments, answers):
            signable = undisputed(commitments, answers.values(), self._quorum - 1)
            if signable and signable != commitments:
                await self._keep(signable, await self._ask(signable))

    async def _ask(self, commitments: list[Digest]) -> Answers:
        """What the other validators answer; a signature in it is that validator's.

        Nobody is waited for once enough have signed, nor longer than `share_seconds`.
        """
        others = validators(self.member.record, self.member.account)
        asking = {asyncio.create_task(self._ask_one(who, url, commitments)) for who, url in others.items()}
        answers: Answers = {}
        try:
            async with asyncio.timeout(self.share_seconds):
                for next_answer in asyncio.as_completed(asking):
                    who, answer = await next_answer
                    if answer is not None:
                        answers[who] = answer
                    if sum(each.signature is not None for each in answers.values()) + 1 >= self._quorum:
                        break
        except TimeoutError:
            warn("not all validators answered about a batch", answered=len(answers), asked=len(others))
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        return answers

    @property
    def _quorum(self) -> int:
        return self.member.run.params.quorum

    async def _ask_one(self, who: Address, url: str, commitments: list[Digest]) -> tuple[Address, BatchAnswer | None]:
        batch = Batch(self.member.run.id, tuple(commitments))
        try:
            answer = await self.member.peers.propose(url, self.member.run.id, commitments)
            if answer.signature is not None:
                signer = await asyncio.to_thread(recover, self.member.domain, batch, answer.signature)
                if signer != who:
                    raise Malformed("signed by another key")
        except (NotFound, Malformed, InvalidSignature) as error:
            warn("no signature for a batch", url=url, reason=error)
            return who, None
        return who, answer

    async def _keep(self, commitments: list[Digest], answers: Answers) -> bool:
        """Whether `answers` and this validator make a quorum; the batch is kept then."""
        signatures = {who: answer.signature for who, answer in answers.items() if answer.signature is not None}
        quorum = self._quorum
        if len(signatures) + 1 < quorum:
            return False
        signatures[self.member.account] = await self.sign(commitments)
        order = ascending(signatures)[:quorum]
        batch = SignedBatch(self.member.run.id, tuple(commitments), tuple(signatures[who] for who in order))
        self.batches.update(dict.fromkeys(commitments, batch))
        event("batch signed", submissions=len(commitments), signatures=len(order), commitments=commitments)
        return True


def undisputed(commitments: Sequence[Digest], answers: Collection[BatchAnswer], least: int) -> list[Digest]:
    """The entries that at least `least` of `answers` do not refuse: a single refusal must not hold up any.

    Neither a signature nor a refusal of anything listed is no agreement: whoever answers so refuses all.
    """
    listed = set(commitments)
    counting = [each for each in answers if each.signature is not None or listed & set(each.refused)]
    return [c for c in commitments if sum(c not in answer.refused for answer in counting) >= least]
