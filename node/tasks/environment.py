"""What an environment declares, and how its settings are read from a RunSpec."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from node.errors import SpecMismatch
from node.tasks.base import Task, Tokenizer

Setting = str | int | float | bool


class TaskSettings(BaseModel):
    """Base of environments' settings. A run's owner may be hostile, so every field has bounds."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


S = TypeVar("S", bound=TaskSettings)


@dataclass(frozen=True, slots=True)
class Environment(Generic[S]):
    """A kind of task. `version` rises when its prompts change, `scorer_version` when a reward could.

    `fuel_limit` is what new runs get: the most characters of an answer (tokens, where there is no text) that count.
    `build` takes settings, tokenizer and fuel limit; it raises `SpecMismatch` where settings do not fit together.
    """

    version: int
    scorer_version: int
    fuel_limit: int
    settings: type[S]
    build: Callable[[S, Tokenizer, int], Task]

    def parse(self, config: Mapping[str, Setting]) -> S:
        """The settings in `config`, defaults for what it leaves out.

        Raises:
            SpecMismatch: an unknown field, or a value of the wrong type or out of bounds.
        """
        try:
            return self.settings.model_validate(dict(config))
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "all of it"
            raise SpecMismatch(f"config, {field}: {first['msg']}") from error
