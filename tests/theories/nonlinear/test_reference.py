"""All cases of the published program: action, order parameters, predictor; min-max points from random starts."""

import numpy as np
import pytest

from tests.marks import slow
from theorykit import bpkr, saddle
from theorykit.saddle.bound_action import bind, initial_coordinates
from theorykit.theories import nested_kernels, units_with_mean

from ...bpkr.cases import assert_close
from .reference import CASES, INDEPENDENT, architecture_of, arrays, features, names, precisions

VANILLA = [*names("FC_1HL"), *names("FC_deep_vanilla"), *names("CONV_1HL")]


def order_parameters(name):
    """(U_1, ..., U_{L+1}) of the program's Q: each is the product of those from its layer on, over the precisions."""
    found = arrays(name)["Q"]
    if CASES[name]["cls"] == "CONV_1HL":
        return bpkr.OrderParameters((), found / CASES[name]["l1"])
    scaled = np.cumprod((np.atleast_1d(found) / precisions(name))[::-1])[::-1]
    return bpkr.OrderParameters(tuple(np.reshape(u, (1, 1)) for u in scaled[:-1]), scaled[-1])


def constant(name):
    """By how much our action exceeds the program's per width: it has log Q where we have log U."""
    rows = len(arrays(name)["Q"]) if CASES[name]["cls"] == "CONV_1HL" else 1
    return rows * np.sum(np.log(precisions(name)))


def diagonal(variance):
    return np.diag(variance) if variance.ndim == 2 else variance


@pytest.mark.quick("s1", "s2")
@pytest.mark.parametrize("name", VANILLA)
def test_action_order_parameters_and_predictor_are_those_of_the_program(name):
    architecture, data, labels = architecture_of(name), features(name), arrays(name)["y"]
    point, width = order_parameters(name), architecture.widths[0]
    found = bpkr.solve(architecture, bpkr.Data(data, labels))
    assert found.converged, found.diagnosis
    for ours, theirs in zip(
        (*found.order_parameters.matrices, found.order_parameters.readout),
        (*point.matrices, point.readout),
        strict=True,
    ):
        assert_close(ours, theirs, 1e-6)
    test = features(name, "Xt")
    for at, tolerance in ((point, 1e-6), (found, 1e-5)):
        prediction = bpkr.predict(bpkr.Problem(architecture, bpkr.Data(data, labels)), at, test)
        assert_close(prediction.mean, arrays(name)["mean"], tolerance)
        assert_close(prediction.variance, diagonal(arrays(name)["var"]), tolerance)
    total = float(bpkr.evaluate(bpkr.Problem(architecture, bpkr.Data(data, labels)), point).total) / width
    # the program takes the relu's kernel at a cosine of at most 1 - 1e-8: its diagonal is off by 4e-9
    assert_close(total - constant(name), arrays(name)["action"], 1e-8 if CASES[name]["act"] == "relu" else 1e-10)


@pytest.mark.parametrize("name", [name for name in CASES if "K" in arrays(name)])
def test_the_kernel_of_the_test_examples_is_that_of_the_program(name):
    architecture = architecture_of(name)
    unit = bpkr.OrderParameters((), 1.0)
    problem = bpkr.Problem(architecture, bpkr.Data(features(name, "Xt")))
    assert_close(bpkr.kernel(problem, unit, features(name)), arrays(name)["K0X"], 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", names("FC_1HL_nonodd"))
def test_with_mean_it_is_a_min_max_point_whatever_the_start(name):
    architecture, data, labels = architecture_of(name), features(name), arrays(name)["y"]
    problem = bpkr.Problem(architecture, bpkr.Data(data, labels))
    action, found = units_with_mean.action(architecture), units_with_mean.solve(problem)
    assert found.converged and found.index == 1
    u1, v1 = (float(found[symbol][0, 0]) * CASES[name]["l1"] for symbol in action.order_parameters)
    assert_close([u1, 1 / v1 - 1], arrays(name)["Q"], 1e-6)
    test = features(name, "Xt")
    theirs = arrays(name)["Q"][0], 1 / (1 + arrays(name)["Q"][1])
    at_theirs = {symbol: np.full((1, 1), q) for symbol, q in zip(action.order_parameters, theirs, strict=True)}
    for at, tolerance in ((at_theirs, 1e-6), (found, 1e-5)):
        prediction = units_with_mean.predict(problem, at, test)
        assert_close(prediction.mean, arrays(name)["mean"], tolerance)
        assert_close(prediction.variance, arrays(name)["var"], tolerance)
    ends = saddle.search(action, units_with_mean.values(problem), index=1, starts=20)
    assert [int(end.stats["reached"]) for end in ends] == [20]
    assert_close(ends[0].action, found.action, 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*names("FC_deep_nested")[:1], *slow(names("FC_deep_nested")[1:])])
def test_nested_order_parameters_and_predictor_are_those_of_the_program(name):
    architecture, data, labels = architecture_of(name), features(name), arrays(name)["y"]
    if architecture.is_linear:
        found = bpkr.solve(architecture, bpkr.Data(data, labels))
        overlaps = [*(matrix[0, 0] for matrix in found.order_parameters.matrices), found.order_parameters.readout]
        ratios = np.array(overlaps) / np.array([*overlaps[1:], 1.0]) * precisions(name)
        assert_close(ratios, arrays(name)["Q"], 1e-6)
        return
    problem = bpkr.Problem(architecture, bpkr.Data(data, labels))
    found = nested_kernels.solve(problem)
    assert found.converged and found.index == 0
    ours = np.array([float(value) for value in found.order_parameters.values()])
    assert_close(ours, INDEPENDENT[name], 1e-6)
    test = features(name, "Xt")
    theirs = dict(zip(found.of.order_parameters, arrays(name)["Q"], strict=True))
    for at, tolerance in ((theirs, 1e-6), (found, 1e-5)):
        prediction = nested_kernels.predict(problem, at, test)
        assert_close(prediction.mean, arrays(name)["mean"], tolerance)
        assert_close(prediction.variance, arrays(name)["var"], tolerance)
    at_theirs = bind(found.of, nested_kernels.values(problem), theirs)
    total = at_theirs.action(initial_coordinates(at_theirs, theirs))
    assert_close(float(total) / architecture.widths[0], arrays(name)["action"], 1e-10)
