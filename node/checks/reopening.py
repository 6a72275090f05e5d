"""Looking at evidence again: all that needs neither a chain nor a model. Believes nothing that it can recompute.

The beacon is the caller's to compare with the chain's. For checks 8 to 10 the caller replays `rollouts` with an engine
(seed: `subject.seed`) and gives `rollouts` and replays to `node.checks.base.deep_leaves`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hashing import merkle
from ledger.base import WHOLE_FILE, Digest
from node.checks.base import cheap_leaf
from node.checks.evidence import Evidence, Exhibit
from node.checks.subject import Subject, Tasks
from node.errors import Malformed
from node.rollouts.assignment import file_units
from node.rollouts.file import decode_preimage
from node.rollouts.rollout import Rollout
from node.runspec import RunSpec
from node.verdicts import Accepted, Check, Rejected, Undecided, Verdict

OF_A_LEAF = {Check.ASSIGNMENT, Check.BOUNDS, Check.REWARD, Check.TERMINATION}  # what `cheap_leaf` looks at
OF_A_FILE = {Check.WITHHELD, Check.SCHEMA, Check.ROOT, Check.DUPLICATE}


@dataclass(frozen=True, slots=True)
class Reopened:
    """A case as its evidence shows it.

    subject: everything about the submission but its rollouts. rollouts: those exhibited, by leaf.
    verdict: Rejected where a cheap check fails on an exhibit, whatever the evidence says; Undecided where a model, the
    chain or the rest of the file is needed; else Accepted.
    """

    subject: Subject
    rollouts: Mapping[int, Rollout]
    verdict: Verdict


def shown(evidence: Evidence, commitment: Digest, spec: RunSpec) -> Mapping[int, Rollout] | Rejected:
    """The rollouts that `evidence` exhibits, by leaf: hashes and form, for which not even the tokenizer is needed.

    Args:
        commitment: the submission's on chain, which the evidence must be about.
        spec: the run's; its digest must be the one that the seed binds.

    Raises:
        Malformed: the evidence is about something else, or an exhibit is not in the committed tree.
    """
    if evidence.claim.commitment != commitment:
        raise Malformed(f"evidence is about {evidence.claim.commitment.hex()}, not {commitment.hex()}")
    if evidence.claim.spec_digest != spec.digest:
        raise Malformed("evidence is about a run with another specification")
    _require_exhibited(evidence)
    try:
        return {exhibit.leaf: _decode(exhibit, spec) for exhibit in evidence.exhibits}
    except Malformed as error:
        return Rejected(Check.SCHEMA, WHOLE_FILE, "malformed", "protocol 1, rollout file", str(error)[:300])


def reopen(evidence: Evidence, commitment: Digest, spec: RunSpec, tasks: Tasks) -> Reopened:
    """Recomputes commitment, Merkle paths and cheap checks of `evidence`. Arguments and errors as of `shown`."""
    subject = Subject(spec, evidence.claim, (), tasks)
    rollouts = shown(evidence, commitment, spec)
    if isinstance(rollouts, Rejected):
        return Reopened(subject, {}, rollouts)
    return Reopened(subject, rollouts, _verdict(evidence, subject, rollouts))


def _require_exhibited(evidence: Evidence) -> None:
    if evidence.rejected.leaf not in {WHOLE_FILE, *(exhibit.leaf for exhibit in evidence.exhibits)}:
        raise Malformed(f"evidence does not show leaf {evidence.rejected.leaf}")
    for exhibit in evidence.exhibits:
        leaf = merkle.leaf_hash(exhibit.preimage)
        if not merkle.verify_path(evidence.claim.root, leaf, exhibit.leaf, evidence.rows, exhibit.path):
            raise Malformed(f"evidence: leaf {exhibit.leaf} is not in the committed tree of {evidence.rows} rows")


def _decode(exhibit: Exhibit, spec: RunSpec) -> Rollout:
    row, _, rollout = decode_preimage(exhibit.preimage, spec)
    if row != exhibit.leaf:
        raise Malformed(f"row {exhibit.leaf}, row: the leaf says it is row {row}")
    return rollout


def _verdict(evidence: Evidence, subject: Subject, rollouts: Mapping[int, Rollout]) -> Verdict:
    for leaf, rollout in rollouts.items():
        found = cheap_leaf(subject, leaf, rollout)
        if not isinstance(found, Accepted):
            return found
    units = file_units(rollouts.values(), subject.spec)
    if len(rollouts) == evidence.rows and (evidence.rows != subject.spec.slot.rows or units != subject.claim.units):
        measured, threshold = (
            f"{evidence.rows} rows, {units} units",
            f"{subject.spec.slot.rows}, {subject.claim.units}",
        )
        return Rejected(Check.ROOT, WHOLE_FILE, measured, threshold, "rows or units are not the committed ones")
    check = evidence.rejected.check
    if check in OF_A_LEAF or (check in OF_A_FILE and len(rollouts) == evidence.rows):
        return Accepted()
    if check in OF_A_FILE:
        return Undecided("this check needs the chain or the whole file")
    return Undecided("this check needs a replay by the model")
