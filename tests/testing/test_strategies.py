"""What the public strategies draw fits, and has few shapes."""

import numpy as np
import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from sympy import MatrixSymbol, Trace, log, symbols

from theorykit import bpkr, saddle
from theorykit.bpkr.order_parameters import checked_order_parameters
from theorykit.testing import strategies

from ..bpkr.cases import TiedHeads
from .layers import stated

OWN = TiedHeads(2)


@settings(max_examples=2)
@given(data=st.data())
def test_problems_and_order_parameters_fit_their_architecture(data):
    architecture = data.draw(strategies.architectures())
    problem = data.draw(strategies.problems(architecture))
    point = data.draw(strategies.order_parameters(architecture))
    checked_order_parameters(architecture, point)
    assert np.isfinite(bpkr.evaluate(problem, point).total)


@settings(max_examples=30)
@given(architecture=strategies.architectures(OWN))
def test_architectures_of_a_kind_have_it(architecture):
    assert OWN in architecture.layers
    assert 0.01 <= architecture.temperature <= 10


@pytest.mark.slow
def test_few_shapes_are_drawn():
    seen = set()
    find(strategies.architectures(), lambda architecture: seen.add(architecture.widths) or len(seen) > 4)
    assert len(seen) == 5


def test_a_kind_that_is_no_layer_of_the_theory_is_refused_with_the_reason():
    bad = stated(lambda layer: layer.weights(1) * layer.hidden * layer.hidden.T * layer.hidden)
    with pytest.raises(ValueError, match="attention on hidden activations"):
        find(strategies.architectures(bad), lambda architecture: True)


@settings(max_examples=10)
@given(data=st.data())
def test_values_of_an_action_are_in_its_domains(data):
    q, x = symbols("q", positive=True), MatrixSymbol("x", symbols("n", integer=True), 1)
    action = saddle.Action(q - log(q) + Trace(x.T * x), {q: saddle.Positive()}, [x])
    values = data.draw(strategies.values(action))
    assert values["q"] > 0 and values["x"].shape == (values["n"], 1)
    assert np.isfinite(action({name: values[name] for name in ("q", "x")}))
