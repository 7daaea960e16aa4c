"""What the public strategies draw fits."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import MatrixSymbol, Trace, log, symbols

from theorykit import bpkr, saddle
from theorykit.bpkr.order_parameters import checked_order_parameters
from theorykit.testing import strategies

from ..bpkr.cases import TiedHeads

NETWORK = bpkr.Architecture((TiedHeads(2), 2), 6.0, temperature=0.3, outputs=2)


@settings(max_examples=2)
@given(problem=strategies.problems(NETWORK), point=strategies.order_parameters(NETWORK))
def test_problems_and_order_parameters_fit_their_architecture(problem, point):
    checked_order_parameters(NETWORK, point)
    assert np.isfinite(bpkr.evaluate(problem, point).total)


@settings(max_examples=10)
@given(data=st.data())
def test_values_of_an_action_are_in_its_domains(data):
    q, x = symbols("q", positive=True), MatrixSymbol("x", symbols("n", integer=True), 1)
    action = saddle.Action(q - log(q) + Trace(x.T * x), {q: saddle.Positive()}, [x])
    values = data.draw(strategies.values(action))
    assert values["q"] > 0 and values["x"].shape == (values["n"], 1)
    assert np.isfinite(action({name: values[name] for name in ("q", "x")}))
