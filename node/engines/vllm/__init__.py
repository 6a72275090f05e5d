"""The engine over vLLM: a process of its own that samples from the run's noise and proves what it sampled."""
