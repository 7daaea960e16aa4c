"""Layers, each a forward map with a prior on its weights, and the architecture that they form."""
