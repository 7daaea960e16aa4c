"""Data sets of similar size share one compiled function: zeros that are added to them do not change the solution."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from theorykit import bpkr
from theorykit.bpkr.data.transformations import shared_size, with_zeros
from theorykit.bpkr.evaluation import prediction
from theorykit.bpkr.evaluation.energies import energy_of
from theorykit.bpkr.saddle import saddle

from ...marks import slow


@given(st.integers(1, 10**6))
def test_a_size_grows_by_less_than_an_eighth(size):
    shared = shared_size(size)
    assert size <= shared < max(size * 1.125, size + 1)
    assert shared_size(shared) == shared


def test_there_are_eight_sizes_per_doubling():
    assert sorted({shared_size(size) for size in range(1, 65)}) == [*range(1, 17), *range(18, 33, 2), *range(36, 65, 4)]


def problem(examples: int, features: int, temperature: float = 0.1, outputs: int = 1) -> bpkr.Problem:
    rng = np.random.default_rng(examples)
    labels = rng.normal(size=(examples, outputs))
    data = bpkr.Data(rng.normal(size=(examples, 4, features)), labels if outputs > 1 else labels[:, 0])
    return bpkr.Problem(bpkr.Architecture((2, 2), 10.0, temperature=temperature, outputs=outputs), data)


@pytest.mark.slow
@pytest.mark.parametrize(("features", "outputs"), [(17, 1), (2, 1), (17, 2)], ids=["kernel", "dual", "outputs"])
def test_zeros_do_not_change_energy_and_curvature(features, outputs):
    here = problem(17, features, outputs=outputs)
    data = with_zeros(here.data.features, here.data.labels)
    assert data.features.shape[0] == 18 and data.features.shape[2] > features - 1
    u1 = bpkr.gp_limit(here.architecture).first * 1.3
    plain, padded = (energy_of(here.bound, each, by_kernel=True) for each in (here.data.training, data))
    expected, found = plain.at(u1), padded.at(u1)
    np.testing.assert_allclose(found.value, expected.value, rtol=1e-13)
    # Both parts of the slope, and terms of the curvature, are of the size of the features over T, and cancel.
    scale = float(np.max(np.abs(here.data.features))) ** 2 * len(here.data.labels) / 0.1
    np.testing.assert_allclose(found.slope, expected.slope, atol=1e-13 * scale)
    np.testing.assert_allclose(padded.curvature(found), plain.curvature(expected), atol=1e-13 * scale**2)
    assert padded.label_count == plain.label_count == 17 * outputs


@pytest.mark.quick("kernel")
@pytest.mark.parametrize("features", [17, 2], ids=["kernel", "dual"])
def test_solutions_are_those_of_the_data(features):
    here = problem(17, features)
    found = bpkr.solve(here)
    exact = saddle._minimise(
        here.bound,
        here.data.training,
        saddle.gp_coordinates(here.architecture),
        bpkr.Newton(),
        np.asarray(1e-9),
        {"max_steps": None, "options": {saddle.MAX_STEPS: np.asarray(100)}},
    )
    assert found.converged and exact.converged
    assert abs(found.action - exact.action) <= found.action_error + exact.action_error
    assert abs(found.log_evidence - exact.log_evidence) <= found.action_error + exact.action_error
    for one, other in zip(
        jax.tree.leaves(found.order_parameters), jax.tree.leaves(exact.order_parameters), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-8)


def test_similar_sizes_share_a_program():
    bpkr.solve(problem(17, 17))
    before = dict(saddle._minimise.programs.programs)
    bpkr.solve(problem(18, 18))
    assert saddle._minimise.programs.programs == before
    bpkr.solve(problem(19, 17))
    assert len(saddle._minimise.programs.programs) == len(before) + 1


@pytest.mark.slow
def test_nothing_is_added_at_zero_temperature():
    here = problem(17, 17, temperature=0.0)
    assert saddle._in_shared_sizes(here).features.shape == (17, 4, 17)
    assert bpkr.solve(here).converged


@pytest.mark.parametrize("outputs", [1, *slow([2])])
def test_predictions_are_those_of_the_data(outputs):
    here, test = problem(17, 17, outputs=outputs), np.random.default_rng(1).normal(size=(5, 4, 17))
    point = bpkr.gp_limit(here.architecture)
    found = bpkr.predict(here, point, test)
    exact = prediction.prediction_at(here.bound, point, here.data.features, here.data.labels, test)
    for one, other in ((found.mean, exact.mean), (found.variance, exact.variance)):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)


@pytest.mark.slow
def test_solutions_and_predictions_of_constants_within_a_traced_function():
    here, test = problem(17, 17), np.random.default_rng(1).normal(size=(5, 4, 17))
    point = bpkr.gp_limit(here.architecture)

    @jax.jit
    def scaled(factor):
        return factor * bpkr.predict(here, point, test).mean, factor * bpkr.solve(here).action

    mean, action = scaled(2.0)
    np.testing.assert_allclose(mean, 2 * bpkr.predict(here, point, test).mean, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(action, 2 * bpkr.solve(here).action, rtol=1e-10)
