"""How surely the checks refuse known frauds with given thresholds: the counterpart of their honest noise."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from calibration.generated_slots import Workload, silent
from calibration.int8_weights import int8_weights

from node.checks.calibration import Calibration
from node.checks.sampling import log_evidence, verify_file, verify_rollout
from node.checks.toploc import judged, verify_proofs, widest
from node.roles.frauds import EditedTokens, OtherModel
from node.rollouts.rollout import Replay, Rollout, Sample


def _same(samples: Sequence[Sample]) -> list[Sample]:
    return list(samples)


# By name: the weights that are really loaded, out of the run's and a free folder; what is made of the rollouts.
FRAUDS: Mapping[str, tuple[Callable[[Path, Path], Path], Callable[[Sequence[Sample]], list[Sample]]]] = {
    "other-model": (lambda own, _: OtherModel().weights(own), _same),
    "edited-tokens": (lambda own, _: own, EditedTokens().samples),
    "int8": (int8_weights, _same),
}


def fraud_power(
    name: str, folder: Path, works: Sequence[Workload], found: Calibration, scratch: Path, threads: int
) -> dict[str, float]:
    """What thresholds `found` make of one slot of each workload that fraud `name` generated."""
    own = scratch / name / "model"
    shutil.copytree(folder, own)
    weights_of, samples_of = FRAUDS[name]
    weights = weights_of(own, scratch / name / "other")
    slots = []
    for work in works:
        engine = work.engine(weights, threads)
        seed = hashlib.sha256(f"calibrate {name} {work.name}".encode()).digest()
        made = _altered(work.slot(engine, seed), samples_of)
        engine.load(own)
        slots.append(list(zip(made, engine.replay(seed, made, silent), strict=True)))
        engine.close()
    return _figures(slots, found)


def _altered(rollouts: Sequence[Rollout], samples_of: Callable[[Sequence[Sample]], list[Sample]]) -> list[Rollout]:
    samples = samples_of([Sample(r.output_ids, r.logprobs, r.proofs, r.finish) for r in rollouts])
    return [
        Rollout(r.group, r.index, r.prompt_ids, s.output_ids, s.logprobs, s.proofs, s.finish, r.reward)
        for r, s in zip(rollouts, samples, strict=True)
    ]


def _figures(slots: Sequence[Sequence[tuple[Rollout, Replay]]], found: Calibration) -> dict[str, float]:
    leaves = [leaf for slot in slots for leaf in slot]
    tokens = sum(len(rollout.output_ids) for rollout, _ in leaves)
    by_proof = [verify_proofs(found.proof, 0, rollout, replay) for rollout, replay in leaves]
    by_sampling = [verify_rollout(found.sampling_test, 0, replay) for _, replay in leaves]
    files = [verify_file(found.sampling_test, [replay for _, replay in slot]) for slot in slots]
    evidence = [log_evidence(replay.gaps, replay.deficits, found.sampling_test.tail) for _, replay in leaves]
    return {
        "leaves": len(leaves),
        "tokens": tokens,
        "leaves_rejected_by_proof": sum(verdict is not None for verdict in by_proof),
        "leaves_rejected_by_sampling": sum(verdict is not None for verdict in by_sampling),
        "files": len(files),
        "files_rejected_by_sampling": sum(verdict is not None for verdict in files),
        "mismatches_of_widest_chunk_mean": round(
            sum(widest(judged(*leaf)).mismatches for leaf in leaves) / len(leaves), 2
        ),
        "log_evidence_per_token": round(sum(evidence) / tokens, 4),
    }
