"""Check 3, assignment: each prompt is the one that the slot's seed draws for its group."""

from node.checks.subject import Subject
from node.rollouts.rollout import Rollout
from node.verdicts import Check, Rejected


def verify_prompt(subject: Subject, leaf: int, rollout: Rollout) -> Rejected | None:
    """The rollout answers the item that the seed assigned to its group, token by token."""
    index = subject.item_index(rollout.group)
    assigned = subject.tasks.item(index).prompt_ids
    if rollout.prompt_ids == assigned:
        return None
    return Rejected(
        Check.ASSIGNMENT,
        leaf,
        f"prompt of {len(rollout.prompt_ids)} tokens",
        f"item {index}, {len(assigned)} tokens",
        f"group {rollout.group} answers another prompt than its seed's",
    )
