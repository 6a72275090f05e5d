"""Settings of tasks as people write them on a command line."""

import pytest

from node.errors import ConfigError
from node.tasks.environment import Setting, read_settings


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("x=3", 3),
        ("x=0.25", 0.25),
        ("x=true", True),
        ('x="3"', "3"),
        ("x=a=b", "a=b"),
        ("x=", ""),
        ("x=null", "null"),
        ("x=[1]", "[1]"),
        ("x=" + "[" * 100_000, "[" * 100_000),
        ("x=NaN", "NaN"),
    ],
)
def test_a_setting_is_a_scalar_of_json_or_text(word: str, value: Setting) -> None:
    settings = read_settings([word])

    assert settings == {"x": value}
    assert type(settings["x"]) is type(value)


@pytest.mark.parametrize("words", [["x"], ["x=1", "x=2"], [""]])
def test_a_word_without_a_value_and_a_name_given_twice_are_refused(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="is no setting: write name=value, each name once"):
        read_settings(words)
