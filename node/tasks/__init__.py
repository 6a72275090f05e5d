"""Environments: prompts and rewards."""
