"""What a validator knows about each submission: signed messages, its own findings; on disk before it is told.

Finding out who signed a message takes milliseconds, and anyone can send messages, a validator validly signed ones
without end: it happens in a thread, no submission waits for another, and what one source can cause is bounded for each.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakValueDictionary

from pydantic_core import from_json

from ledger.base import WHOLE_FILE, Address, Digest, Fault, RunId
from ledger.errors import InvalidSignature, LedgerError
from ledger.messages import Domain, Have, NoFault, SignedMessage, recover
from node.errors import NotFound
from node.files import disk_refused, write_atomically
from node.log import warn

MAX_FAULTS = 8  # kept of one validator on one submission; one is enough to act on
MAX_WASTE = 32  # signatures looked at in vain, of one source on one submission; all strangers are one source
MAX_VAIN = 256  # of them remembered on one submission, not to be looked at again
STRANGERS = ""  # as a source

Found = list[tuple[Address, SignedMessage]]


@dataclass(slots=True)
class Case:
    """One submission as validators see it, by signer."""

    commitment: Digest
    haves: dict[Address, SignedMessage] = field(default_factory=dict)
    no_faults: dict[Address, SignedMessage] = field(default_factory=dict)
    faults: dict[Address, list[SignedMessage]] = field(default_factory=dict)

    def messages(self) -> list[SignedMessage]:
        faults = [message for said in self.faults.values() for message in said]
        return [*self.haves.values(), *self.no_faults.values(), *faults]

    def have_times(self) -> list[int]:
        """When each validator confirmed that it holds the file."""
        return sorted(m.message.time for m in self.haves.values() if isinstance(m.message, Have))

    def clean(self, who: Address) -> frozenset[int]:
        """The leaves that `who` signed to have checked without a fault."""
        signed = self.no_faults.get(who)
        return frozenset(signed.message.leaves if signed and isinstance(signed.message, NoFault) else ())

    def found(self, who: Address) -> list[Fault]:
        return [m.message for m in self.faults.get(who, []) if isinstance(m.message, Fault)]

    def keep(self, signer: Address, signed: SignedMessage) -> bool:
        """Whether `signed` was new and is kept. A validator's first word of a kind stands."""
        match signed.message:
            case Have():
                return self.haves.setdefault(signer, signed) is signed
            case NoFault():
                return self.no_faults.setdefault(signer, signed) is signed
            case Fault():
                said = self.faults.setdefault(signer, [])
                new = signed.message not in self.found(signer) and len(said) < MAX_FAULTS
                said.extend([signed] if new else [])
                return new
        return False

    def copy(self) -> "Case":
        faults = {who: list(said) for who, said in self.faults.items()}
        return Case(self.commitment, dict(self.haves), dict(self.no_faults), faults)


@dataclass(slots=True)
class Casebook:
    """The open cases of `run`, whose submissions have `rows` leaves. Only what its validators signed gets in."""

    folder: Path
    domain: Domain
    validators: frozenset[Address]
    run: RunId
    rows: int
    cases: dict[Digest, Case] = field(default_factory=dict)
    wasted: dict[Digest, Counter[str]] = field(default_factory=dict)  # signatures looked at in vain, by source
    vain: dict[Digest, set[SignedMessage]] = field(default_factory=dict)  # those messages
    locks: WeakValueDictionary[Digest, asyncio.Lock] = field(default_factory=WeakValueDictionary)  # while held

    async def case(self, commitment: Digest) -> Case:
        """The case of `commitment`, read back from disk where an earlier run of this node knew it."""
        if commitment not in self.cases:
            async with self._changing(commitment):
                await self._open(commitment)
        return self.cases[commitment]

    async def _open(self, commitment: Digest) -> Case:
        if commitment not in self.cases:
            case = Case(commitment)
            stored = await asyncio.to_thread(self.stored, commitment)
            found, _ = await asyncio.to_thread(self._signed, case, stored, len(stored))
            for signer, signed in found:
                case.keep(signer, signed)
            self.cases[commitment] = case
        return self.cases[commitment]

    async def add(self, commitment: Digest, messages: Sequence[SignedMessage], source: str) -> None:
        """Adds what validators signed about `commitment`, written down first; anything else is left out.

        A `source` whose answers brought too much in vain is not listened to any more on this submission: an honest
        validator passes on one word of a kind from each, so it cannot come to that.

        Raises: StoreError: nothing was added.
        """
        async with self._changing(commitment):
            await self._add(commitment, messages, source)

    async def add_pushed(self, commitment: Digest, messages: Sequence[SignedMessage]) -> None:
        """As `add`, for messages that anyone may have sent.

        Raises: NotFound: too much that no validator signed was sent about this submission; this node asks itself.
        """
        async with self._changing(commitment):
            if self._left(commitment, STRANGERS) <= 0:
                raise NotFound("too much was sent that no validator signed: this node asks the validators itself")
            await self._add(commitment, messages, STRANGERS)

    async def say(self, me: Address, signed: SignedMessage) -> bool:
        """Writes down what this node itself signed; whether it was new. Raises: StoreError."""
        async with self._changing(signed.commitment):
            return await self._keep(await self._open(signed.commitment), [(me, signed)]) > 0

    def forget(self, commitment: Digest) -> None:
        """Drops a case from memory; it stays on disk."""
        self.cases.pop(commitment, None)
        self.wasted.pop(commitment, None)
        self.vain.pop(commitment, None)

    async def closed(self, commitment: Digest) -> list[SignedMessage]:
        """What was said about a submission that is final, from the disk."""
        return await asyncio.to_thread(self.stored, commitment)

    def stored(self, commitment: Digest) -> list[SignedMessage]:
        """What was written down about `commitment`; looked at when it was, and not again. Blocking."""
        path = self.path(commitment)
        try:
            if path.exists() and not path.is_file():  # a pipe would be waited for
                raise OSError("not a regular file")
            return [SignedMessage.parse(row) for row in from_json(path.read_bytes())]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError, RecursionError, LedgerError) as error:
            warn("case file unreadable, starting it anew", path=path, reason=error)
            return []

    def on_disk(self) -> list[Digest]:
        """The submissions that have a case file. Blocking."""
        names = [path.stem for path in self.folder.glob("*.json") if re.fullmatch("[0-9a-f]{64}", path.stem)]
        return [Digest(bytes.fromhex(name)) for name in names]

    def delete(self, commitment: Digest) -> None:
        """Removes the case file. Blocking. Raises: StoreError."""
        try:
            self.path(commitment).unlink(missing_ok=True)
        except OSError as error:
            raise disk_refused(self.path(commitment), error) from error

    def path(self, commitment: Digest) -> Path:
        return self.folder / f"{commitment.hex()}.json"

    def _changing(self, commitment: Digest) -> asyncio.Lock:
        """The lock of one case, which is there for as long as somebody holds it or waits for it."""
        return self.locks.setdefault(commitment, asyncio.Lock())

    def _left(self, commitment: Digest, source: str) -> int:
        """How many signatures of `source` may still be looked at in vain."""
        return MAX_WASTE - self.wasted.get(commitment, Counter())[source]

    # --- Under the case's lock

    async def _add(self, commitment: Digest, messages: Sequence[SignedMessage], source: str) -> None:
        case = await self._open(commitment)
        vain = self.vain.setdefault(commitment, set())
        new = [message for message in self._unknown(case, messages) if message not in vain]
        found, wasted = await asyncio.to_thread(self._signed, case, new, self._left(commitment, source))
        self.wasted.setdefault(commitment, Counter())[source] += len(wasted)
        vain.update(wasted[: MAX_VAIN - len(vain)])
        await self._keep(case, found)

    def _unknown(self, case: Case, messages: Iterable[SignedMessage]) -> list[SignedMessage]:
        """Those of `messages`, each once, that may be a validator's word which `case` does not have yet."""
        known = {(type(kept.message), kept.signature) for kept in case.messages()}
        complete = {
            kind for kind, said in ((Have, case.haves), (NoFault, case.no_faults)) if self.validators <= {*said}
        }
        return [
            signed
            for signed in dict.fromkeys(messages)
            if type(signed.message) not in complete and (type(signed.message), signed.signature) not in known
        ]

    async def _keep(self, case: Case, found: Found) -> int:
        """Keeps what is new, on disk first; how much was."""
        grown = case.copy()
        new = [(signer, signed) for signer, signed in found if grown.keep(signer, signed)]
        if new:
            await asyncio.to_thread(self._write, grown)
        for signer, signed in new:
            case.keep(signer, signed)
        return len(new)

    def _signed(self, case: Case, messages: Iterable[SignedMessage], waste: int) -> tuple[Found, list[SignedMessage]]:
        """Which of `messages` bring `case` something new, by the validator who signed it, and which were in vain;
        stops after `waste` of these."""
        grown = case.copy()
        found: Found = []
        wasted: list[SignedMessage] = []
        for signed in messages:
            if not self._fits(case, signed):
                continue
            if len(wasted) >= waste:
                break
            signer = self._signer(signed)
            if signer in self.validators and grown.keep(signer, signed):
                found.append((signer, signed))
            else:
                wasted.append(signed)
        return found, wasted

    def _fits(self, case: Case, signed: SignedMessage) -> bool:
        match signed.message:
            case NoFault(_, leaves, _):
                fits = all(leaf < self.rows for leaf in leaves)
            case Fault(run, _, leaf, _, _):
                fits = run == self.run and (leaf < self.rows or leaf == WHOLE_FILE)
            case Have():
                fits = True
            case _:
                return False
        return fits and signed.commitment == case.commitment

    def _signer(self, signed: SignedMessage) -> Address | None:
        try:
            return recover(self.domain, signed.message, signed.signature)
        except InvalidSignature:
            return None

    def _write(self, case: Case) -> None:
        rows = [message.encode() for message in case.messages()]
        write_atomically(self.path(case.commitment), json.dumps(rows).encode())
