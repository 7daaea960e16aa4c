"""Strict settings of JAX, which other programs may have made, change nothing; functions that loop in Python say so."""

from contextlib import ExitStack

import jax
import numpy as np
import pytest

from tests.marks import slow
from theorykit import bpkr
from theorykit.bpkr import sampling, sweeps

# Examples, features and how the data are given: kernels of pairs of paths, moments of features, and both at T = 0.
PROBLEMS = {
    "more features than examples": (6, 10, {}),
    "more examples than features": (30, 2, {}),
    "several outputs": (6, 10, {"outputs": 2}),
    "a skip connection": (6, 10, {"skip": True}),
}


def strict(stack):
    """Set every setting that would raise an error within theorykit."""
    settings = {
        jax.numpy_rank_promotion: "raise",
        jax.numpy_dtype_promotion: "strict",
        jax.debug_nans: True,
        jax.debug_infs: True,
        jax.disable_jit: True,
        jax.check_tracer_leaks: True,
    }
    for setting, value in settings.items():
        stack.enter_context(setting(value))


def problem_of(examples, width, options):
    draw = np.random.default_rng(0)
    outputs = options.get("outputs", 1)
    features = draw.normal(size=(examples, 2, width)) / 4
    labels = np.sign(draw.normal(size=(examples, outputs) if outputs > 1 else examples))
    layers = (bpkr.Skip(2) if options.get("skip") else 2,)
    features = draw.normal(size=(examples, 3, width)) / 4 if options.get("skip") else features
    architecture = bpkr.Architecture(layers=layers, widths=10, temperature=0.5, outputs=outputs)
    return bpkr.Problem(architecture, bpkr.Data(features[:-2], labels[:-2], features[-2:]))


def results(problem):
    saddle = bpkr.solve(problem)
    found = bpkr.search(problem, key=jax.random.key(0), starts=0, progress=False)
    prediction = bpkr.predict(problem, saddle)
    costs = [] if problem.architecture.outputs > 1 else bpkr.head_costs(problem, saddle, progress=False).log_evidence
    return [saddle.action, *saddle.order_parameters.matrices, prediction.mean, found.saddles[0].action, *costs]


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", [*list(PROBLEMS)[:2], *slow(list(PROBLEMS)[2:])])
def test_strict_settings_of_jax_change_nothing(name):
    problem = problem_of(*PROBLEMS[name])
    with ExitStack() as stack:
        strict(stack)
        found = results(problem)
    for one, expected in zip(found, results(problem), strict=True):
        np.testing.assert_array_equal(one, expected)


LOOPS = {
    "search": lambda problem: bpkr.search(problem, key=jax.random.key(0), progress=False),
    "head_costs": lambda problem: bpkr.head_costs(problem, bpkr.solve(problem), progress=False),
    "sweep": lambda problem: sweeps.sweep(problem, widths=(10,), temperatures=(0.5,), progress=False),
    "compare": lambda problem: sampling.compare(problem, key=jax.random.key(0), progress=False),
    "Data.of_arrays": lambda problem: bpkr.Data.of_arrays(problem.data.features, problem.data.labels),
    "class labels": lambda problem: bpkr.Data.of_classes(np.ones((4, 2, 3)), problem.data.features[:, 0, 0]),
    "score_classes": lambda problem: bpkr.score_classes(
        bpkr.find_classes([1, -1]), [1, 1, -1, -1], problem.data.features[:, 0, 0], np.ones(4)
    ),
    "rank_heads": lambda problem: bpkr.rank_heads(
        bpkr.head_scores(problem.architecture, bpkr.solve(problem).order_parameters)
    ),
    "label_saddle": lambda problem: sweeps.label_saddle(problem.architecture, bpkr.solve(problem)),
    "sampler": lambda problem: sampling.sample_order_parameters(problem, key=jax.random.key(0), progress=False),
}


@pytest.mark.parametrize("transform", [jax.jit, jax.grad, lambda function: lambda x: jax.vmap(function)(x[None])])
@pytest.mark.parametrize("name", LOOPS)
def test_functions_that_loop_in_python_are_refused_in_transformations(name, transform):
    def of(features):
        LOOPS[name](bpkr.Problem(bpkr.Architecture((2,), 10, temperature=0.5), bpkr.Data(features, np.ones(4))))

    with pytest.raises(ValueError, match=rf"{name} (decides in Python|returns|reads) .* call it outside"):
        transform(of)(np.random.default_rng(0).normal(size=(4, 2, 3)))


@pytest.mark.slow
def test_fluctuations_are_compiled_in_transformations():
    features, labels = np.random.default_rng(0).normal(size=(4, 2, 3)), np.ones(4)
    architecture = bpkr.Architecture((2,), 10, temperature=0.5)
    point = bpkr.solve(architecture, bpkr.Data(features, labels)).order_parameters

    def evidence(features):
        return bpkr.fluctuations(bpkr.Problem(architecture, bpkr.Data(features, labels)), point).log_evidence

    assert float(jax.jit(evidence)(features)) == pytest.approx(float(evidence(features)), rel=1e-9)
