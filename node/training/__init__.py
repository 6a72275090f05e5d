"""The GRPO step: what is consumed, how it becomes a gradient, and what survives a kill.

`batch`, `advantages`, `evaluation` and `hyper` need no torch; import the others only where a model is trained.
"""
