"""Model folders: where they come from, whether they are whole, and the digests a run's specification names."""
