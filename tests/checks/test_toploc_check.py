"""Check 8 against honest noise, against forgers, and against proofs made to crash a verifier.

Real hidden states: SmolLM2-135M-Instruct, captured from vLLM on a CPU (`smollm2_vllm_cpu.npz`).
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from hashing.comparison import compare
from hashing.proof import EXPONENT, MANTISSA, SIGN, build_proof, build_proofs
from node.checks.base import deep
from node.checks.toploc import judged, mismatches, verify_proofs
from node.rollouts.rollout import Replay
from node.runspec import ProofSpec
from node.verdicts import Accepted, Check, Rejected

CAPTURED = Path(__file__).parents[1] / "vectors" / "smollm2_vllm_cpu.npz"
LOOSEST = ProofSpec(
    chunk=32, top_k=128, exponent_mismatches=38, mantissa_mean=10.0, mantissa_median=8.0,
    logprob_mean_error=1.0, logprob_max_error=1.0,
)  # fmt: skip


@pytest.fixture(scope="module")
def captured() -> dict[str, npt.NDArray[Any]]:
    with np.load(CAPTURED) as arrays:
        return dict(arrays)


def widened(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def narrowed(values: npt.NDArray[np.floating]) -> npt.NDArray[np.uint16]:
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def passes(spec: ProofSpec, forged: npt.NDArray[np.uint16], real: npt.NDArray[np.uint16]) -> bool:
    distance = compare(build_proof(forged), real)
    return (
        mismatches(distance) <= spec.exponent_mismatches
        and distance.mantissa_mean <= spec.mantissa_mean
        and distance.mantissa_median <= spec.mantissa_median
    )


def with_states(replay: Replay, bits: npt.NDArray[np.uint16]) -> Replay:
    return replace(replay, hidden_bits=bits)


def test_honest_noise_passes_and_is_measured(case: Any) -> None:
    verdict = deep(case.subject, case.replays)

    assert isinstance(verdict, Accepted)
    figures = dict(verdict.measured)
    assert 0 < figures["mismatches"] <= 20
    assert 0 < figures["mantissa_mean"] < 2


def test_real_states_pass_under_small_noise(captured: dict[str, npt.NDArray[Any]]) -> None:
    rng = np.random.default_rng(0)
    for i in range(4):
        bits = captured[f"hidden_bf16_{i}"]
        noisy = widened(bits) * (1 + 0.003 * rng.standard_normal(bits.shape))
        for start in range(0, len(bits), 32):
            assert passes(LOOSEST, narrowed(noisy[start : start + 32]), bits[start : start + 32])


def test_other_states_are_rejected_and_the_chunk_named(case: Any) -> None:
    bits = case.replays[1].hidden_bits.copy()
    bits[32:40] = narrowed(np.random.default_rng(9).standard_normal((8, 256)))

    verdict = deep(case.subject, {1: with_states(case.replays[1], bits)})

    assert isinstance(verdict, Rejected)
    assert (verdict.check, verdict.leaf, verdict.threshold) == (Check.TOPLOC, 1, "20, 5, 4")
    assert verdict.detail.startswith("chunk 1:")


def test_flipped_signs_are_rejected(case: Any) -> None:
    flipped = with_states(case.replays[1], case.replays[1].hidden_bits ^ np.uint16(SIGN))

    verdict = deep(case.subject, {1: flipped})

    assert isinstance(verdict, Rejected)
    assert verdict.check == Check.TOPLOC
    assert verdict.measured.startswith("128, ")


def test_thresholds_are_inclusive(case: Any) -> None:
    rollout, replay, proof = case.subject.rollouts[1], case.replays[1], case.subject.spec.proof
    worst = max(mismatches(distance) for distance in judged(rollout, replay))

    at = proof.model_copy(update={"exponent_mismatches": worst})
    below = proof.model_copy(update={"exponent_mismatches": worst - 1})

    assert verify_proofs(at, 1, rollout, replay) is None
    assert verify_proofs(below, 1, rollout, replay) is not None


@pytest.mark.parametrize("field", ["mantissa_mean", "mantissa_median"])
def test_each_mantissa_threshold_rejects_alone(case: Any, field: str) -> None:
    bits = case.replays[1].hidden_bits ^ np.uint16(0x0010)  # every mantissa off by 16
    loose = {"exponent_mismatches": 38, "mantissa_mean": 1000.0, "mantissa_median": 1000.0}
    replay = with_states(case.replays[1], bits)

    assert verify_proofs(ProofSpec.model_construct(**loose), 1, case.subject.rollouts[1], replay) is None
    strict = ProofSpec.model_construct(**{**loose, field: 8.0})
    assert verify_proofs(strict, 1, case.subject.rollouts[1], replay) is not None


# --- Short chunks: 35 tokens leave a last chunk of 3; leaf 0 has 6 tokens in all


def test_a_chunk_under_8_tokens_is_not_judged_alone(case: Any) -> None:
    bits = case.replays[2].hidden_bits.copy()
    bits[32:] ^= np.uint16(SIGN)

    assert isinstance(deep(case.subject, {2: with_states(case.replays[2], bits)}), Accepted)
    assert judged(case.subject.rollouts[0], case.replays[0]) == ()


def test_a_chunk_of_8_tokens_is_judged(case: Any) -> None:
    assert len(judged(case.subject.rollouts[1], case.replays[1])) == 2  # 40 = 32 + 8


@pytest.mark.parametrize("bad", [b"", b"\xff\xd9", bytes(258), b"\xff" * 258])
def test_a_short_chunks_proof_must_parse_all_the_same(case: Any, bad: bytes) -> None:
    rollout = case.subject.rollouts[2]
    forged = replace(rollout, proofs=(rollout.proofs[0], bad))

    verdict = verify_proofs(case.subject.spec.proof, 2, forged, case.replays[2])

    assert verdict is not None
    assert verdict.measured == "malformed proof"


@pytest.mark.parametrize("count", [0, 1, 3])
def test_another_number_of_proofs_is_rejected(case: Any, count: int) -> None:
    rollout = case.subject.rollouts[1]
    forged = replace(rollout, proofs=(*rollout.proofs, rollout.proofs[0])[:count])

    assert verify_proofs(case.subject.spec.proof, 1, forged, case.replays[1]) is not None


# --- Forgers


def test_a_constant_mantissa_is_refused_even_with_all_exponents_and_signs_right(
    captured: dict[str, npt.NDArray[Any]],
) -> None:
    means = []
    for i in range(4):
        bits = captured[f"hidden_bf16_{i}"]
        forged = (bits & np.uint16(SIGN | EXPONENT)) | np.uint16(64)
        for start in range(0, len(bits), 32):
            real = bits[start : start + 32]
            # The forger even knows which values are the largest: ranks of the real ones, mantissas of none.
            order = np.argsort(real.reshape(-1) & np.uint16(EXPONENT | MANTISSA), kind="stable")[-128:]
            mantissas = np.abs((real.reshape(-1)[order] & MANTISSA).astype(int) - 64)
            means.append(mantissas.mean())
            assert mantissas.mean() > LOOSEST.mantissa_mean
            assert not passes(LOOSEST, forged[start : start + 32], real)
    assert np.mean(means) == pytest.approx(32, abs=6)


def test_a_linear_map_from_five_tokens_is_refused(captured: dict[str, npt.NDArray[Any]]) -> None:
    """No transformer: hidden states fitted by ridge regression on the last five tokens, three answers to learn from."""
    table = np.random.default_rng(1).standard_normal((49152, 48)) / 7

    def features(i: int) -> npt.NDArray[np.float64]:
        prompt = captured[f"prompt_{i}"]
        ids = np.concatenate([prompt, captured[f"output_{i}"]])
        last = len(prompt) - 1 + np.arange(128)  # the token whose state predicts output t
        return np.concatenate([np.ones((128, 1)), *(table[ids[last - back]] for back in range(5))], axis=1)

    known = np.concatenate([features(i) for i in range(3)])
    states = np.concatenate([widened(captured[f"hidden_bf16_{i}"]) for i in range(3)])
    linear = np.linalg.solve(known.T @ known + np.eye(known.shape[1]), known.T @ states)

    # On what it learned from it is close in sum; on another answer, and even on these, no chunk passes.
    for i in range(4):
        forged, real = narrowed(features(i) @ linear), captured[f"hidden_bf16_{i}"]
        for start in range(0, 128, 32):
            assert not passes(LOOSEST, forged[start : start + 32], real[start : start + 32])


def test_a_proof_of_another_answer_is_refused(captured: dict[str, npt.NDArray[Any]]) -> None:
    proofs = build_proofs(captured["hidden_bf16_0"])

    for start, proof in zip(range(0, 128, 32), proofs, strict=True):
        assert not passes(
            LOOSEST, captured["hidden_bf16_0"][start : start + 32], captured["hidden_bf16_1"][start : start + 32]
        )
        assert len(proof) == 258
