"""Hypothesis strategies for problems of theory 1, and for actions.

Shapes are fixed, because JAX recompiles for every new shape.
Install Hypothesis with `pip install -e '.[testing]'` in a clone.
"""

from __future__ import annotations

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
