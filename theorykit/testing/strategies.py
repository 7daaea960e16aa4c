"""Hypothesis strategies for problems of theory 1, and for actions.

There are few, fixed shapes, because JAX recompiles for every new shape.
"""

from typing import Any

import numpy as np

from .. import bpkr
from .._compat import needed
from ..bpkr.order_parameters import from_order_parameters, to_order_parameters
from ..checks import checked_instance
from ..saddle import Action
from .actions import random_values

st = needed("hypothesis.strategies", "theorykit.testing.strategies")
_SEEDS = st.integers(0, 2**32 - 1)
_TEMPERATURES = st.floats(-2, 1).map(lambda exponent: 10.0**exponent)
# Layers, widths and number of outputs.
_STRUCTURES = (
    ((3,), (30.0, 20.0), 1),
    ((3, 2), (40.0, 25.0, 30.0), 1),
    ((3, 2), (40.0, 25.0, 30.0), 2),
    ((2, bpkr.Dense(), 2), (30.0, 20.0, 25.0, 40.0), 1),
    ((bpkr.Skip(2, 0.7), 3), (30.0, 30.0, 20.0), 1),
    ((2, bpkr.Skip(bpkr.Dense(), 1.3)), (20.0, 30.0, 30.0), 1),
)


def architectures(*kinds: bpkr.AbstractLayer) -> st.SearchStrategy[bpkr.Architecture]:
    """Generate architectures, with your `kinds` of layers if there are any."""
    structures = [((kind,), (6.0, 6.0), 1) for kind in kinds]
    structures += [((kind, bpkr.Attention(2)), (6.0, 6.0, 7.0), 2) for kind in kinds]
    structures += [((bpkr.Dense(), kind), (5.0, 6.0, 6.0), 1) for kind in kinds]

    def architecture(structure: tuple, seed: int, temperature: float) -> bpkr.Architecture:
        layers, widths, outputs = structure
        variances = np.random.default_rng(seed).uniform(0.4, 2.5, len(layers) + 2).tolist()
        return bpkr.Architecture(layers, widths, variances, temperature=temperature, outputs=outputs)

    chosen = st.sampled_from(structures or _STRUCTURES)
    return st.builds(architecture, chosen, _SEEDS, _TEMPERATURES)


def problems(architecture: bpkr.Architecture) -> st.SearchStrategy[bpkr.Problem]:
    """Generate problems of an architecture with 5 examples."""
    checked_instance("architecture", architecture, bpkr.Architecture)

    def problem(seed: int) -> bpkr.Problem:
        rng, outputs = np.random.default_rng(seed), architecture.outputs
        features = rng.normal(size=(5, architecture.paths, 6))
        labels = rng.normal(size=(5, outputs) if outputs > 1 else 5)
        return bpkr.Problem(architecture, bpkr.Data(features / 6, labels))

    return _SEEDS.map(problem)


def order_parameters(architecture: bpkr.Architecture) -> st.SearchStrategy[bpkr.OrderParameters]:
    """Generate order parameters around the limit of infinite width."""
    origin = from_order_parameters(architecture, bpkr.gp_limit(architecture))

    def point(seed: int) -> bpkr.OrderParameters:
        step = np.random.default_rng(seed).normal(size=origin.shape)
        return to_order_parameters(architecture, origin + step / 2)

    return _SEEDS.map(point)


def values(action: Action) -> st.SearchStrategy[dict[str, Any]]:
    """Generate values of all symbols of an action, in its domains, by name."""
    return _SEEDS.map(lambda seed: random_values(action, np.random.default_rng(seed), 1)[0])
