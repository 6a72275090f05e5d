"""Which accepted groups the next optimiser batch consumes. Pure: no clock, no disk, no chain."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple

from ledger.base import Address, Digest, Version
from node.errors import ConfigError
from node.rollouts.rollout import Rollout


class GroupId(NamedTuple):
    """A group is (commitment, group) and never merged with another, even one of the same prompt."""

    commitment: Digest
    group: int


@dataclass(frozen=True, slots=True)
class TrainingGroup:
    """The rollouts of one prompt in an accepted submission; `rewards` are the trainer's own, one per rollout."""

    commitment: Digest
    provider: Address
    version: Version
    group: int
    rollouts: tuple[Rollout, ...]
    rewards: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.rollouts or len(self.rewards) != len(self.rollouts):
            raise ValueError(f"{len(self.rollouts)} rollouts with {len(self.rewards)} rewards are no group")
        if not all(isfinite(reward) for reward in self.rewards):
            raise ValueError(f"rewards {self.rewards} are not all finite")
        if any(rollout.prompt_ids != self.rollouts[0].prompt_ids for rollout in self.rollouts):
            raise ValueError("rollouts of one group have different prompts")

    @property
    def id(self) -> GroupId:
        return GroupId(self.commitment, self.group)


def window(version: Version, async_level: int) -> range:
    """Versions whose rollouts may make `version` (protocol, "Weights"): max(0, w - 1 - async_level) to w - 1."""
    return range(max(0, version - 1 - async_level), version)


@dataclass(frozen=True, slots=True)
class BatchRule:
    """A run's batch: whole groups of `group_size`, `rollouts` in all, each provider's share bounded.

    Raises: ConfigError where no batch could ever be filled under these numbers.
    """

    rollouts: int
    group_size: int
    async_level: int
    max_provider_share: float

    def __post_init__(self) -> None:
        if self.rollouts < 1 or self.group_size < 1 or self.rollouts % self.group_size:
            raise ConfigError(f"a batch of {self.rollouts} rollouts is not made of whole groups of {self.group_size}")
        if self.provider_limit < self.group_size:
            needed = -(-self.group_size // self.max_provider_share)
            raise ConfigError(
                f"a share of {self.max_provider_share} of {self.rollouts} rollouts holds no group of "
                f"{self.group_size}: make the batch at least {needed:.0f} rollouts"
            )

    @property
    def provider_limit(self) -> int:
        """The most rollouts of one provider in a batch."""
        return int(self.max_provider_share * self.rollouts)

    def select(
        self, available: Iterable[TrainingGroup], consumed: Collection[GroupId], version: Version
    ) -> tuple[TrainingGroup, ...]:
        """Groups for the step that makes `version`: at most `rollouts` rows, fewer when there are not enough.

        Newest version first. What does not fit is left over whichever order is taken, so the order only decides how
        old the batch is; oldest first would train at the full lag for ever once there is a backlog. Within a
        version by (commitment, group): the same set gives the same batch, in whatever order it arrived. Groups whose
        rewards are all equal are taken like any other: leaving them out would favour some prompts unseen.
        """
        versions = window(version, self.async_level)
        unique = {group.id: group for group in available if group.version in versions and group.id not in consumed}
        chosen: list[TrainingGroup] = []
        rows = 0
        of_provider: Counter[Address] = Counter()
        for group in sorted(unique.values(), key=lambda group: (-group.version, group.id)):
            size = len(group.rollouts)
            if rows + size > self.rollouts or of_provider[group.provider] + size > self.provider_limit:
                continue
            chosen.append(group)
            rows += size
            of_provider[group.provider] += size
        return tuple(chosen)
