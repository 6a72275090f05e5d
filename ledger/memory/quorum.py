"""Whose signatures a call carries, and whether they make a quorum, by the rules of `RunCoordinator.sol`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from ledger.base import NOBODY, Address, Digest, Fault, RunId, RunParams
from ledger.errors import InvalidSignature, reverted
from ledger.messages import MAX_CHECK, Batch, Domain, recover

DUPLICATES: Final = 5  # protocol, "Check codes and what they cost": telemetry, nobody answers for it


@dataclass(frozen=True, slots=True)
class Finding:
    """A `Fault` that counts: of `validator` alone where its check slashes, else of a whole quorum."""

    fault: Fault
    validator: Address


class Signers:
    """Recovers who signed, in the coordinator's domain."""

    def __init__(self, chain_id: int, coordinator: Address) -> None:
        self._domain = Domain(chain_id, coordinator)

    def require_batch(
        self, params: RunParams, run: RunId, commitments: Sequence[Digest], signatures: Sequence[bytes]
    ) -> None:
        """Raises unless a quorum of the run's validators signed the list, in ascending order."""
        if len(signatures) < params.quorum:
            raise reverted("QuorumNotReached", {"signatures": len(signatures), "quorum": params.quorum})
        message = Batch(run, tuple(commitments))
        previous = NOBODY
        for signature in signatures:
            previous = self._next(params, previous, message, signature)

    def findings(
        self,
        params: RunParams,
        run: RunId,
        faults: Sequence[Fault],
        signatures: Sequence[bytes],
        slashing: frozenset[int],
    ) -> list[Finding]:
        """What the signed `faults` amount to, in order; consecutive ones on one (commitment, leaf, check) that does
        not slash need a quorum, signers ascending, and are one finding.

        Raises: Reverted.
        """
        found: list[Finding] = []
        pairs = list(zip(faults, signatures, strict=True))
        for (_, _, check), group in groupby(pairs, lambda pair: _subject(pair[0])):
            if check == DUPLICATES or check > MAX_CHECK:
                raise reverted("UnknownCheck", {"check": check})
            if check in slashing:
                found += [Finding(fault, self._one(params, run, fault, signature)) for fault, signature in group]
            else:
                found.append(self._quorum(params, run, group))
        return found

    def _one(self, params: RunParams, run: RunId, fault: Fault, signature: bytes) -> Address:
        _require_run(run, fault)
        validator = self._recover(fault, signature)
        _require_validator(params, validator)
        return validator

    def _quorum(self, params: RunParams, run: RunId, group: Iterator[tuple[Fault, bytes]]) -> Finding:
        previous, count = NOBODY, 0
        for fault, signature in group:
            _require_run(run, fault)
            previous = self._next(params, previous, fault, signature)
            count += 1
        if count < params.quorum:
            raise reverted("QuorumNotReached", {"signatures": count, "quorum": params.quorum})
        return Finding(fault, previous)

    def _next(self, params: RunParams, previous: Address, message: Batch | Fault, signature: bytes) -> Address:
        signer = self._recover(message, signature)
        if int(signer, 16) <= int(previous, 16):
            raise reverted("SignersNotAscending", {"previous": previous, "next": signer})
        _require_validator(params, signer)
        return signer

    def _recover(self, message: Batch | Fault, signature: bytes) -> Address:
        try:
            return recover(self._domain, message, signature)
        except InvalidSignature:
            raise reverted("InvalidSignature") from None


def _subject(fault: Fault) -> tuple[Digest, int, int]:
    return fault.commitment, fault.leaf, fault.check


def _require_run(run: RunId, fault: Fault) -> None:
    if fault.run != run:
        raise reverted("WrongRun", {"expected": run, "actual": fault.run})


def _require_validator(params: RunParams, signer: Address) -> None:
    if signer not in params.validators:
        raise reverted("NotValidator", {"signer": signer})
