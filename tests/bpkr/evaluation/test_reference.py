"""Against numbers that the paper's published program produced: random architectures, and the hidden-Markov task."""

import functools

import jax
import jax.numpy as jnp
import optimistix as optx
import pytest

from theorykit import bpkr
from theorykit.bpkr.evaluation.formulas import bind

from ..cases import assert_close
from ..problems import action_terms
from ..reference import CASES, architecture_of, arrays, order_parameters_of, path_features, stored_features

WIDTHS = (10, 30, 50, 100, 300, 500, 1000)

every_case = pytest.mark.parametrize("name", CASES)


@every_case
def test_path_features(name):
    assert_close(path_features(name, "x"), stored_features(name), 1e-9)


@every_case
def test_eliminated_readout(name):
    assert_close(order_parameters_of(name).readout, arrays(name)["scalar_readout_order_parameter"], 1e-9)


def problem_of(name):
    return bpkr.Problem(architecture_of(name), bpkr.Data(stored_features(name), arrays(name)["y"]))


@every_case
def test_energy_and_entropy(name):
    terms = bpkr.evaluate(problem_of(name), order_parameters_of(name))
    largest = max(CASES[name]["widths"])
    assert_close(terms.energy / largest, arrays(name)["energy_per_maxwidth"], 1e-9)
    assert_close(terms.entropy / largest, arrays(name)["entropy_per_maxwidth"], 1e-9)


@every_case
def test_gradients_with_the_readout_eliminated(name):
    """At the eliminated readout the action is stationary in it, so that the gradients are the partial ones."""
    architecture, data = architecture_of(name), (jnp.array(stored_features(name)), jnp.array(arrays(name)["y"]))
    slope = jax.grad(lambda point: action_terms(bind(architecture), point, *data).total)(order_parameters_of(name))
    largest = max(CASES[name]["widths"])
    assert abs(slope.readout / largest) < 1e-12
    for layer, matrix in enumerate(slope.matrices, 1):
        assert_close(matrix / largest, arrays(name)[f"grad_U_{layer}"], 1e-9)


@every_case
@pytest.mark.parametrize("prefix", ["", "gp_"])
def test_predictions(name, prefix):
    at = bpkr.gp_limit(architecture_of(name)) if prefix else order_parameters_of(name)
    prediction = bpkr.predict(problem_of(name), at, path_features(name, "x_test"))
    assert_close(prediction.mean, arrays(name)[f"{prefix}predictor_mean"], 1e-9)
    assert_close(prediction.variance, arrays(name)[f"{prefix}predictor_variance"], 1e-9)


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name]["depth"] > 1])
def test_head_scores(name):
    scores = bpkr.head_scores(architecture_of(name), order_parameters_of(name))
    stored = arrays(name)
    heads = zip(stored["head_score_layer"], stored["head_score_head"], strict=True)
    ours = [scores[layer][head] for layer, head in heads]
    assert len(ours) == sum(CASES[name]["heads"])
    assert_close(ours, stored["head_score"], 1e-9)


@functools.cache
def hidden_markov(width):
    """The architecture of that width and its saddle point; one compilation serves all widths."""
    data = arrays("hidden_markov")
    architecture = bpkr.Architecture((2, 2), width, temperature=0.01)
    return architecture, bpkr.solve(architecture, bpkr.Data(data["phi"].transpose(0, 2, 1), data["y"]))


@pytest.mark.parametrize("width", WIDTHS)
def test_the_hidden_markov_minimum_is_found(width):
    stored, (architecture, saddle) = arrays("hidden_markov"), hidden_markov(width)
    assert saddle.result == optx.RESULTS.successful
    assert_close(saddle.action / width, stored[f"N{width}_S"], 1e-9)
    for found, name in zip(jax.tree.leaves(saddle.order_parameters), ("U1", "U2", "u"), strict=True):
        assert_close(found, stored[f"N{width}_{name}"], 1e-6)
    features, test_features = (stored[name].transpose(0, 2, 1) for name in ("phi", "phi_test200"))
    prediction = bpkr.predict(bpkr.Problem(architecture, bpkr.Data(features, stored["y"])), saddle, test_features)
    assert_close(prediction.mean, stored[f"N{width}_mean200"], 1e-6)
    assert_close(prediction.variance, stored[f"N{width}_var200"], 1e-6)
