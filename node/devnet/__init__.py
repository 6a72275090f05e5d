"""The whole network on one machine: a local chain, every role as a process of its own, and an observer."""
