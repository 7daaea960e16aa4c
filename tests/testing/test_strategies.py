"""What the public strategies draw fits, whatever is drawn, and has few shapes."""

import numpy as np
import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from theorykit import bpkr, testing
from theorykit.bpkr.order_parameters.order_parameters import checked_order_parameters
from theorykit.testing import strategies

from ..bpkr.cases import TiedHeads, assert_close
from .layers import stated

OWN = TiedHeads(2)


@settings(max_examples=4)
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
    checked_order_parameters(architecture, data.draw(strategies.order_parameters(architecture)))
    features, labels = data.draw(strategies.path_features(architecture)), data.draw(strategies.labels(architecture))
    assert features.shape == (len(labels), architecture.paths, 6)
    assert labels.shape[1:] == ((architecture.outputs,) if architecture.outputs > 1 else ())
    inputs, heads = data.draw(strategies.inputs(3)), data.draw(strategies.heads(architecture))
    assert inputs.shape == (3, 4, 6)
    assert heads.counts == tuple(heads for heads in architecture.heads if heads)


@settings(max_examples=50)
@given(layer=strategies.layers(OWN), seed=strategies.seeds())
def test_any_layer_can_stand_in_an_architecture(layer, seed):
    architecture = bpkr.Architecture((layer,), 6, temperature=0.1)
    matrix = testing.random_order_parameters(architecture, np.random.default_rng(seed)).matrices[0]
    assert len(matrix) == architecture.paths


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
