"""A specification from outside is canonical, or it is malformed: nothing else comes of reading one."""

import json

import pytest
import rfc8785

from node.errors import Malformed
from node.runspec import MAX_SPEC_BYTES, RunSpec


def test_a_spec_survives_its_bytes(spec: RunSpec) -> None:
    assert RunSpec.parse(spec.encode()) == spec


def test_a_number_that_canonical_json_has_not_is_malformed(spec: RunSpec) -> None:
    value = json.loads(spec.encode())
    endless = value | {"proof": value["proof"] | {"logprob_mean_error": float("inf")}}
    huge = value | {"tasks": [value["tasks"][0] | {"config": {"seed": 2**60}}]}

    for altered in (endless, huge):
        with pytest.raises(Malformed, match="run spec"):
            RunSpec.parse(json.dumps(altered).encode())


def test_another_spelling_of_the_same_spec_is_malformed(spec: RunSpec) -> None:
    with pytest.raises(Malformed, match="not canonical"):
        RunSpec.parse(json.dumps(json.loads(spec.encode()), indent=1).encode())


def test_a_spec_over_the_limit_is_not_read() -> None:
    with pytest.raises(Malformed, match="at most 65536"):
        RunSpec.parse(b" " * (MAX_SPEC_BYTES + 1))


@pytest.mark.parametrize(
    ("part", "change", "why"),
    [
        ("model", {"eos_ids": [2, 0, 2]}, "distinct"),
        ("model", {"eos_ids": [49152]}, "below vocabulary"),
        ("sampling_test", {"tail": [[0, 0.5], [0, 0.1]]}, "ascend strictly"),
        ("sampling_test", {"tail": [[0, 0.5], [2, 0.1], [1, 0.1]]}, "ascend strictly"),
        ("sampling_test", {"tail": [[0, 0.1], [1, 0.5]]}, "must not rise"),
        ("sampling_test", {"tail": [[0, 1.5], [1, 0.5]]}, r"outside \(0, 1\]"),
        ("sampling_test", {"tail": [[0, 0.5], [1, 0]]}, r"outside \(0, 1\]"),
        ("sampling_test", {"tail": [[0, 0.5], [float("nan"), 0.1]]}, "ascend strictly"),
    ],
)
def test_a_spec_that_cannot_be_judged_by_is_malformed(
    spec: RunSpec, part: str, change: dict[str, object], why: str
) -> None:
    value = json.loads(spec.encode())

    with pytest.raises(Malformed, match=why):
        RunSpec.parse(json.dumps(value | {part: value[part] | change}).encode())


def test_a_tail_may_stay_level_and_the_last_token_may_end(spec: RunSpec) -> None:
    value = json.loads(spec.encode())
    value["model"]["eos_ids"] = [49151]
    value["sampling_test"]["tail"] = [[0, 1], [1, 0.5], [2, 0.5]]

    parsed = RunSpec.parse(rfc8785.dumps(value))

    assert (parsed.model.eos_ids, parsed.sampling_test.tail) == ([49151], [(0, 1), (1, 0.5), (2, 0.5)])
