"""Bytes that a rollout takes on the wire, for each of its output tokens."""

from __future__ import annotations

from collections.abc import Sequence

from node.rollouts.file import encode_file
from node.rollouts.rollout import Rollout


def bytes_per_token(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Of the proofs alone, and of the whole file: prompt, tokens, log-probabilities, proofs, heads."""
    tokens = sum(len(rollout.output_ids) for rollout in rollouts)
    proofs = sum(len(proof) for rollout in rollouts for proof in rollout.proofs)
    return {"proofs": proofs / tokens, "file": len(encode_file(rollouts)) / tokens}
