"""What is played for each model: which networks, how long, and what is looked at."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from node.devnet.network import Show
from node.launch import PRESETS

SPLITS_APART = 100_000  # arithmetic draws item i with seed + i: seeds closer than its 4,096 draws share questions
LEARNING, CONTROL = "learning", "control"


@dataclass(frozen=True, slots=True)
class Series:
    """The networks of one model. `ends` is how many versions at either end are compared by their rollouts' rewards.

    held_out_claim: whether accuracy on held-out prompts must double; else rewards alone decide.
    """

    model: str
    settings: tuple[str, ...]
    steps: int
    examined: tuple[int, ...]
    samples: int
    arms: tuple[str, ...]
    ends: int
    at_once: int
    held_out_claim: bool
    seconds: float  # that one network may take

    @property
    def rows(self) -> int:
        """Rollouts of one submission."""
        return PRESETS[self.model].groups * PRESETS[self.model].group_size

    def show(self, arm: str, seed: int, folder: Path) -> Show:
        """The network of one arm and seed: 2 workers, 2 validators, a trainer, a relay, nobody who cheats.

        Keys, and so beacons, noise and audits, are new in every network; the seed chooses the questions and which of
        them are held out.
        """
        return Show(
            folder, self.model, workers=2, validators=2, cheat=None, steps=self.steps, held_out_samples=self.samples,
            seconds=self.seconds, task="lottery" if arm == CONTROL else None,
            settings=(*self.settings, f"seed={seed * SPLITS_APART}"), examined=self.examined,
        )  # fmt: skip

    def parameters(self) -> dict[str, Any]:
        """What a stored result must have been made with to be taken over."""
        chosen = PRESETS[self.model]
        return {
            **({"settings": list(self.settings)} if self.settings else {}),
            "steps": self.steps,
            "samples": self.samples,
            "examined": list(self.examined),
            "batch_rollouts": chosen.batch_rollouts,
            "groups": chosen.groups,
            "group_size": chosen.group_size,
            "hyper": asdict(chosen.hyper),
        }


SERIES: Mapping[str, Series] = {
    "tiny": Series(
        "tiny", settings=("classes=1",), steps=10, examined=(), samples=0, arms=(LEARNING,), ends=3, at_once=3,
        held_out_claim=False, seconds=900,
    ),
    "smollm2": Series(
        "smollm2", settings=(), steps=20, examined=(0, 5, 10, 15, 20), samples=4, arms=(LEARNING, CONTROL), ends=5,
        at_once=1, held_out_claim=True, seconds=3600,
    ),
}  # fmt: skip
