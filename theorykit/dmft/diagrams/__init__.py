"""Orbits of self-attention over parameters and starts: on all cores, with progress, labelled and resumable."""

from .attractors import coexisting_attractors, nearby_windows, random_windows
from .blocks import in_blocks
from .continuation import continuation_diagram
from .orbits import OrbitSettings, describe_exponents, orbit_diagram
from .phases import phase_diagram

__all__ = [
    "OrbitSettings",
    "coexisting_attractors",
    "continuation_diagram",
    "describe_exponents",
    "in_blocks",
    "nearby_windows",
    "orbit_diagram",
    "phase_diagram",
    "random_windows",
]
