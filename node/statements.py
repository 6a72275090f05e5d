"""What validators signed about submissions: from this machine's own case files, and from the validators themselves.

Only what a validator of the run signed counts, and only evidence that hashes to what was signed or is on chain.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ledger.base import NOBODY, Address, Digest, Fault, State
from ledger.errors import InvalidSignature
from ledger.messages import Domain, Have, SignedMessage, recover
from node.checks.evidence import MAX_EVIDENCE_BYTES, Evidence
from node.config import StateFolder
from node.errors import Malformed, NotFound
from node.outcomes import Known
from node.peers.client import PeerClient
from node.record import Record, Submission
from node.roles.casebook import Case, Casebook
from node.roles.directory import validators
from node.runspec import RunSpec

ASKED_AT_ONCE = 8  # submissions
ASK_SECONDS = 15.0  # for all that validators answer about one of them


@dataclass(slots=True)
class Statements:
    """Of one run. `local` is a validator's own state, `peers` asks the others; None of either is fine."""

    record: Record
    spec: RunSpec
    domain: Domain
    local: StateFolder | None
    peers: PeerClient | None
    silent: set[str] = field(default_factory=set)  # validators that do not answer at all

    async def case(self, commitment: Digest) -> Case:
        """What this machine has on disk of `commitment`; an empty case where that is nothing."""
        if self.local is None:
            return Case(commitment)
        params = self.record.run.params
        book = Casebook(
            self.local.cases, self.domain, frozenset(params.validators), self.record.run.id, self.spec.slot.rows
        )
        return await book.case(commitment)

    async def known(self, submissions: Sequence[Submission]) -> dict[Digest, Known]:
        """What can be found out about each."""
        places = asyncio.Semaphore(ASKED_AT_ONCE)

        async def one(submission: Submission) -> Known:
            async with places:
                return await self._known(submission)

        found = await asyncio.gather(*map(one, submissions))
        return {s.made.commitment: each for s, each in zip(submissions, found, strict=True)}

    async def _known(self, submission: Submission) -> Known:
        case = await self.case(submission.made.commitment)
        answered = False
        if self.peers is not None and submission.state != State.SETTLED:
            answered = await self._ask_all(submission.made.commitment, case)
        heard = answered or bool(case.messages())
        holders = self._holders(submission, case) if heard else None
        for who, digest in self._named(submission, case):
            evidence = await self._evidence(who, digest)
            if evidence is not None and evidence.claim.commitment == submission.made.commitment:
                return Known(holders, evidence.rejected, digest)
        return Known(holders)

    def _holders(self, submission: Submission, case: Case) -> tuple[Address, ...]:
        """Who signed to hold the file in time, ascending: what came later does not count for acceptance.

        A Have is dated by a block, and the first block at or after the audit time draws.
        """
        drawn = self.record.audit_time(submission)
        times = {who: said_have(case, who) for who in case.haves}
        return tuple(sorted(who for who, time in times.items() if time is not None and time < drawn))

    async def _ask_all(self, commitment: Digest, case: Case) -> bool:
        """Adds to `case` what the validators say; whether any answered."""
        urls = [url for url in validators(self.record, NOBODY).values() if url not in self.silent]
        try:
            async with asyncio.timeout(ASK_SECONDS):
                answers = await asyncio.gather(*(self._ask(url, commitment) for url in urls))
        except TimeoutError:
            return False
        for signed in (each for said in answers if said is not None for each in said):
            signer = await asyncio.to_thread(self._signer, signed)
            if signer is not None and signed.commitment == commitment:
                case.keep(signer, signed)
        return any(said is not None for said in answers)

    async def _ask(self, url: str, commitment: Digest) -> Sequence[SignedMessage] | None:
        assert self.peers is not None
        try:
            return await self.peers.verdicts(url, commitment)
        except NotFound as error:
            if error.__cause__ is not None:  # no answer at all: not worth waiting for again
                self.silent.add(url)
        except Malformed:
            self.silent.add(url)
        return None

    def _signer(self, signed: SignedMessage) -> Address | None:
        try:
            signer = recover(self.domain, signed.message, signed.signature)
        except InvalidSignature:
            return None
        return signer if signer in self.record.run.params.validators else None

    def _named(self, submission: Submission, case: Case) -> Iterable[tuple[Address, Digest]]:
        """Evidence that a validator put its name to, that of the check which decided first, each digest once."""
        on_chain = [(r.validator, r.check, r.evidence) for r in submission.reports]
        signed = [
            (who, message.message.check, message.message.evidence)
            for who, said in case.faults.items()
            for message in said
            if isinstance(message.message, Fault)
        ]
        ordered = sorted([*on_chain, *signed], key=lambda each: each[1] != submission.check)
        named: dict[Digest, Address] = {}
        for who, _, digest in ordered:
            named.setdefault(digest, who)
        return [(who, digest) for digest, who in named.items()]

    async def _evidence(self, who: Address, digest: Digest) -> Evidence | None:
        """The evidence of that digest, from this disk, else from the validator that signed it."""
        data = None
        if self.local is not None:
            data = await asyncio.to_thread(_read, self.local.evidence / f"{digest.hex()}.json")
        url = validators(self.record, NOBODY).get(who)
        if data is None and self.peers is not None and url and url not in self.silent:
            try:
                data = await self.peers.evidence(url, digest, MAX_EVIDENCE_BYTES)
            except (NotFound, Malformed):
                return None
        return None if data is None else await asyncio.to_thread(_parsed, data, digest)


def _read(path: Path) -> bytes | None:
    if not path.is_file():  # a pipe in its place would be waited for
        return None
    try:
        with path.open("rb") as file:
            return file.read(MAX_EVIDENCE_BYTES + 1)
    except OSError:
        return None


def _parsed(data: bytes, digest: Digest) -> Evidence | None:
    try:
        evidence = Evidence.parse(data)
    except Malformed:
        return None
    return evidence if evidence.digest == digest else None


def said_have(case: Case, who: Address) -> int | None:
    """When `who` signed to hold the file, in block time."""
    signed = case.haves.get(who)
    return signed.message.time if signed is not None and isinstance(signed.message, Have) else None
