"""What a node must generate for one slot, and what that is worth: anybody can recompute both."""

from collections.abc import Iterable
from dataclasses import dataclass

from hashing import assignment as derive
from hashing.units import rollout_units
from ledger.base import Address, Digest, RunId, Version
from node.rollouts.rollout import Rollout
from node.runspec import RunSpec


@dataclass(frozen=True, slots=True)
class Assignment:
    """`items[group]` is the number of the prompt of that group, over all tasks of the run; prompts may repeat."""

    run: RunId
    version: Version
    slot: int
    seed: Digest
    beacon: Digest
    items: tuple[int, ...]


def assign(
    spec: RunSpec,
    chain_id: int,
    contract: Address,
    run: RunId,
    spec_digest: Digest,
    version: Version,
    manifest_root: Digest,
    node: Address,
    slot: int,
    beacon: Digest,
) -> Assignment:
    """The slot's seed, and the items that it fixes.

    Args:
        contract: the run coordinator.
        spec_digest: the run's on chain; it is not recomputed from `spec`.
        beacon: the chain's for this slot.

    Source: protocol 1, "Seeds, prompts, noise, audit draw, units".
    """
    seed = Digest(derive.seed(chain_id, contract, run, spec_digest, version, manifest_root, node, slot, beacon))
    items = tuple(derive.item_index(seed, group, spec.total_items) for group in range(spec.slot.groups))
    return Assignment(run, version, slot, seed, beacon, items)


def unit_list(rollouts: Iterable[Rollout], spec: RunSpec) -> tuple[int, ...]:
    """Units of each rollout: the audit draw runs over them."""
    weights = spec.units
    return tuple(
        rollout_units(
            len(rollout.prompt_ids),
            len(rollout.output_ids),
            rollout.index == 0,
            weights.w_prompt,
            weights.w_output,
            weights.w_attention,
        )
        for rollout in rollouts
    )


def file_units(rollouts: Iterable[Rollout], spec: RunSpec) -> int:
    """Units of a whole submission, as committed on chain."""
    return sum(unit_list(rollouts, spec))
