"""Rollouts: their bytes, what assigns them, where they are kept."""
