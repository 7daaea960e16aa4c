"""Hypothesis strategies: layers, architectures, data, order parameters and problems of theory 1; actions, and points.

Shapes are few and fixed, for JAX compiles anew for every other one; numbers are any. Arrays are drawn by a seed, which
is what Hypothesis shrinks. Needs Hypothesis: `pip install -e '.[testing]'` in a clone.

    from hypothesis import given
    from theorykit.testing import strategies

    @given(problem=strategies.problems(strategies.architectures(MyLayer(2))))
    def test_the_entropy_is_least_without_data(problem):
        limit = bpkr.gp_limit(problem.architecture)
        least = bpkr.evaluate(problem.architecture, limit, problem.features, problem.labels).entropy
        assert problem.evaluate().entropy > least
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import bpkr
from ..bpkr.specification.architecture import checked_architecture
from ..checks import checked_instance, checked_whole_number
from ..extras import needed
from ..saddle import Action
from .actions.convex import DOMAINS, convex_action
from .actions.points import ActionPoint, random_action_point
from .layers.placement import place
from .problems import EXAMPLES, Problem, random_heads, random_inputs, random_order_parameters, random_problem
from .report import Finding

st = needed("hypothesis.strategies", "theorykit.testing.strategies")
SearchStrategy = st.SearchStrategy

_LAYERS = (
    bpkr.Attention(1),
    bpkr.Attention(2),
    bpkr.Attention(3),
    bpkr.Dense(),
    bpkr.Skip(bpkr.Attention(2), 0.7),
    bpkr.Skip(bpkr.Dense(), 1.3),
)
# layers, widths and outputs
_STRUCTURES = (
    ((3,), (30.0, 20.0), 1),
    ((3, 2), (40.0, 25.0, 30.0), 1),
    ((3, 2), (40.0, 25.0, 30.0), 2),
    ((2, bpkr.Dense(), 2), (30.0, 20.0, 25.0, 40.0), 1),
    ((bpkr.Skip(2, 0.7), 3), (30.0, 30.0, 20.0), 1),
    ((2, bpkr.Skip(bpkr.Dense(), 1.3)), (20.0, 30.0, 30.0), 1),
)


def seeds() -> SearchStrategy[int]:
    """Whole numbers that random number generators start from."""
    return st.integers(0, 2**32 - 1)


def temperatures() -> SearchStrategy[float]:
    """Temperatures from 0.01 to 10."""
    return st.floats(-2, 1).map(lambda exponent: 10.0**exponent)


def layers(*kinds: bpkr.AbstractLayer) -> SearchStrategy[bpkr.AbstractLayer]:
    """Layers of one to three heads, dense ones, skip connections around both, and of `kinds` of your own."""
    return st.sampled_from((*_LAYERS, *(_checked_kind(f"kinds[{i}]", kind) for i, kind in enumerate(kinds))))


def architectures(*kinds: bpkr.AbstractLayer) -> SearchStrategy[bpkr.Architecture]:
    """Architectures of one to three layers, one or two outputs, at any temperature and prior variances.

    Of `kinds` of your own, if any are given: each alone, below attention, and above a dense layer. Raises `ValueError`
    for a kind that is no layer of the theory, with what `check_layer` says of it.
    """
    found = [structure for i, kind in enumerate(kinds) for structure in _structures_with(f"kinds[{i}]", kind)]
    return st.builds(_architecture, st.sampled_from(found or _STRUCTURES), seeds(), temperatures())


def _structures_with(name: str, kind: bpkr.AbstractLayer) -> list[tuple]:
    placements, specified = place(_checked_kind(name, kind))
    if isinstance(specified, Finding):
        raise ValueError(f"{name}: {specified.measured}; likely {specified.meaning}")
    chosen = (placement.architecture for placement in placements)
    return [(architecture.layers, architecture.widths, architecture.outputs) for architecture in chosen]


def _checked_kind(name: str, kind: bpkr.AbstractLayer) -> bpkr.AbstractLayer:
    return checked_instance(name, kind, bpkr.AbstractLayer, "an instance of a kind of layer, such as bpkr.Attention(2)")


def _architecture(structure: tuple, seed: int, temperature: float) -> bpkr.Architecture:
    kinds, widths, outputs = structure
    variances = np.random.default_rng(seed).uniform(0.4, 2.5, size=len(kinds) + 2).tolist()
    return bpkr.Architecture(kinds, widths, variances, temperature=temperature, outputs=outputs)


def problems(
    architecture: bpkr.Architecture | SearchStrategy[bpkr.Architecture] | None = None,
) -> SearchStrategy[Problem]:
    """Problems of one architecture, or of those of a strategy, `architectures()` if it is None; see `Problem`."""
    if architecture is None:
        architecture = architectures()
    elif not isinstance(architecture, SearchStrategy):
        architecture = st.just(checked_architecture(architecture))
    return st.builds(random_problem, architecture, seeds())


def order_parameters(architecture: bpkr.Architecture) -> SearchStrategy[bpkr.OrderParameters]:
    """Random positive definite order parameters of `architecture`, far from any solution."""
    checked_architecture(architecture)
    return _drawn(lambda rng: random_order_parameters(architecture, rng))


def inputs(examples: int = EXAMPLES) -> SearchStrategy[Float[np.ndarray, "examples tokens features"]]:
    """Normal tokens (examples, 4, 6)."""
    examples = checked_whole_number("examples", examples, least=1)
    return _drawn(lambda rng: random_inputs(rng, examples))


def heads(architecture: bpkr.Architecture) -> SearchStrategy[bpkr.AbstractHeads]:
    """Heads with random key-query products, for inputs of 6 features."""
    checked_architecture(architecture)
    return _drawn(lambda rng: random_heads(architecture, rng))


def path_features(
    architecture: bpkr.Architecture, examples: int = EXAMPLES
) -> SearchStrategy[Float[Array, "examples paths features"]]:
    """Path features (examples, paths, 6) of random inputs with random heads."""
    checked_architecture(architecture)
    examples = checked_whole_number("examples", examples, least=1)

    def of(rng: np.random.Generator) -> Array:
        tokens = jnp.asarray(random_inputs(rng, examples))
        return bpkr.path_features(tokens, random_heads(architecture, rng)(tokens), architecture)

    return _drawn(of)


def labels(architecture: bpkr.Architecture, examples: int = EXAMPLES) -> SearchStrategy[Float[np.ndarray, "..."]]:
    """Normal labels (examples,), or (examples, outputs) where `architecture` has several outputs."""
    outputs = checked_architecture(architecture).outputs
    examples = checked_whole_number("examples", examples, least=1)
    return _drawn(lambda rng: rng.normal(size=(examples, outputs) if outputs > 1 else examples))


def actions() -> SearchStrategy[Action]:
    """Actions of one or two order parameters of any domains, each with exactly one minimum at any parameters."""
    one_or_two = st.lists(st.sampled_from(DOMAINS), min_size=1, max_size=2, unique=True)
    return one_or_two.map(lambda domains: convex_action(sorted(domains)))


def action_points(action: Action | SearchStrategy[Action] | None = None) -> SearchStrategy[ActionPoint]:
    """Values of the parameters and order parameters of an action, or of those of a strategy, `actions()` if None."""
    if action is None:
        action = actions()
    elif not isinstance(action, SearchStrategy):
        action = st.just(checked_instance("action", action, Action))
    return st.builds(random_action_point, action, seeds())


def _drawn(make: Callable[[np.random.Generator], object]) -> SearchStrategy:
    """What `make` draws with a generator, by its seed."""
    return seeds().map(lambda seed: make(np.random.default_rng(seed)))
