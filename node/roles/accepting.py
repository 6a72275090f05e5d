"""What the trainer may train on: submissions that a quorum signed, whole, recent, and scored anew."""

import asyncio
from dataclasses import dataclass, field

from ledger.base import Address, Digest, State, Version
from ledger.errors import InvalidSignature
from ledger.messages import Batch, recover
from node.checks.base import cheap
from node.errors import Malformed, NotFound, StoreError
from node.log import event, warn
from node.peers.wire import SignedBatch
from node.record import Submission
from node.roles.directory import validators
from node.roles.intake import Intake
from node.roles.member import Member
from node.roles.pauses import Pauses
from node.roles.subject import claim_of, decoded_subject
from node.tasks.taskset import Taskset
from node.training.batch import TrainingGroup, window
from node.verdicts import Rejected

ASK_SECONDS = 2.0  # between two questions about one submission
ASKED_AT_ONCE = 8  # submissions
STALLED_SECONDS = 3.0  # for a validator's whole answer; it rests where it takes longer


@dataclass(slots=True)
class AcceptedGroups:
    """The groups of accepted submissions that the next versions can be made of. Older ones are forgotten."""

    member: Member
    tasks: Taskset
    intake: Intake
    groups: dict[Digest, tuple[TrainingGroup, ...]] = field(default_factory=dict)
    asked: dict[Digest, float] = field(default_factory=dict)  # when, monotonic
    pauses: Pauses[Address] = field(init=False)  # of validators that stalled
    absent: Pauses[Digest] = field(init=False)  # of submissions whose file could not be had
    scoring: asyncio.Lock = field(default_factory=asyncio.Lock)  # one file in memory at a time

    def __post_init__(self) -> None:
        self.pauses = Pauses(self.member.clock)
        self.absent = Pauses(self.member.clock)

    async def look(self, version: Version) -> None:
        """Takes in what has been accepted and can make `version`, and drops what cannot any more."""
        usable = {s.made.commitment: s for s in self._recent(version) if s.state in {State.SUBMITTED, State.SETTLED}}
        self.groups = {commitment: groups for commitment, groups in self.groups.items() if commitment in usable}
        self.asked = {commitment: when for commitment, when in self.asked.items() if commitment in usable}
        for commitment in self.absent.resting.keys() - usable.keys():
            self.absent.forget(commitment)
        wanted = [s for commitment, s in usable.items() if commitment not in self.groups and self._is_time(s)]
        places = asyncio.Semaphore(ASKED_AT_ONCE)
        ends = await asyncio.gather(*(self._take_in(places, each) for each in wanted), return_exceptions=True)
        for end in ends:
            if end is not None:
                raise end

    def available(self) -> list[TrainingGroup]:
        return [group for groups in self.groups.values() for group in groups]

    def _recent(self, version: Version) -> tuple[Submission, ...]:
        return self.member.record.made_in(window(version, self.member.spec.async_level))

    def _is_time(self, submission: Submission) -> bool:
        """Whether it can have been signed at all, and was not asked for just now."""
        record, now = self.member.record, self.member.clock.monotonic()
        if self.absent.rests(submission.made.commitment):
            return False
        if submission.state == State.SUBMITTED and record.head.time < record.audit_time(submission):
            return False
        if now - self.asked.get(submission.made.commitment, float("-inf")) < ASK_SECONDS:
            return False
        self.asked[submission.made.commitment] = now
        return True

    async def _take_in(self, places: asyncio.Semaphore, submission: Submission) -> None:
        async with places:
            await self._take(submission)

    async def _take(self, submission: Submission) -> None:
        commitment = submission.made.commitment
        if not await self._signed(submission):
            return
        try:
            self.groups[commitment] = await self._worth(submission)
        except (NotFound, StoreError) as error:
            self.absent.note(commitment, done=False)
            warn("an accepted file is not here, asking again", commitment=commitment, reason=error)
            return
        except Malformed as error:
            self.groups[commitment] = ()
            warn("a quorum accepted what fails here: not trained on", commitment=commitment, reason=error)
            return
        rewards = [reward for group in self.groups[commitment] for reward in group.rewards]
        event("accepted", version=submission.made.version, slot=submission.made.slot, commitment=commitment,
              node=submission.made.node, rollouts=len(rewards), reward=sum(rewards) / len(rewards))  # fmt: skip

    # --- Whose word counts

    async def _signed(self, submission: Submission) -> bool:
        """Whether a quorum's signatures are on chain, or in the hands of a validator."""
        if submission.state == State.SETTLED:
            return True
        others = validators(self.member.record, self.member.account).items()
        awake = [(who, url) for who, url in others if not self.pauses.rests(who)]
        asked = [asyncio.create_task(self._signed_at(*each, submission.made.commitment)) for each in awake]
        try:
            for answer in asyncio.as_completed(asked):
                if await answer:
                    return True
            return False
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def _signed_at(self, who: Address, url: str, commitment: Digest) -> bool:
        try:
            async with asyncio.timeout(STALLED_SECONDS):
                batch = await self.member.peers.batch(url, commitment)
        except TimeoutError:
            self.pauses.note(who, done=False)
            return False
        except (NotFound, Malformed):
            return False
        self.pauses.note(who, done=True)
        return await asyncio.to_thread(self.is_quorum, batch, commitment)

    def is_quorum(self, batch: SignedBatch, commitment: Digest) -> bool:
        """Whether a quorum of the run's validators signed this list, and `commitment` is on it. Blocking."""
        params = self.member.run.params
        if batch.run != self.member.run.id or commitment not in batch.commitments:
            return False
        message = Batch(batch.run, batch.commitments)
        signers: set[Address] = set()
        for signature in batch.signatures:
            try:
                signers.add(recover(self.member.domain, message, signature))
            except InvalidSignature:
                return False
        return len(signers & set(params.validators)) >= params.quorum

    # --- What it is worth

    async def _worth(self, submission: Submission) -> tuple[TrainingGroup, ...]:
        """As `_scored`, of a file that is fetched where it is not here."""
        commitment = submission.made.commitment
        if not self.intake.holds(commitment) and not await self.intake.fetch(commitment):
            raise NotFound("nobody hands it over")
        async with self.scoring:
            return await asyncio.to_thread(self._scored, submission)

    def _scored(self, submission: Submission) -> tuple[TrainingGroup, ...]:
        """The file's groups with rewards recomputed here: neither worker nor validators are believed.

        Raises:
            NotFound: the file is not here.
            Malformed: a cheap check fails.
            StoreError: the disk failed.
        """
        made, size = submission.made, self.member.spec.slot.group_size
        data = self.intake.get(made)
        if data is None:
            raise NotFound("the file is not here as it was committed to")
        subject = decoded_subject(self.member, self.tasks, claim_of(self.member, made), data)
        verdict = cheap(subject)
        if isinstance(verdict, Rejected):
            raise Malformed(f"check {verdict.check.name}, leaf {verdict.leaf}: {verdict.detail}")
        provider = self.member.record.allocated[made.node].provider
        groups = []
        for group in range(self.member.spec.slot.groups):
            rows = subject.rollouts[group * size : (group + 1) * size]
            item = subject.item_index(group)
            rewards = tuple(self.tasks.score(item, row.output_ids, row.finish) for row in rows)
            groups.append(TrainingGroup(made.commitment, provider, made.version, group, rows, rewards))
        return tuple(groups)
