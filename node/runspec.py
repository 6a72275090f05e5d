"""The RunSpec: everything that all nodes of a run must agree on, as canonical JSON whose SHA-256 is on chain."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from typing import Annotated, Literal

import rfc8785
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from ledger.base import Digest
from ledger.parsing import first_problem
from node.errors import Malformed

MAX_SPEC_BYTES = 64 * 1024
MAX_ITEMS = 2**20  # of one task; protocol, "RunSpec"
MAX_UNITS = 2**40  # `maxUnits` is refused from here; it is a uint40 on chain

Hex32 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Amount = Annotated[str, StringConstraints(pattern=r"^(0|[1-9][0-9]{0,38})$")]  # base units
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Seconds = Annotated[int, Field(ge=0, le=2**32 - 1)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ModelSpec(_Frozen):
    """The base model. File digests are SHA-256 over exact bytes; `manifest_root` is version 0's, BLAKE3."""

    architecture: Name
    manifest_root: Hex32
    config: Hex32
    tokenizer: Hex32
    chat_template: Hex32
    generation_config: Hex32
    dtype: Literal["bfloat16"]
    vocabulary: Count
    eos_ids: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1, max_length=16)]

    @model_validator(mode="after")
    def _ends_are_tokens(self) -> ModelSpec:
        if len(set(self.eos_ids)) != len(self.eos_ids) or max(self.eos_ids) >= self.vocabulary:
            raise ValueError("eos_ids must be distinct and below vocabulary")
        return self


class SamplingSpec(_Frozen):
    """top_p is 1 and there is no top_k and no stop string in a run that slashes."""

    temperature: Annotated[float, Field(gt=0, le=10)]
    max_prompt_tokens: Count
    max_output_tokens: Count


class TaskSpec(_Frozen):
    name: Name
    version: Count
    config: dict[str, str | int | float | bool]
    size: Annotated[int, Field(ge=1, le=MAX_ITEMS)]
    dataset_digest: Hex32
    scorer_version: Count
    fuel_limit: Count  # the most characters of an answer that the scorer looks at


class SlotSpec(_Frozen):
    groups: Annotated[int, Field(ge=1, le=2**16)]
    group_size: Annotated[int, Field(ge=1, le=2**16)]

    @property
    def rows(self) -> int:
        return self.groups * self.group_size


class ProofSpec(_Frozen):
    """TOPLOC's parameters and inclusive thresholds; the log-probability bounds of check 10 are nats per token."""

    chunk: Literal[32]
    top_k: Literal[128]
    exponent_mismatches: Annotated[int, Field(ge=0, le=38)]
    mantissa_mean: Annotated[float, Field(ge=0, le=10)]
    mantissa_median: Annotated[float, Field(ge=0, le=8)]
    logprob_mean_error: Annotated[float, Field(gt=0)]
    logprob_max_error: Annotated[float, Field(gt=0)]


class SamplingTestSpec(_Frozen):
    """`tail` is S0: pairs (x, P(score-difference error > x)), x strictly ascending, P in (0, 1] and never rising."""

    tail: Annotated[list[tuple[float, float]], Field(min_length=2, max_length=256)]
    suspect: Annotated[float, Field(gt=1)]
    alarm: Annotated[float, Field(gt=1)]

    @model_validator(mode="after")
    def _is_a_tail(self) -> SamplingTestSpec:
        pairs = list(pairwise(self.tail))
        if not all(0 < p <= 1 for _, p in self.tail):
            raise ValueError("tail holds a probability outside (0, 1]")
        if not all(x < later for (x, _), (later, _) in pairs):
            raise ValueError("tail's x must ascend strictly: it is interpolated")
        if not all(p >= later for (_, p), (_, later) in pairs):
            raise ValueError("tail's probabilities must not rise")
        return self


class AuditSpec(_Frozen):
    leaves: Count  # A: expected leaves drawn per submission; at or above rows, all of them


class UnitsSpec(_Frozen):
    """What work is worth: units of a rollout (protocol, "Seeds, prompts, noise, audit draw, units")."""

    w_prompt: Count
    w_output: Count
    w_attention: Annotated[int, Field(ge=0)]
    max_units: Annotated[int, Field(ge=1, lt=MAX_UNITS)]


class EconomicsSpec(_Frozen):
    price_per_unit: Amount
    submission_bond: Amount
    fault_bond: Amount
    penalty: Amount
    max_open: Annotated[int, Field(ge=1, le=2**16 - 1)]
    checkpoint_interval: Seconds
    trainer_delay: Seconds


class WindowsSpec(_Frozen):
    available: Seconds
    audit: Seconds
    settle_by: Seconds
    confirm: Seconds
    contest: Seconds
    panel: Seconds
    grace: Seconds


class RunSpec(_Frozen):
    protocol: Literal[1]
    name: Name
    model: ModelSpec
    sampling: SamplingSpec
    tasks: Annotated[list[TaskSpec], Field(min_length=1, max_length=64)]
    slot: SlotSpec
    proof: ProofSpec
    sampling_test: SamplingTestSpec
    audit: AuditSpec
    units: UnitsSpec
    async_level: Annotated[int, Field(ge=0, le=255)]
    max_provider_share: Annotated[float, Field(gt=0, le=1)]
    max_steps: Count
    economics: EconomicsSpec
    windows: WindowsSpec

    @model_validator(mode="after")
    def _worst_case_fits(self) -> RunSpec:
        if self.units.max_units < worst_case_units(self.slot, self.sampling, self.units):
            raise ValueError("units.max_units is below the worst case of a full submission")
        return self

    def encode(self) -> bytes:
        """Canonical JSON (RFC 8785)."""
        return rfc8785.dumps(self.model_dump(mode="json"))

    @property
    def digest(self) -> Digest:
        """SHA-256 of the canonical JSON: the run's spec digest on chain."""
        return Digest(hashlib.sha256(self.encode()).digest())

    @classmethod
    def parse(cls, data: bytes) -> RunSpec:
        """The spec in `data`.

        Raises:
            Malformed: not canonical JSON, over `MAX_SPEC_BYTES`, an unknown or missing field, a value out of range.
        """
        if len(data) > MAX_SPEC_BYTES:
            raise Malformed(f"run spec of {len(data)} bytes: at most {MAX_SPEC_BYTES} are read")
        try:
            spec = cls.model_validate_json(data)
        except ValidationError as error:
            raise Malformed(f"run spec: {first_problem(error, 'JSON')}") from None
        try:
            canonical = spec.encode()
        except rfc8785.CanonicalizationError as error:  # a number that JSON has and RFC 8785 has not
            raise Malformed(f"run spec: {error}") from error
        if canonical != data:
            raise Malformed("run spec is not canonical JSON (RFC 8785): its digest would not be unique")
        return spec

    @property
    def total_items(self) -> int:
        """T: how many items the run's tasks have together; prompts are drawn from them."""
        return sum(task.size for task in self.tasks)


def worst_case_units(slot: SlotSpec, sampling: SamplingSpec, units: UnitsSpec) -> int:
    """Units of a submission whose every prompt and output is as long as permitted."""
    p, o = sampling.max_prompt_tokens, sampling.max_output_tokens
    row = units.w_output * o + units.w_attention * (o * p + o * (o - 1) // 2)
    return slot.rows * row + slot.groups * units.w_prompt * p
