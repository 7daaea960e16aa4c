"""The law of the order parameters in Bartlett coordinates: the derived density, sampled networks, singular widths."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from theorykit import bpkr
from theorykit.bpkr import Attention, Dense, Skip
from theorykit.bpkr.evaluation.formulas import bind
from theorykit.bpkr.order_parameters import from_positive, log_volume, to_order_parameters

from ..cases import CORRELATED, Case, CorrelatedHeads, Pooling, random_key_queries

INPUT_FEATURES = 3
REGULAR = {
    "one head": Case((1,), (7.0, 5.0), (1.0, 0.8, 1.3)),
    "attention": Case((2, 2), (10.0, 8.5, 7.0), (1.0, 0.8, 1.2, 1.3)),
    "as many units as paths": Case((2, 2), (4.0, 2.0, 1.0), (1.0, 0.8, 1.2, 1.3)),
    "dense between": Case((2, Dense(), 2), (9.0, 8.0, 7.0, 6.0), (1.0, 0.8, 1.2, 0.9, 1.3)),
    "skip": Case((Skip(2, 0.7),), (9.0, 9.0), (1.0, 0.8, 1.3)),
    "skip around skip": Case((Skip(1, 0.8), Skip(Dense(), 1.2)), (9.0, 9.0, 9.0), (1.0, 0.8, 1.2, 1.3)),
    "skip after attention": Case((2, Skip(1, 1.2)), (11.0, 8.0, 8.0), (1.0, 0.8, 1.2, 1.3)),
    "two outputs": Case((Skip(Attention(2), 0.9),), (10.0, 10.0), (1.0, 0.8, 1.3), outputs=2),
    "own kinds": Case((CorrelatedHeads(CORRELATED, 2), Pooling(0.8)), (9.0, 8.0, 8.0), (1.0, 1.0, 0.8, 1.3)),
}
SINGULAR = {
    "fewer units than paths": Case((2, 2), (3.0, 2.0, 5.0), (1.0, 0.8, 1.2, 1.3)),
    "singular above": Case((2, 2), (8.0, 1.0, 5.0), (1.0, 0.8, 1.2, 1.3)),
    "one unit everywhere": Case((2, 2), (1.0, 1.0, 1.0), (1.0, 0.8, 1.2, 1.3)),
    "skips": Case((Skip(2, 0.7), Skip(2, 0.5)), (3.0, 3.0, 3.0), (1.0, 0.8, 1.2, 1.3)),
    "more outputs than units": Case((2,), (4.0, 1.0), (1.0, 0.8, 1.3), outputs=2),
    "correlated": Case((CorrelatedHeads(CORRELATED, 2),), (1.0, 3.0), (1.0, 1.0, 1.3)),
}
DRAWS = 20_000


def law_coordinates(architecture, law, coordinates):
    """The law's coordinates of a point given in those of the solver, and the logarithm of the volume between them.

    The solver's factors lack the root of the width, and have logarithms on the diagonal.
    """
    widths = zip(reversed(architecture.widths), law.levels, strict=True)
    roots = np.concatenate([np.full(level.coordinates, np.sqrt(width)) for width, level in widths])
    diagonal = (jnp.exp(coordinates) * roots)[law.diagonal]
    moved = (coordinates * roots).at[law.diagonal].set(from_positive(diagonal))
    # d log B / dt, by which the density is that of the logarithm
    return moved, jnp.sum(jnp.log(diagonal) - jax.nn.log_sigmoid(from_positive(diagonal)))


@pytest.mark.quick("two outputs")
@pytest.mark.parametrize("case", REGULAR.values(), ids=REGULAR)
def test_the_law_has_the_derived_density(case):
    """-2 log p: the entropy and the corrections of the second route, and the volume element, up to a constant."""
    architecture = case.architecture()
    law = bpkr.finite_width_law(architecture)
    bound, differences = bind(architecture), []
    for seed in range(4):
        coordinates = jnp.asarray(0.4 * np.random.default_rng(seed).normal(size=law.dimension))
        point = to_order_parameters(architecture, coordinates)
        own, log_stretch = law_coordinates(architecture, law, coordinates)
        for found, expected in zip(jax.tree.leaves(law.order_parameters(own)), jax.tree.leaves(point), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
        derived = bound(bound.point(point), value=bound.action.entropy + bound.action.corrections)["value"]
        differences.append(law.log_prior(own) + log_stretch + derived / 2 - log_volume(architecture, coordinates))
    assert np.ptp(differences) < 1e-9 * np.max(np.abs(differences))


@pytest.mark.quick("skips")
@pytest.mark.parametrize("case", [*REGULAR.values(), *SINGULAR.values()], ids=[*REGULAR, *SINGULAR])
def test_the_law_is_that_of_sampled_networks(case):
    """Mean and covariance of all order parameters, along random directions, within five standard errors."""
    if any(width != int(width) for width in case.widths):
        pytest.skip("no network has a fraction of a unit")
    architecture = case.architecture()
    law = bpkr.finite_width_law(architecture)
    heads = bpkr.Heads(
        key_query=random_key_queries(tuple(filter(None, case.heads)), np.random.default_rng(0), INPUT_FEATURES)
    )

    def flat(point):
        return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(point)])

    def of_law(key):
        return flat(law.order_parameters(law.sample(key)))

    def of_network(key):
        network = bpkr.sample_network(architecture, heads, input_features=INPUT_FEATURES, key=key)
        return flat(bpkr.empirical_order_parameters(network))

    samples = [
        np.asarray(jax.lax.map(draw, jax.random.split(jax.random.key(seed), DRAWS), batch_size=2000))
        for seed, draw in enumerate((of_law, of_network))
    ]
    directions = np.random.default_rng(2).normal(size=(samples[0].shape[1], 6))
    for statistic in (lambda x: x, lambda x: (x - x.mean(axis=0)) ** 2):
        ours, theirs = (statistic(sample @ directions) for sample in samples)
        error = np.hypot(ours.std(axis=0), theirs.std(axis=0)) / np.sqrt(DRAWS)
        assert np.max(np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) / error) < 5


@pytest.mark.slow
def test_the_density_is_normalised():
    """A grid over both coordinates of a network with one head."""
    law = bpkr.finite_width_law(bpkr.Architecture((1,), (3.0, 2.0), temperature=1.0))
    grid = jnp.linspace(-16.0, 10.0, 1301)
    densities = jax.vmap(lambda a: jax.vmap(lambda b: jnp.exp(law.log_prior(jnp.array([a, b]))))(grid))(grid)
    assert abs(float(jnp.sum(densities)) * float(grid[1] - grid[0]) ** 2 - 1) < 1e-9
