"""The run of the protocol's worked example, and its rollouts."""

import json
from pathlib import Path
from typing import Any

import pytest

from node.rollouts.rollout import Rollout
from node.runspec import RunSpec

VECTORS = Path(__file__).parents[1] / "vectors" / "protocol1.json"


@pytest.fixture(scope="session")
def vectors() -> dict[str, Any]:
    return json.loads(VECTORS.read_bytes())


@pytest.fixture(scope="session")
def spec(vectors: dict[str, Any]) -> RunSpec:
    inputs = vectors["inputs"]
    digest = "0" * 64
    return RunSpec.model_validate(
        {
            "protocol": 1,
            "name": "vectors",
            "model": {
                "architecture": "LlamaForCausalLM",
                **dict.fromkeys(("manifest_root", "config", "tokenizer", "chat_template", "generation_config"), digest),
                "dtype": "bfloat16",
                "vocabulary": 49152,
                "eos_ids": inputs["eos_ids"],
            },
            "sampling": {
                "temperature": 1.0,
                "max_prompt_tokens": inputs["max_prompt_tokens"],
                "max_output_tokens": inputs["max_output_tokens"],
            },
            "tasks": [
                {
                    "name": task["name"],
                    "version": 1,
                    "config": {},
                    "size": task["size"],
                    "dataset_digest": digest,
                    "scorer_version": 1,
                    "fuel_limit": 1024,
                }
                for task in inputs["tasks"]
            ],
            "slot": {"groups": inputs["groups"], "group_size": inputs["group_size"]},
            "proof": {
                "chunk": 32,
                "top_k": 128,
                "exponent_mismatches": 20,
                "mantissa_mean": 8.0,
                "mantissa_median": 6.0,
                "logprob_mean_error": 0.1,
                "logprob_max_error": 1.0,
            },
            "sampling_test": {"tail": [(0.0, 1.0), (1.0, 0.001)], "suspect": 1e5, "alarm": 1e9},
            "audit": {"leaves": inputs["A"]},
            "units": {**inputs["units"], "max_units": 100_000},
            "async_level": 2,
            "max_provider_share": 1.0,
            "max_steps": 10,
            "economics": {
                **dict.fromkeys(("price_per_unit", "submission_bond", "fault_bond", "penalty"), "1"),
                "max_open": 4,
                "checkpoint_interval": 1,
                "trainer_delay": 1,
            },
            "windows": dict.fromkeys(("available", "audit", "settle_by", "confirm", "contest", "panel", "grace"), 10),
        }
    )


@pytest.fixture(scope="session")
def rollouts(vectors: dict[str, Any]) -> tuple[Rollout, ...]:
    return tuple(
        Rollout(
            group=entry["group"],
            index=entry["index"],
            prompt_ids=tuple(entry["prompt_ids"]),
            output_ids=tuple(entry["output_ids"]),
            logprobs=tuple(entry["logprobs"]),
            proofs=tuple(bytes.fromhex(byte) * 258 for byte in entry["proofs_hex"]),
            finish=entry["finish"],
            reward=entry["reward"],
        )
        for entry in vectors["inputs"]["rollouts"]
    )
