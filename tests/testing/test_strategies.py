"""What the public strategies draw fits, whatever is drawn, and has few shapes."""

import numpy as np
import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from sympy import log, symbols

from theorykit import bpkr, saddle, testing
from theorykit.bpkr.order_parameters.order_parameters import checked_order_parameters
from theorykit.testing import strategies

from ..bpkr.cases import TiedHeads, assert_close
from .layers import stated

OWN = TiedHeads(2)


@settings(max_examples=2)
@given(problem=strategies.problems())
def test_problems_fit_their_architecture(problem):
    assert np.isfinite(problem.evaluate().total)
    assert problem.predict().mean.shape == (len(problem.test_features), *problem.labels.shape[1:])
    again = testing.random_problem(problem.architecture, problem.seed)
    np.testing.assert_array_equal(again.features, problem.features)
    assert f"seed={problem.seed}" in repr(problem)


@settings(max_examples=30)
@given(architecture=strategies.architectures(OWN))
def test_architectures_of_a_kind_have_it(architecture):
    assert OWN in architecture.layers
    assert 0.01 <= architecture.temperature <= 10


@settings(max_examples=4)
@given(data=st.data())
def test_everything_that_is_drawn_of_an_architecture_fits_it(data):
    architecture = data.draw(strategies.architectures())
    drawn = strategies.drawn(lambda rng: testing.random_order_parameters(architecture, rng))
    checked_order_parameters(architecture, data.draw(drawn))
    assert data.draw(strategies.drawn(testing.random_inputs)).shape == (5, 4, 6)
    heads = data.draw(strategies.drawn(lambda rng: testing.random_heads(architecture, rng)))
    assert heads.counts == tuple(heads for heads in architecture.heads if heads)


@settings(max_examples=50)
@given(layer=strategies.layers(OWN), seed=strategies.seeds())
def test_any_layer_can_stand_in_an_architecture(layer, seed):
    architecture = bpkr.Architecture((layer,), 6, temperature=0.1)
    matrix = testing.random_order_parameters(architecture, np.random.default_rng(seed)).matrices[0]
    assert len(matrix) == architecture.paths


@pytest.mark.slow
def test_few_shapes_are_drawn_and_any_temperature():
    seen = set()
    find(strategies.architectures(), lambda architecture: seen.add(architecture.widths) or len(seen) > 4)
    assert len(seen) == 5
    assert_close(find(strategies.temperatures(), lambda temperature: temperature < 0.02), 0.01, 1)
    assert find(strategies.layers(OWN), lambda layer: layer == OWN) == OWN


def test_a_kind_that_is_no_layer_of_the_theory_is_refused_with_the_reason():
    bad = stated(lambda layer: layer.weights(1) * layer.hidden * layer.hidden.T * layer.hidden)
    with pytest.raises(ValueError, match=r"kinds\[0\]: ValueError: .* likely attention or a gate that is computed"):
        strategies.architectures(bad)


@pytest.mark.slow
@settings(max_examples=6)
@given(point=strategies.action_points())
def test_actions_have_one_minimum_and_what_runs_is_what_is_written(point):
    terms = point.terms()
    assert_close(np.asarray(point.bound.terms(point.coordinates)), terms, 1e-12)
    parameters = {name: point.values[name] for name in (symbol.name for symbol in point.action.parameters)}
    solution = saddle.minimise(point.action, parameters, initial=point.order_parameters)
    assert solution.converged, solution.diagnosis
    assert float(solution.action) <= np.sum(terms) + 1e-12


def test_points_of_an_action_of_ones_own_are_in_its_domains():
    q = symbols("q", positive=True)
    action = saddle.Action(q - log(q), {q: saddle.Positive()})
    point = find(strategies.action_points(action), lambda point: True)
    assert point.order_parameters["q"] > 0
    assert point.place == f"q = {point.order_parameters['q']:.3g}"
