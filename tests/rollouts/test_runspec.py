"""A specification from outside is canonical, or it is malformed: nothing else comes of reading one."""

import json

import pytest

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
