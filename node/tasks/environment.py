"""What an environment declares, and how it reads its part of a RunSpec."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from node.errors import SpecMismatch
from node.tasks.base import Task, Tokenizer

Setting = str | int | float | bool
Build = Callable[[Mapping[str, Setting], Tokenizer, int], Task]  # (config, tokenizer, fuel limit); raises SpecMismatch


@dataclass(frozen=True, slots=True)
class Environment:
    """A kind of task. `version` rises when its prompts change, `scorer_version` when a reward could.

    `fuel_limit` is what new runs get: the most characters of an answer (tokens, where there is no text) that count.
    """

    version: int
    scorer_version: int
    fuel_limit: int
    build: Build


class Settings(BaseModel):
    """Base of environments' settings: frozen, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


S = TypeVar("S", bound=Settings)


def parse_settings(kind: type[S], config: Mapping[str, Setting]) -> S:
    """The settings in `config`. A run's owner may be hostile: each field has bounds.

    Raises:
        SpecMismatch: an unknown field, or a value of the wrong type or out of bounds.
    """
    try:
        return kind.model_validate(dict(config))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "config"
        raise SpecMismatch(f"config, {field}: {first['msg']}") from error
