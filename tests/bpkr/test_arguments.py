"""What may stand for what: saddle points for order parameters, large architectures, scores beyond double precision."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest

from theorykit import bpkr

from .cases import Case, assert_close, random_problem, refused

PAIR = Case((2, 2), (8.0, 8.0, 8.0), (1.0, 1.0, 1.0, 1.0))
PROBLEM = random_problem(PAIR, 0)
ARCHITECTURE, FEATURES, LABELS = PROBLEM.architecture, PROBLEM.features, PROBLEM.labels
DATA = (FEATURES, LABELS)
KEY = jax.random.key(0)
FEW = bpkr.MatrixFree(jax.random.key(0), repeats=3, progress=False)

TAKERS = {
    "evaluate": lambda point: bpkr.evaluate(bpkr.Problem(ARCHITECTURE, bpkr.Data(*DATA)), point),
    "gradient_norm": lambda point: bpkr.gradient_norm(bpkr.Problem(ARCHITECTURE, bpkr.Data(*DATA)), point),
    "head_scores": lambda point: bpkr.head_scores(ARCHITECTURE, point),
    "kernel": lambda point: bpkr.kernel(bpkr.Problem(ARCHITECTURE, bpkr.Data(FEATURES)), point),
    "predict": lambda point: bpkr.predict(bpkr.Problem(ARCHITECTURE, bpkr.Data(*DATA)), point, FEATURES),
}
SLOW_TAKERS = {
    "solve": lambda point: bpkr.solve(ARCHITECTURE, bpkr.Data(*DATA), initial=point).order_parameters,
    "predict from moments": lambda point: bpkr.predict(
        bpkr.Problem(ARCHITECTURE, bpkr.Data.of_arrays(*DATA, progress=False)), point, FEATURES
    ),
    "fluctuations": lambda point: bpkr.fluctuations(bpkr.Problem(ARCHITECTURE, bpkr.Data(*DATA)), point),
    "estimate_energy": lambda point: (
        bpkr.estimate_energy(bpkr.Problem(ARCHITECTURE, bpkr.Data(*DATA)), point, bpkr.MatrixFree(KEY)).value
    ),
    "matrix-free": lambda point: bpkr.solve(ARCHITECTURE, bpkr.Data(*DATA), initial=point, solver=FEW).order_parameters,
}


NUMBER = jnp.zeros(())
SADDLE = bpkr.Saddle(PROBLEM.order_parameters, *[NUMBER] * 7, optx.RESULTS.successful, {})


def assert_same(found, expected):
    for left, right in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("taker", TAKERS)
def test_a_saddle_may_stand_for_its_order_parameters(taker):
    assert_same(TAKERS[taker](SADDLE), TAKERS[taker](SADDLE.order_parameters))


@pytest.mark.slow
@pytest.mark.parametrize("taker", SLOW_TAKERS)
def test_a_saddle_may_stand_for_its_order_parameters_anywhere(taker):
    assert_same(SLOW_TAKERS[taker](SADDLE), SLOW_TAKERS[taker](SADDLE.order_parameters))


@pytest.mark.parametrize("taker", TAKERS)
def test_a_saddle_of_another_architecture_is_refused(taker):
    wider = bpkr.Architecture((3, 2), 8.0, temperature=0.1)
    other = eqx.tree_at(lambda s: s.order_parameters, SADDLE, bpkr.gp_limit(wider))
    with refused("U_1 must have shape (4, 4), got (6, 6)"):
        TAKERS[taker](other)


def test_scores_beyond_double_precision_are_refused_and_all_others_make_attention():
    inputs, key_query = np.random.default_rng(0).normal(size=(3, 4, 5)), [np.ones((2, 5, 5))]
    with refused("inputs of magnitude") as refusal:
        bpkr.attention(inputs * 1e200, key_query=key_query)
    assert "beyond the range of double precision" in str(refusal.value)
    for scale in (1e-300, 1.0, 1e100, 1e150):
        (attention,) = bpkr.attention(inputs * scale, key_query=key_query)
        assert_close(jnp.sum(attention, axis=2), np.ones((3, 2, 4)), 1e-12)
    network = bpkr.sample_network(PAIR.architecture(), bpkr.heads(key_query=key_query * 2), input_features=5, key=KEY)
    with refused("inputs of magnitude"):
        network(jnp.asarray(inputs * 1e200))


def test_an_architecture_of_very_many_heads_is_refused_where_its_order_parameters_would_be_made():
    for heads, paths in (((10**6,), "1,000,000 paths"), ((1000, 1000), "1,000,000 paths"), ((10**15,), "000 paths")):
        architecture = bpkr.Architecture(heads, 8.0, temperature=0.1)
        with refused(paths) as refusal:
            bpkr.gp_limit(architecture)
        assert "bytes" in str(refusal.value)
        with refused("too large"):
            bpkr.evaluate(
                bpkr.Problem(architecture, bpkr.Data(np.ones((2, architecture.paths, 1)), np.ones(2))),
                PROBLEM.order_parameters,
            ) if (architecture.paths < 10**7) else architecture.path_branches()
