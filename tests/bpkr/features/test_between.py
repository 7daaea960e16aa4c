"""Nonlinear layers between attention layers: kernels, minima and predictions of independent programs, and NUTS.

The files are of SciPy and NumPyro programs that do not use this package.
"""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import block_diag
from sympy import ZeroMatrix, tanh

from theorykit import bpkr
from theorykit.bpkr.evaluation.formulas import compiled
from theorykit.bpkr.network.network import network_of_whitened
from theorykit.bpkr.order_parameters import finite_width_law
from theorykit.bpkr.sampling.posteriors import OrderParameterPosterior, split_weights
from theorykit.bpkr.sampling.sample import sampler_of
from theorykit.derivation import claims

from ...derivation.mistakes import is_caught, planted
from ..cases import refused

DATA = Path(__file__).parents[2] / "data" / "mlp_between"


@functools.cache
def arrays(name):
    with np.load(DATA / f"{name}.npz") as archive:
        return dict(archive)


def block(phi, width=10.0, temperature=0.1):
    return bpkr.Architecture((2, bpkr.Dense(activation=phi), 2), width, temperature=temperature)


def problem_of(name, phi, width, temperature=0.1):
    """Training and test examples of a file."""
    given, architecture = arrays(name), block(phi, width, temperature)
    features = bpkr.path_features(given["X"], (given["attention_1"], given["attention_2"]), architecture)
    count = len(given["y"])
    return bpkr.Problem(architecture, bpkr.Data(features[:count], given["y"], features[count:]))


def random_problem(architecture, examples=6, tokens=3, readout="last", seed=0):
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(examples, tokens, 2))
    heads = bpkr.Heads(key_query=[rng.normal(size=(count, 2, 2)) for count in architecture.heads if count])
    features = bpkr.path_features(inputs, heads(inputs), architecture, readout)
    labels = rng.normal(size=(examples - 2, architecture.outputs)).squeeze()
    return bpkr.Problem(architecture, bpkr.Data(features[:-2], labels, features[-2:])), inputs, heads


DEEP = bpkr.Architecture(
    (bpkr.Dense(), 2, bpkr.Dense(activation="relu"), bpkr.Skip(2, gain=0.5), bpkr.Dense(activation="erf")),
    (20.0, 15.0, 12.0, 18.0, 18.0, 9.0),
    (1.3, 0.8, 1.1, 0.9, 1.2, 0.7, 1.4),
    temperature=0.2,
    outputs=2,
)


@pytest.mark.parametrize("phi", ["erf", "relu", "identity"])
def test_kernels_at_infinite_width(phi):
    given, architecture = arrays("mlp_kernels"), block(phi)
    features = bpkr.path_features(given["X"], (given["attention_1"], given["attention_2"]), architecture)
    found = bpkr.kernel(bpkr.Problem(architecture, bpkr.Data(features)), bpkr.gp_limit(architecture))
    np.testing.assert_allclose(found, given[f"{phi}/K"], rtol=0, atol=1e-12)


def test_the_kernel_of_layers_in_any_order():
    """At infinite width, by a recursion over all pairs of tokens (Cho and Saul 2009, Williams 1998)."""
    problem, inputs, heads = random_problem(DEEP, readout="mean")
    variances, (low, high) = DEEP.prior_variances, heads(inputs)
    covariance = np.einsum("psi,qti->psqt", inputs, inputs) * variances[0] / inputs.shape[2] * variances[1]

    def through(covariance, heads, variance):
        return variance / 2 * np.einsum("phsa,psqt,qhtb->paqb", heads, covariance, heads)

    def sizes(covariance):
        own = np.einsum("psps->ps", covariance)
        return own[:, :, None, None], own

    covariance = variances[3] * through(covariance, low, variances[2])
    own, others = sizes(covariance)
    root = np.sqrt(own * others)
    angle = np.arccos(np.clip(covariance / root, -1, 1))
    covariance = root * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2 * np.pi)
    covariance = variances[5] * (0.25 * covariance + through(covariance, high, variances[4]))
    own, others = sizes(covariance)
    covariance = 2 / np.pi * np.arcsin(2 * covariance / np.sqrt((1 + 2 * own) * (1 + 2 * others)))
    expected = variances[6] * covariance.mean(axis=(1, 3))
    found = bpkr.kernel(problem, bpkr.gp_limit(DEEP), problem.data.test_features)
    np.testing.assert_allclose(found, np.kron(expected[:-2, -2:], np.eye(2)), rtol=0, atol=1e-7)


@pytest.mark.parametrize("phi", ["erf", "identity"])
def test_minima_and_predictions(phi):
    given, problem = arrays("mlp_reference"), problem_of("mlp_reference", phi, 10.0)
    saddle = bpkr.solve(problem)
    *matrices, readout = jax.tree.leaves(saddle.order_parameters)
    ours = (saddle.action, readout, *reversed(matrices))
    for value, name in zip(ours, ("action", "u", "U_2", "U_W", "U_1"), strict=True):
        np.testing.assert_allclose(value, given[f"{phi}/branch/{name}"], rtol=1e-8)
    prediction = bpkr.predict(problem, saddle)
    for name in ("mean", "variance"):
        np.testing.assert_allclose(getattr(prediction, name), given[f"{phi}/branch/{name}"], rtol=1e-7)
    assert ("a linear part that continues, and noise" in problem.ansatz) == (phi == "erf")


@pytest.mark.parametrize(
    ("name", "phi", "width", "distance", "limit"),
    [
        ("mlp_nuts_erf_10_16_1", "erf", 10.0, 0.2071, 0.3273),
        pytest.param("mlp_nuts_relu_10_16_1", "relu", 10.0, None, None, marks=pytest.mark.slow),
        pytest.param("mlp_highdim_erf_20_32_1", "erf", 20.0, 0.0789, 0.3723, marks=pytest.mark.slow),
    ],
)
def test_the_distance_from_sampled_weights(name, phi, width, distance, limit):
    given, problem = arrays(name), problem_of(name, phi, width)
    points = {"branch": bpkr.solve(problem), "nngp": bpkr.gp_limit(problem.architecture)}
    found = {}
    for form, point in points.items():
        mean = bpkr.predict(problem, point).mean
        np.testing.assert_allclose(mean, given[f"{form}/mean"], rtol=0, atol=1e-6)
        found[form] = float(np.sqrt(np.mean((mean - given["nuts_mean"]) ** 2)))
    assert found["branch"] < found["nngp"]
    if distance is not None:
        np.testing.assert_allclose([found["branch"], found["nngp"]], [distance, limit], atol=1e-4)


def test_without_noise_the_action_is_that_of_linear_units():
    action, linear = bpkr.derive(block("erf")), bpkr.derive(block("identity"))
    root, _ = action.symbols.noises[2]
    assert action.total.xreplace({root: ZeroMatrix(*root.shape)}).doit() == linear.total.doit()
    assert action.entropies == linear.entropies and not linear.ansatz and "an ansatz" in action.ansatz[0]


@pytest.mark.parametrize("activation", ["erf", tanh])
def test_kernels_are_those_of_the_action(activation):
    """The kernel of tables is that of the derived formula, for a root of the noise and other order parameters."""
    architecture = bpkr.Architecture((2, bpkr.Dense(activation=activation), 2), 9.0, temperature=0.3)
    problem, _, _ = random_problem(architecture)
    features, rng = problem.data.features[[0, 1, 2, 3]], np.random.default_rng(1)
    kernels = np.asarray(features.by_example(features, lambda each: each)).transpose(1, 0, 2, 3)
    count, paths = len(features), architecture.paths
    noise = kernels[paths:, :, paths:].reshape(2 * count, 2 * count)
    values, vectors = np.linalg.eigh(noise)
    assert values.min() > -1e-12 and np.all(kernels[paths:, :, :paths] == 0)
    root = (vectors * np.sqrt(values.clip(0))).reshape(2, count, -1).transpose(1, 0, 2).reshape(count, -1)
    first, third = (np.eye(n) + 0.3 * np.ones((n, n)) + np.diag(rng.uniform(size=n)) for n in (4, 2))
    action = problem.bound.action
    symbols, (psi, _) = action.symbols, action.symbols.noises[2]
    third_symbol = symbols.overlaps[2]
    given = {symbols.first: first, third_symbol: third, symbols.features: features.paths.reshape(count, -1), psi: root}
    expected = compiled(action, value=action.kernel).call_from(problem.bound.numbers() | given)["value"]
    matrix = problem.examples.kernel.matrix(jnp.asarray(block_diag(first, third)))
    np.testing.assert_allclose(matrix, expected, rtol=0, atol=1e-12)


def test_sampled_weights_are_those_of_the_network():
    problem, inputs, heads = random_problem(DEEP, readout="mean")
    posterior = sampler_of("nuts", problem, 10).posterior
    coordinates = posterior.start(jax.random.key(0))
    white = split_weights(coordinates, posterior.shapes)
    expected = network_of_whitened(DEEP, white, heads, readout="mean")(inputs)
    np.testing.assert_allclose(posterior.outputs(white, problem.data.test_features), expected[-2:], atol=1e-12)
    assert set(posterior.record(coordinates)) == {"u", "sampled_output"}  # above the last nonlinear layer


def test_the_exact_posterior_is_prior_times_likelihood():
    problem, _, _ = random_problem(DEEP)
    law = finite_width_law(DEEP)
    posterior = OrderParameterPosterior(law, problem.canonical, problem.data.test_features)
    one, other = (law.sample(jax.random.key(seed)) for seed in range(2))

    def expected(at):
        kernel = bpkr.kernel(problem, law.order_parameters(at)) + 0.2 * np.eye(8)
        labels = np.asarray(problem.data.labels).ravel()
        log_det = np.linalg.slogdet(2 * np.pi * kernel)[1]
        return law.log_prior(at) - (log_det + labels @ np.linalg.solve(kernel, labels)) / 2

    difference = posterior.log_density(one) - posterior.log_density(other)
    np.testing.assert_allclose(difference, expected(one) - expected(other), rtol=1e-9)


@pytest.mark.slow
def test_derivatives_through_attention():
    architecture = block("relu")
    problem, inputs, heads = random_problem(architecture)
    labels, maps = problem.data.labels, heads(inputs)
    direction = np.random.default_rng(2).normal(size=maps[0].shape)

    def evidence(step):
        features = bpkr.path_features(inputs, (maps[0] + step * direction, maps[1]), architecture, layout="keys-first")
        return bpkr.solve(architecture, bpkr.Data(features[:-2], labels)).log_evidence

    slope = jax.grad(evidence)(0.0)
    np.testing.assert_allclose(slope, (evidence(1e-5) - evidence(-1e-5)) / 2e-5, rtol=1e-6)


def test_mistakes_in_the_ansatz_and_in_steps_with_noise_are_found():
    derivation = bpkr.derive(block("erf")).derivation
    names = {"chi_2", "E_2", "Psi_2"}
    steps = [step for step in derivation.steps if names & {each.name for each in step.after.atoms(type(NOISE))}]
    assert derivation.verify().holds and len(steps) >= 6
    for step in steps:
        kinds = slice(0, None, 5) if not isinstance(step.claim, claims.SameMoments) else slice(None)
        for kind, wrong in planted(step, kinds=kinds):
            assert is_caught(wrong, derivation.sizes), (step.rule, kind)


NOISE = bpkr.derive(block("erf")).symbols.noises[2][0]


def test_what_is_not_covered_is_refused():
    nonlinear = bpkr.Dense(activation="erf")
    with refused("a skip around nonlinear units"):
        bpkr.Skip(nonlinear)
    with refused("layers[2] is nonlinear above attention"):
        bpkr.Architecture((nonlinear, 2, nonlinear), 10, temperature=0.1)
    with refused("layers[1] is nonlinear above attention"):
        bpkr.Architecture((2, nonlinear), 10, temperature=0.1, embedding="relu")
    with refused("richness must be None"):
        bpkr.Architecture((2, nonlinear), 10, temperature=0.1, richness=1.0)
    problem, _, _ = random_problem(block("erf"))
    with pytest.raises(IndexError):
        problem.data.features[:, 0]
    with refused("heads below nonlinear units"):
        bpkr.head_costs(problem, bpkr.solve(problem))
    with refused("are for the activations"):
        bpkr.Problem(block("relu"), problem.data)
    with pytest.raises(TypeError, match="are kernels, not an array"):
        np.asarray(problem.data.features)
