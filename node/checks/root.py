"""Check 2, root: the file is the committed one, whole, and worth the committed units."""

from hashing import merkle
from ledger.base import WHOLE_FILE
from node.checks.subject import Subject
from node.rollouts.assignment import file_units
from node.rollouts.file import preimage
from node.verdicts import Check, Rejected


def verify_root(subject: Subject) -> Rejected | None:
    """Rows are the run's, the leaves' tree has the committed root, and their units add up to the committed ones."""
    rows = len(subject.rollouts)
    if rows != subject.spec.slot.rows:
        return _rejected(f"{rows} rows", f"{subject.spec.slot.rows} rows", "another number of rows than the run's")
    hashes = [merkle.leaf_hash(preimage(rollout, leaf, rows)) for leaf, rollout in enumerate(subject.rollouts)]
    root = merkle.root(hashes)
    if root != subject.claim.root:
        return _rejected(root.hex(), subject.claim.root.hex(), "the file is not the one committed")
    units = file_units(subject.rollouts, subject.spec)
    if units != subject.claim.units:
        return _rejected(f"{units} units", f"{subject.claim.units} units", "the file's work is not what was committed")
    return None


def _rejected(measured: str, threshold: str, detail: str) -> Rejected:
    return Rejected(Check.ROOT, WHOLE_FILE, measured, threshold, detail)
