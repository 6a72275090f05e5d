"""Putting a validator together from its parts."""

from eth_account.signers.local import LocalAccount

from node.engines.base import Engine
from node.roles.acceptance import Acceptance
from node.roles.audit import Auditor
from node.roles.batching import Batcher
from node.roles.casebook import Casebook
from node.roles.closing import Closer
from node.roles.examiner import Examiner, Guard
from node.roles.exhibits import Exhibits
from node.roles.intake import Intake
from node.roles.mailbox import ValidatorMailbox
from node.roles.member import Member
from node.roles.validator import Validator
from node.roles.witness import Witness
from node.rollouts.store import RolloutStore
from node.tasks.taskset import Taskset


def validator_of(
    member: Member, signer: LocalAccount, engine: Engine, tasks: Taskset, guard: Guard
) -> tuple[Validator, ValidatorMailbox]:
    """A validator, and what answers its peers; `guard` awaits what a single submission needs."""
    intake = Intake(member, RolloutStore(member.state.rollouts))
    auditor = Auditor(member, engine, tasks, intake)
    validators = frozenset(member.run.params.validators)
    casebook = Casebook(member.state.cases, member.domain, validators, member.run.id, member.spec.slot.rows)
    exhibits = Exhibits(member.state.evidence, auditor.evidence)
    witness = Witness(member, signer, casebook, exhibits, engine.name)
    examiner = Examiner(member, casebook, auditor, witness, guard)
    acceptable = Acceptance(member, casebook, auditor)
    batcher = Batcher(member, signer)
    closer = Closer(member, casebook, batcher)
    validator = Validator(member, intake, casebook, auditor, witness, examiner, closer, acceptable, guard)
    return validator, ValidatorMailbox(intake, casebook, batcher, exhibits, acceptable)
