"""Orbits of self-attention over parameters and starts: on all cores, with progress, labelled and resumable."""
