"""What an environment declares, and how its settings are read from a RunSpec or a command line."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from ledger.parsing import MAX_NAME, first_problem
from node.errors import ConfigError, SpecMismatch
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
        unknown = next((name for name in config if name not in self.settings.model_fields), None)
        if unknown is not None:
            known = ", ".join(self.settings.model_fields) or "none"
            raise SpecMismatch(f"config, {ascii(unknown[:MAX_NAME])[1:-1]}: no such setting: there are {known}")
        try:
            return self.settings.model_validate(dict(config))
        except ValidationError as error:
            raise SpecMismatch(f"config, {first_problem(error, 'all of it')}") from error


def read_settings(words: Sequence[str]) -> dict[str, Setting]:
    """Settings from `name=value` words, a value being a JSON scalar or, where it is none, text.

    Raises: ConfigError.
    """
    settings: dict[str, Setting] = {}
    for word in words:
        name, separator, text = word.partition("=")
        if not separator or name in settings:
            raise ConfigError(f"{word!r} is no setting: write name=value, each name once")
        settings[name] = _value(text)
    return settings


def _value(text: str) -> Setting:
    try:
        value = from_json(text, allow_inf_nan=False)
    except ValueError:
        return text
    return value if isinstance(value, (str, int, float, bool)) else text
