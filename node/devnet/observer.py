"""An observer of a run: reads the chain, fetches what anyone may fetch, believes nobody."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ledger.base import (
    NOBODY,
    UNDECIDED,
    WHOLE_FILE,
    Address,
    CheckpointPublished,
    Digest,
    Event,
    Expired,
    Fault,
    Ledger,
    Reported,
    RunEnded,
    Settled,
    SlashExecuted,
    Submitted,
    Version,
    Voided,
    amount_text,
)
from ledger.errors import InvalidSignature
from ledger.messages import Domain, NoFault, SignedMessage, recover
from node.checks.evidence import MAX_EVIDENCE_BYTES, Evidence
from node.errors import Malformed, NotFound
from node.peers.client import PeerClient
from node.reading import Reader
from node.record import Record
from node.roles.directory import file_holders, url_of, validators, weight_sources
from node.rollouts.file import decode_file, require_root, size_limit
from node.rollouts.rollout import Rollout
from node.runspec import RunSpec
from node.shards.bitmaps import is_whole
from node.shards.manifest import MAX_MANIFEST_BYTES, Manifest
from node.verdicts import Check, Rejected

Say = Callable[[str], None]

QUIET_SECONDS = 20.0  # without a line; then there is one that says what is waited for


@dataclass(slots=True)
class Observer:
    """`files` are rollout files by commitment, `findings` what validators measured, by the digest of their evidence,
    `holders` who held which version."""

    ledger: Ledger
    spec: RunSpec
    record: Record
    peers: PeerClient
    names: dict[Address, str]
    say: Say
    started: float = field(default_factory=time.monotonic)
    now: Callable[[], float] = time.monotonic
    reader: Reader = field(init=False)
    said: float = field(init=False)  # when there was a line last
    files: dict[Digest, tuple[Rollout, ...]] = field(default_factory=dict)
    findings: dict[Digest, Rejected] = field(default_factory=dict)
    faults: dict[Digest, list[Fault]] = field(default_factory=dict)  # that validators signed, by commitment
    audits: dict[tuple[Digest, Address], int] = field(default_factory=dict)  # rollouts that a validator found clean
    holders: dict[Version, set[Address]] = field(default_factory=dict)
    chunks: dict[Digest, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reader = Reader(self.ledger, self.record)
        self.said = self.now()

    async def look(self) -> None:
        """Reads what is new on chain, says it, or after a while that nothing is, and fetches what it refers to."""
        for event in await self.reader.sync():
            line = self._line(event)
            if line:
                self._say(line)
        if self.now() - self.said >= QUIET_SECONDS:
            self._say(self._awaited())
        await self._fetch_files()
        await self._fetch_evidence()
        await self._ask_holders()

    def _say(self, line: str) -> None:
        self.said = self.now()
        self.say(f"{self.said - self.started:6.1f} s  {line}")

    def name(self, who: Address) -> str:
        return self.names.get(who, who[:10])

    def _line(self, event: Event) -> str | None:
        match event:
            case CheckpointPublished():
                return f"version {event.version} published, root {event.manifest_root.hex()[:12]}"
            case Submitted():
                what = f"slot {event.slot} of version {event.version}, {event.units:,} units"
                return f"{self.name(event.node)} committed {what}"
            case Settled():
                return f"{self._whose(event.commitment)} accepted and paid {amount_text(event.reward)}"
            case Reported():
                check, leaf = Check(event.check).name, event.leaf
                place = "the whole file" if leaf == WHOLE_FILE else f"rollout {leaf}"
                return f"{self.name(event.validator)} reports {self._whose(event.commitment)}: {check} on {place}"
            case Voided():
                finding = "undecided" if event.check == UNDECIDED else Check(event.check).name
                return f"{self._whose(event.commitment)} void ({finding}), bond of {amount_text(event.bond)} burnt"
            case Expired():
                return f"{self._whose(event.commitment)} expired"
            case SlashExecuted():
                where = event.transaction.hex()[:12]
                return f"{self.name(event.node)} SLASHED {amount_text(event.amount)}, transaction {where}"
            case RunEnded():
                return "the run has ended: what is open gets finished"
            case _:
                return None

    def _awaited(self) -> str:
        if self.record.latest is None:
            return "waiting for the first version: the trainer reads the model"
        count = len(self.record.open_submissions())
        under_way = f"{count} submission{'s' if count != 1 else ''} being checked" if count else "nothing is submitted"
        step = "the run has ended" if self.record.ended else f"version {self.record.latest} is the newest"
        return f"waiting: {step}, {under_way}"

    def _whose(self, commitment: Digest) -> str:
        made = self.record.submissions[commitment].made
        return f"{self.name(made.node)}'s slot {made.slot} of version {made.version}"

    async def _fetch_files(self) -> None:
        for commitment, submission in self.record.submissions.items():
            if commitment in self.files:
                continue
            for url in file_holders(self.record, submission.made.node, NOBODY):
                try:
                    data = await self.peers.submission(url, commitment, size_limit(self.spec))
                    require_root(data, submission.made.root, size_limit(self.spec))
                    self.files[commitment] = decode_file(data, self.spec)
                    break
                except (NotFound, Malformed):
                    continue

    async def _fetch_evidence(self) -> None:
        """The evidence of faults on chain, and what validators signed about submissions that are final."""
        for commitment, submission in self.record.submissions.items():
            for report in submission.reports:
                await self._fetch_finding(report.validator, report.evidence)
            if submission.state.final and commitment not in self.faults:
                await self._fetch_statements(commitment)

    async def _fetch_statements(self, commitment: Digest) -> None:
        said = []
        for who, url in validators(self.record, NOBODY).items():
            try:
                said += [(who, signed) for signed in await self.peers.verdicts(url, commitment)]
            except (NotFound, Malformed):
                continue
        for signer, signed in said:
            if _signer(self.domain, signed) != signer:
                continue
            if isinstance(signed.message, NoFault):
                self.audits[commitment, signer] = len(signed.message.leaves)
            if isinstance(signed.message, Fault):
                self.faults.setdefault(commitment, []).append(signed.message)
                await self._fetch_finding(signer, signed.message.evidence)
        if said:
            self.faults.setdefault(commitment, [])

    @property
    def domain(self) -> Domain:
        return Domain(self.ledger.chain_id, self.ledger.coordinator)

    async def _fetch_finding(self, validator: Address, digest: Digest) -> None:
        url = url_of(self.record, validator)
        if url is None or digest in self.findings:
            return
        try:
            evidence = Evidence.parse(await self.peers.evidence(url, digest, MAX_EVIDENCE_BYTES))
        except (NotFound, Malformed):
            return
        if evidence.digest == digest:
            self.findings[digest] = evidence.rejected

    async def _ask_holders(self) -> None:
        """Who holds every chunk of the newest version."""
        if self.record.latest is None:
            return
        version = self.record.latest
        root = self.record.checkpoints[version].manifest_root
        holders = self.holders.setdefault(version, set())
        chunks = await self._chunks(root)
        for who in list(self.record.endpoints):
            url = url_of(self.record, who)
            if who in holders or url is None:
                continue
            try:
                if chunks is not None and is_whole(await self.peers.have(url, root), chunks):
                    holders.add(who)
            except (NotFound, Malformed):
                continue

    async def _chunks(self, root: Digest) -> int | None:
        """How many chunks the checkpoint has, by a manifest that hashes to its root."""
        if root not in self.chunks:
            for url in weight_sources(self.record, NOBODY):
                try:
                    manifest = Manifest.parse(await self.peers.manifest(url, root, MAX_MANIFEST_BYTES))
                except (NotFound, Malformed):
                    continue
                if manifest.root == root:
                    self.chunks[root] = manifest.chunks
                    break
        return self.chunks.get(root)


def _signer(domain: Domain, signed: SignedMessage) -> Address | None:
    try:
        return recover(domain, signed.message, signed.signature)
    except InvalidSignature:
        return None
