"""Proofs, noise and commitments: pure functions from bytes and arrays to bytes and verdicts."""
