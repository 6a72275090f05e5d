"""What pydantic says of data from outside, as a part of one line."""

from typing import Final

from pydantic import ValidationError

MAX_NAME: Final = 40  # characters kept of one name in a path: names may be a stranger's


def first_problem(error: ValidationError, whole: str) -> str:
    """Of the first thing that is wrong: where, and what is wanted there. `whole` stands for data without parts.

    Nothing that was sent is repeated but names of fields, cut short and escaped.
    """
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    where = ".".join(ascii(str(part)[:MAX_NAME])[1:-1] for part in first["loc"])
    return f"{where or whole}: {first['msg']}"
