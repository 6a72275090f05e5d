"""Weights on the move: manifests, the store of verified chunks, serving them, fetching them from strangers."""
