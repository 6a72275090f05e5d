"""Check 1, schema: the file is what the protocol says a rollout file is. What its values mean is for later checks."""

from ledger.base import WHOLE_FILE
from node.checks.subject import Subject
from node.errors import Malformed
from node.rollouts.file import decode_file, encode_file
from node.rollouts.rollout import Rollout
from node.runspec import RunSpec
from node.verdicts import Check, Rejected

MAX_DETAIL = 300  # characters of a parser's complaint that are kept


def read_file(data: bytes, spec: RunSpec) -> tuple[Rollout, ...] | Rejected:
    """The rollouts in `data`, or why it is no file of the run."""
    try:
        return decode_file(data, spec)
    except Malformed as error:
        return _rejected(str(error))


def verify_schema(subject: Subject) -> Rejected | None:
    """The rollouts of `subject` could have been read from a file: their own file is read back."""
    try:
        data = encode_file(subject.rollouts)
    except ValueError as error:
        return _rejected(str(error))
    found = read_file(data, subject.spec)
    return found if isinstance(found, Rejected) else None


def _rejected(why: str) -> Rejected:
    return Rejected(Check.SCHEMA, WHOLE_FILE, "malformed", "protocol 1, rollout file", why[:MAX_DETAIL])
