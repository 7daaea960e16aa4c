"""Symbolic stage: from the generating functional of the spins to a deterministic map and its responses."""
