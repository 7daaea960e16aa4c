"""The mean-field parameterisation with richness gamma_0, and its limit of infinite width."""

import functools
import json
import math
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from theorykit import bpkr, plots
from theorykit.bpkr import sampling, sweeps
from theorykit.bpkr.order_parameters import gp_coordinates
from theorykit.saddle import ConvergenceWarning
from theorykit.testing import strategies

from .cases import SEEDS, assert_close
from .problems import random_problem

DATA = Path(__file__).parents[1] / "data" / "richness"
CASES = {case["name"]: case for case in json.loads((DATA / "manifest.json").read_text())}
DEEP_LINEAR = json.loads((DATA / "deep_linear.json").read_text())

every_case = pytest.mark.parametrize("name", CASES)


def architecture_of(name: str, width: float = math.inf, **changes) -> bpkr.Architecture:
    case = CASES[name]
    ratios = tuple(case["width_ratios"])
    sizes = {"widths": width, "width_ratios": ratios}
    if width < math.inf:
        sizes = {"widths": tuple(width * ratio for ratio in ratios)}
    numbers = {"prior_variances": tuple(case["prior_variances"]), "temperature": case["temperature"]}
    return bpkr.Architecture(tuple(case["heads"]), **sizes, **numbers, **{"richness": case["gamma"], **changes})


@functools.cache
def arrays(name: str) -> dict[str, np.ndarray]:
    return dict(np.load(DATA / f"{name}.npz"))


def data_of(name: str) -> bpkr.Data:
    of = arrays(name)
    return bpkr.Data(of["phi"], of["y"], of["phi_test"])


@functools.cache
def solved(name: str, width: float = math.inf) -> bpkr.Saddle:
    return bpkr.solve(architecture_of(name, width), data_of(name))


def overlaps(saddle: bpkr.Saddle) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(saddle.order_parameters)])


def small_problem(width: float, richness: float | None = 1.0, outputs: int = 1, examples: int = 12) -> bpkr.Problem:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(examples + 4, 2, 6)) / np.sqrt(6)
    labels = rng.choice([-1.0, 1.0], size=(examples,) if outputs == 1 else (examples, outputs))
    arch = bpkr.Architecture((2,), width, temperature=0.1, richness=richness, outputs=outputs)
    return bpkr.Problem(arch, bpkr.Data(features[:examples], labels, features[examples:]))


@pytest.mark.quick("case02")
@every_case
def test_the_limit_is_that_of_an_independent_minimisation(name):
    of, saddle = arrays(name), solved(name)
    assert saddle.converged
    expected = np.concatenate([np.ravel(of[f"U_{layer}"]) for layer in range(1, len(CASES[name]["heads"]) + 2)])
    assert_close(overlaps(saddle), expected, 1e-8)
    assert_close(saddle.action, of["action_per_width"], 1e-9)
    mean = bpkr.predict(bpkr.Problem(architecture_of(name), data_of(name)), saddle).mean
    assert_close(mean, of["mean"], 1e-8)


@pytest.mark.slow
@every_case
def test_finite_widths_approach_the_limit_as_one_over_the_width(name):
    away = {width: width * (overlaps(solved(name, width)) - overlaps(solved(name))) for width in (1e2, 1e4, 1e6)}
    size = np.max(np.abs(away[1e6]))
    # The constants are of order one, and corrections to them fall as 1/N.
    assert 0.1 < size < 1e3
    assert np.max(np.abs(away[1e4] - away[1e6])) < 5e-3 * size
    assert np.max(np.abs(away[1e2] - away[1e6])) < 0.3 * size
    limit = float(solved(name).log_evidence)
    of_evidence = [float(solved(name, width).log_evidence) / width - limit for width in (1e4, 1e6)]
    # The log-determinant and the number of labels enter the evidence per width as (log N)/N.
    assert abs(of_evidence[1]) < abs(of_evidence[0]) / 30


@pytest.mark.quick(1)
@pytest.mark.parametrize("depth", sorted({case["depth"] for case in DEEP_LINEAR}))
def test_deep_linear_networks_have_their_closed_form(depth):
    data = bpkr.Data(np.eye(4)[:, None], np.array([0.5, -0.5, 0.5, 0.5]))
    for case in (case for case in DEEP_LINEAR if case["depth"] == depth):
        numbers = {"temperature": 1 / case["beta"], "richness": case["gamma"]}
        saddle = bpkr.solve(bpkr.Architecture((bpkr.Dense(),) * (depth - 1), math.inf, **numbers), data)
        assert saddle.converged
        assert_close(np.ravel(saddle.order_parameters.first)[0], case["c"][0], 1e-9)


@pytest.mark.quick("2-()-inf", "1-(2, Skip(layer=Attention(heads=2)))-7.0")
@pytest.mark.parametrize("width", [7.0, math.inf])
@pytest.mark.parametrize("layers", [(), (2,), (2, bpkr.Skip(bpkr.Attention(2)))], ids=str)
@pytest.mark.parametrize("outputs", [1, 2])
def test_every_step_of_the_derivation_holds(layers, width, outputs):
    arch = bpkr.Architecture(layers, width, temperature=0.1, richness=0.7, outputs=outputs)
    action = bpkr.derive(arch)
    for derivation in action.derivations.values():
        assert derivation.verify().holds
    rules = [step.rule for step in action.derivation.steps]
    assert rules.count("order parameters rescaled") == 3
    assert ("leading order" in rules) == (width == math.inf)


@pytest.mark.slow
@settings(max_examples=5)
@given(problem=st.builds(random_problem, strategies.architectures(), SEEDS), richness=st.floats(0.1, 10.0))
def test_random_networks_have_the_action_at_other_scales_and_its_limit(problem, richness):
    def at(problem, order_parameters):
        return replace(problem, order_parameters=order_parameters).evaluate()

    arch, point, prior = problem.architecture, problem.order_parameters, bpkr.gp_limit(problem.architecture)
    power, width = float(arch.widths[0]) * richness**2, float(arch.widths[0])
    variances = (*arch.prior_variances[:-1], arch.prior_variances[-1] / power)
    scaled = replace(arch, prior_variances=variances, temperature=arch.temperature / power)
    standard = replace(problem, architecture=scaled)
    rich = replace(problem, architecture=replace(arch, richness=richness))
    # Both differ by a constant.
    here, there = (
        [at(each, jax.tree.map(lambda u, by=by: u / by, u)).total for u in (point, prior)]
        for each, by in ((rich, 1.0), (standard, power))
    )
    assert_close(here[0] - here[1], there[0] - there[1], 1e-8)
    # Per width, the limit has all but the log-determinant, the energy of labels that are zero.
    wide = replace(rich, architecture=rich.architecture.at_infinite_width())
    log_determinant = replace(rich, labels=0 * rich.labels).evaluate().energy
    assert_close(width * wide.evaluate().total, rich.evaluate().total - log_determinant, 1e-8)
    for found, factor in ((rich.predict(), 1.0), (wide.predict(), width)):
        expected = replace(standard, order_parameters=jax.tree.map(lambda u: u / power, point)).predict()
        assert_close(found.mean, expected.mean, 1e-8)
        assert_close(found.variance, factor * expected.variance, 1e-8)


@pytest.mark.quick("dual-inf-1")
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("width", [9.0, math.inf])
@pytest.mark.parametrize("examples", [10, 40], ids=["kernel", "dual"])
def test_the_curvature_is_the_second_derivative_of_the_action(width, outputs, examples):
    problem = small_problem(width, outputs=outputs, examples=examples)
    action = problem.canonical
    at = gp_coordinates(problem.architecture)
    at = at + 0.2 * np.random.default_rng(5).normal(size=len(at))
    found = action.expansion(action.at(at)).hessian

    def moved(step):
        return action.action(action.moved(at, step))

    expected = jax.jit(jax.hessian(moved))(jnp.zeros_like(at))
    assert_close(found, expected, 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("width", [20, math.inf])
def test_the_slope_of_the_evidence_in_the_richness_is_that_of_differences(width):
    data = small_problem(10).data

    def evidence(richness):
        return bpkr.solve(bpkr.Architecture((2,), width, temperature=0.1, richness=richness), data).log_evidence

    step = 1e-4
    expected = (evidence(0.8 + step) - evidence(0.8 - step)) / (2 * step)
    assert_close(jax.grad(evidence)(0.8), expected, 1e-6)


def test_zero_richness_at_infinite_width_is_the_gaussian_process():
    lazy, standard = small_problem(math.inf, 0.0), small_problem(10, None)
    saddle, limit = bpkr.solve(lazy), bpkr.gp_limit(standard.architecture)
    assert_close(overlaps(saddle), np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(limit)]), 1e-12)
    found, expected = bpkr.predict(lazy, saddle), bpkr.predict(standard, limit)
    assert_close(found.mean, expected.mean, 1e-12)
    assert_close(found.variance, expected.variance, 1e-12)
    assert "Gaussian process" in repr(saddle)
    # Fluctuations of the order parameters contribute at order 1/N to a variance of order one.
    assert_close(bpkr.fluctuations(lazy, saddle).prediction.variance, expected.variance, 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("width", [20, 100])
def test_exact_sampling_agrees_and_corrections_bring_the_saddle_closer(width):
    problem = small_problem(width)
    saddle = bpkr.solve(problem)
    expanded = bpkr.fluctuations(problem, saddle)
    schedule = sampling.Schedule(chains=4, warmup=300, draws=2000)
    tree = sampling.sample(problem, key=jax.random.key(0), schedule=schedule, progress=False)
    drawn = {name: np.asarray(values).reshape(8000, -1) for name, values in tree["posterior"].data_vars.items()}
    of_u1, spread = drawn["U_1"].mean(axis=0), drawn["U_1"].std(axis=0)
    at_saddle, corrected = (
        np.max(np.abs(np.ravel(first) - of_u1) / spread)
        for first in (saddle.order_parameters.first, expanded.mean.first)
    )
    # Of 8000 draws more than 2500 are effective, so the error of a mean is below 0.02 of the spread.
    assert corrected < 0.05
    assert corrected < at_saddle < 3 / np.sqrt(width)
    total = drawn["variance"].mean(axis=0) + drawn["mean"].var(axis=0)
    assert_close(expanded.prediction.variance / total, np.ones(4), 0.1)
    assert_close(expanded.prediction.mean, drawn["mean"].mean(axis=0), 0.02)
    # The leading order of the whole variance, at infinite width.
    wide = small_problem(math.inf)
    leading = bpkr.fluctuations(wide, bpkr.solve(wide)).prediction.variance / width
    assert np.max(np.abs(leading / total - 1)) < 8 / width + 0.05


def test_a_network_has_the_outputs_of_this_parameterisation():
    """f = a . h / (gamma_0 N): outputs of networks from the prior have variance K / (N gamma_0^2)."""
    tokens = jnp.array(np.random.default_rng(3).normal(size=(3, 4, 5)))
    width, gamma, keys = 20, 0.6, jax.random.split(jax.random.key(4), 3)
    rich = bpkr.Architecture((2,), width, temperature=0.1, richness=gamma)
    heads = bpkr.Heads(key_query=[jax.random.normal(keys[0], (2, 5, 5))])
    standard = bpkr.Architecture((2,), width, temperature=0.1)
    one, other = (bpkr.sample_network(arch, heads, input_features=5, key=keys[1]) for arch in (rich, standard))
    assert_close(one(tokens), other(tokens) / (gamma * np.sqrt(width)), 1e-12)
    features = bpkr.path_features(tokens, heads(tokens), rich, "last")
    assert_close(jnp.sum(one.path_outputs(features), axis=1), one(tokens), 1e-10)


@functools.cache
def swept() -> xr.Dataset:
    problem = small_problem(10)
    data = replace(problem.data, test_labels=np.array([1.0, -1.0, 1.0, 1.0]))
    grid = {"width": [20, math.inf], "temperature": [0.1], "richness": [0.0, 0.5, 1.0]}
    with pytest.warns(ConvergenceWarning, match="richness must be finite and > 0"):
        return sweeps.sweep(problem.architecture, data, progress=False, **grid)


def test_a_sweep_over_the_richness_is_that_of_single_solves():
    found = swept().isel(temperature=0)
    assert found["converged"].values.tolist() == [[False, True, True], [True, True, True]]
    names = ("variance", "log_evidence"), ("variance_times_width", "log_evidence_per_width")
    for width, (variance, evidence), (_, other) in zip((20, math.inf), names, reversed(names), strict=True):
        problem, at = small_problem(width, 0.5), found.sel(width=width, richness=0.5)
        saddle = bpkr.solve(problem)
        assert_close(at["U_1"].values, saddle.order_parameters.first, 1e-8)
        prediction = bpkr.predict(problem, saddle)
        assert_close(at["mean"].values, prediction.mean, 1e-8)
        assert_close(at[variance].values, prediction.variance, 1e-7)
        assert_close(at[evidence].item(), saddle.log_evidence, 1e-9)
        # The other name has no value there, so that the two cannot be mistaken.
        assert np.isnan(at[other].item())


def test_a_sweep_over_the_richness_is_drawn(tmp_path):
    axes = plots.draw_over_richness(swept())
    assert axes.get_xlabel() == r"richness $\gamma_0$"
    _, (line, *_) = axes.get_legend_handles_labels(), axes.get_lines()
    assert_close(line.get_ydata()[1:], swept()["test_accuracy"].values[0, 0, 1:], 1e-12)
    assert plots.style.save(plots.draw_over_richness(swept()).figure, tmp_path / "sweep.png").stat().st_size > 10_000
    with pytest.raises(ValueError, match="no axis richness"):
        plots.draw_over_richness(swept().sel(richness=1.0))
