"""Options that several commands share, declared once: a parameter that is a frozen dataclass stands for its fields."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from inspect import Parameter
from typing import Any, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with options for parameters: in place of each that is a dataclass, that one's fields, in their order.

    Called with the fields, by name, it calls `command` with the dataclasses made of them.
    """
    plain = list(inspect.signature(command, eval_str=True).parameters.values())
    groups: dict[str, Any] = {each.name: each.annotation for each in plain if dataclasses.is_dataclass(each.annotation)}

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{option.name: given.pop(option.name) for option in dataclasses.fields(group)})
        command(**given)

    options = [option for each in plain for option in _options(each)]
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run


def _options(parameter: Parameter) -> Iterator[Parameter]:
    """What `parameter` stands for. By keyword only, so that one without a default may come after one with."""
    group = parameter.annotation
    if not dataclasses.is_dataclass(group):
        yield parameter.replace(kind=Parameter.KEYWORD_ONLY)
        return
    hints = get_type_hints(group, include_extras=True)
    for option in dataclasses.fields(group):
        default = Parameter.empty if option.default is dataclasses.MISSING else option.default
        yield Parameter(option.name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[option.name])
