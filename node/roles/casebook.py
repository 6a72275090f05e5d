"""What a validator knows about each submission: signed messages, its own findings; on disk before it is told."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ledger.base import Address, Digest, Fault
from ledger.errors import InvalidSignature, LedgerError
from ledger.messages import Domain, Have, NoFault, SignedMessage, recover
from node.files import write_atomically
from node.log import warn

MAX_FAULTS = 8  # kept of one validator on one submission; one is enough to act on


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


@dataclass(slots=True)
class Casebook:
    """All cases of a run. Only messages that a validator of the run signed get in, a bounded number of each."""

    folder: Path
    domain: Domain
    validators: frozenset[Address]
    cases: dict[Digest, Case] = field(default_factory=dict)

    def case(self, commitment: Digest) -> Case:
        """The case of `commitment`, read back from disk where an earlier run of this node knew it."""
        if commitment not in self.cases:
            self.cases[commitment] = Case(commitment)
            self._take(self.cases[commitment], self._stored(commitment))
        return self.cases[commitment]

    def add(self, commitment: Digest, messages: Iterable[SignedMessage]) -> None:
        """Adds what validators signed about `commitment` and writes it down; anything else is left out.

        Raises: StoreError.
        """
        case = self.case(commitment)
        if self._take(case, messages):
            self._write(case)

    def _take(self, case: Case, messages: Iterable[SignedMessage]) -> bool:
        taken = [self._take_one(case, message) for message in messages]
        return any(taken)

    def _take_one(self, case: Case, signed: SignedMessage) -> bool:
        """Whether `signed` was new and is kept. A validator's first word of a kind stands."""
        if signed.commitment != case.commitment:
            return False
        try:
            signer = recover(self.domain, signed.message, signed.signature)
        except InvalidSignature:
            return False
        if signer not in self.validators:
            return False
        match signed.message:
            case Have():
                return case.haves.setdefault(signer, signed) is signed
            case NoFault():
                return case.no_faults.setdefault(signer, signed) is signed
            case Fault():
                said = case.faults.setdefault(signer, [])
                new = signed.message not in case.found(signer) and len(said) < MAX_FAULTS
                said.extend([signed] if new else [])
                return new
        return False

    def _path(self, commitment: Digest) -> Path:
        return self.folder / f"{commitment.hex()}.json"

    def _write(self, case: Case) -> None:
        rows = [message.encode() for message in case.messages()]
        write_atomically(self._path(case.commitment), json.dumps(rows).encode())

    def _stored(self, commitment: Digest) -> list[SignedMessage]:
        path = self._path(commitment)
        try:
            return [SignedMessage.parse(row) for row in json.loads(path.read_bytes())]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError, LedgerError) as error:
            warn("case file unreadable, starting it anew", path=path, reason=error)
            return []
