"""What a node can be in a run: worker, validator, trainer, relay."""
