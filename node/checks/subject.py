"""What a check is given: a submission as committed on chain, its rollouts, and the prompts that a run draws from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hashing import assignment
from ledger.base import Address, Digest, RunId, Version
from node.rollouts.rollout import Rollout
from node.runspec import RunSpec


@dataclass(frozen=True, slots=True)
class Claim:
    """Everything that a commitment and its seed bind. `contract` is the run coordinator."""

    chain_id: int
    contract: Address
    run: RunId
    spec_digest: Digest
    manifest_root: Digest
    node: Address
    version: Version
    slot: int
    root: Digest
    units: int
    beacon: Digest

    @property
    def seed(self) -> Digest:
        """The slot's seed (protocol, "Seeds, prompts, noise, audit draw, units")."""
        return Digest(
            assignment.seed(
                self.chain_id, self.contract, self.run, self.spec_digest, self.version, self.manifest_root,
                self.node, self.slot, self.beacon,
            )
        )  # fmt: skip

    @property
    def commitment(self) -> Digest:
        """The submission's name on chain (protocol, "Contract surface")."""
        return Digest(
            assignment.commitment(
                self.chain_id, self.contract, self.run, self.node, self.version, self.slot,
                self.root, self.units, self.beacon,
            )
        )  # fmt: skip


class Prompt(Protocol):
    """One item of a run's tasks."""

    @property
    def prompt_ids(self) -> tuple[int, ...]: ...


class Tasks(Protocol):
    """A run's tasks as one numbered list of items; `Taskset` of `node.tasks` is one."""

    def item(self, index: int) -> Prompt: ...
    def score(self, index: int, output_ids: Sequence[int], finish: int) -> float:
        """Reward of an answer; pure, and never raises on tokens in the vocabulary."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A submission whose file was read. `rollouts` are its leaves in order."""

    spec: RunSpec
    claim: Claim
    rollouts: tuple[Rollout, ...]
    tasks: Tasks

    @property
    def seed(self) -> Digest:
        """From which prompts and noise of the slot follow."""
        return self.claim.seed

    def item_index(self, group: int) -> int:
        """The number of the item that the seed gives `group` as its prompt."""
        return assignment.item_index(self.seed, group, self.spec.total_items)
