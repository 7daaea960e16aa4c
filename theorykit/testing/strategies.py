"""Hypothesis strategies for layers, architectures and problems of theory 1, and for actions with their points.

There are few, fixed shapes, because JAX recompiles for every new shape. Numbers are arbitrary. Install Hypothesis with
`pip install -e '.[testing]'` in a clone.

    from hypothesis import given
    from theorykit.testing import strategies

    @given(problem=strategies.problems(strategies.architectures(MyLayer(2))))
    def test_the_entropy_is_least_without_data(problem):
        limit = bpkr.gp_limit(problem.architecture)
        data = bpkr.Data(problem.features, problem.labels)
        least = bpkr.evaluate(bpkr.Problem(problem.architecture, data), limit).entropy
        assert problem.evaluate().entropy > least
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sympy import Add, Trace, cosh, log, symbols

from .. import bpkr
from ..bpkr.specification.architecture import checked_architecture
from ..checks import checked_arguments, checked_instance
from ..extras import needed
from ..saddle import Action, Between, Positive, PositiveDefinite, Real, Symmetric
from ..symbolic import log_det, positive_definite, symmetric
from .actions.points import ActionPoint, random_action_point
from .layers.placement import place
from .problems import Problem, random_problem

st = needed("hypothesis.strategies", "theorykit.testing.strategies")
SearchStrategy = st.SearchStrategy

_ATTENTION = (bpkr.Attention(1), bpkr.Attention(2), bpkr.Attention(3))
_LAYERS = (*_ATTENTION, bpkr.Dense(), bpkr.Skip(bpkr.Attention(2), 0.7), bpkr.Skip(bpkr.Dense(), 1.3))
# Layers, widths and number of outputs.
_STRUCTURES = (
    ((3,), (30.0, 20.0), 1),
    ((3, 2), (40.0, 25.0, 30.0), 1),
    ((3, 2), (40.0, 25.0, 30.0), 2),
    ((2, bpkr.Dense(), 2), (30.0, 20.0, 25.0, 40.0), 1),
    ((bpkr.Skip(2, 0.7), 3), (30.0, 30.0, 20.0), 1),
    ((2, bpkr.Skip(bpkr.Dense(), 1.3)), (20.0, 30.0, 30.0), 1),
)


_x, _b, _s, _a, _q = symbols("x b s a q", real=True)
_Q, _J = symmetric("Q", 3), symmetric("J", 3)
_U, _K = positive_definite("U", 3), positive_definite("K", 3)
_weight = symbols("weight", positive=True)
# An order parameter, its domain, its parameter, and an action that is convex in the coordinates of the domain.
_CONVEX = (
    (_q, Between(0, 1), _a, -log(_q) - log(1 - _q) + _a * _q),
    (_s, Positive(), _weight, _weight * _s - log(_s)),
    (_U, PositiveDefinite(), _K, Trace(_K * _U) - log_det(_U)),
    (_x, Real(), _b, _x**2 / 2 + log(cosh(_x)) - _b * _x),
    (_Q, Symmetric(), _J, Trace(_Q * _Q) / 2 - Trace(_J * _Q)),
)


def seeds() -> SearchStrategy[int]:
    """Generate whole numbers as seeds of random number generators."""
    return st.integers(0, 2**32 - 1)


@checked_arguments
def drawn(make: Callable[[np.random.Generator], Any]) -> SearchStrategy[Any]:
    """Generate the results of `make`, which draws random numbers with a generator. Hypothesis shrinks its seed.

    Examples are `drawn(testing.random_inputs)`, or `drawn(lambda rng: testing.random_heads(architecture, rng))`.
    """
    return seeds().map(lambda seed: make(np.random.default_rng(seed)))


def temperatures() -> SearchStrategy[float]:
    """Generate temperatures from 0.01 to 10."""
    return st.floats(-2, 1).map(lambda exponent: 10.0**exponent)


@checked_arguments
def layers(*kinds: bpkr.AbstractLayer) -> SearchStrategy[bpkr.AbstractLayer]:
    """Generate attention layers with one to three heads, dense layers, skip connections around both, and `kinds`."""
    return st.sampled_from((*_LAYERS, *kinds))


@checked_arguments
def architectures(*kinds: bpkr.AbstractLayer) -> SearchStrategy[bpkr.Architecture]:
    """Generate architectures of one to three layers, one or two outputs, any temperature and prior variances.

    Each of your `kinds` appears alone, below attention, and above a dense layer.

    Raises:
        ValueError: a kind is not a layer of the theory. The message contains the finding of `check_layer`.
    """
    structures = []
    for i, kind in enumerate(kinds):
        placements, specified = place(kind)
        if not specified.holds:
            raise ValueError(f"kinds[{i}]: {specified.measured}; likely {specified.meaning}")
        chosen = (placement.architecture for placement in placements)
        structures += [(architecture.layers, architecture.widths, architecture.outputs) for architecture in chosen]

    def architecture(structure: tuple, seed: int, temperature: float) -> bpkr.Architecture:
        layers, widths, outputs = structure
        variances = np.random.default_rng(seed).uniform(0.4, 2.5, size=len(layers) + 2).tolist()
        return bpkr.Architecture(layers, widths, variances, temperature=temperature, outputs=outputs)

    return st.builds(architecture, st.sampled_from(structures or _STRUCTURES), seeds(), temperatures())


def problems(
    architecture: bpkr.Architecture | SearchStrategy[bpkr.Architecture] | None = None,
) -> SearchStrategy[Problem]:
    """Generate a `Problem` of an architecture or of a strategy of architectures. The default is `architectures()`."""
    if architecture is None:
        architecture = architectures()
    elif not isinstance(architecture, SearchStrategy):
        architecture = st.just(checked_architecture(architecture))
    return st.builds(random_problem, architecture, seeds())


def actions() -> SearchStrategy[Action]:
    """Generate actions with exactly one minimum, and one or two order parameters with any domains."""

    def action(pieces: list[int]) -> Action:
        chosen = [_CONVEX[piece] for piece in sorted(pieces)]
        order_parameters = {symbol: domain for symbol, domain, *_ in chosen}
        return Action(Add(*(convex for *_, convex in chosen)), order_parameters, [each for _, _, each, _ in chosen])

    return st.lists(st.sampled_from(range(len(_CONVEX))), min_size=1, max_size=2, unique=True).map(action)


def action_points(action: Action | SearchStrategy[Action] | None = None) -> SearchStrategy[ActionPoint]:
    """Generate an `ActionPoint` of an action or of a strategy of actions. The default is `actions()`."""
    if action is None:
        action = actions()
    elif not isinstance(action, SearchStrategy):
        action = st.just(checked_instance("action", action, Action))
    return st.builds(random_action_point, action, seeds())
