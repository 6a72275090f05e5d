"""Everything that a running node does."""
