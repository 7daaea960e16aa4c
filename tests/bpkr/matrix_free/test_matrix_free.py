"""The matrix-free energy: what it says of its own error is true, where the dense form can tell."""

import warnings
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matfree import decomp, funm

from theorykit import bpkr
from theorykit.bpkr import Data, Problem, solve
from theorykit.bpkr.evaluation.action_terms import action_terms
from theorykit.bpkr.evaluation.bound_action import bind, flat_features
from theorykit.bpkr.matrix_free.lanczos import run_lanczos
from theorykit.bpkr.matrix_free.solver import (
    MatrixFree,
    MatrixFreeWarning,
    estimate_at,
    estimate_energy,
    operands_of,
    random_probes,
)
from theorykit.bpkr.matrix_free.whitened_kernel import Design, Kernel, path_gram, whiten_kernel
from theorykit.testing import random_order_parameters

from ..cases import OWN_KINDS, SKIP_FIRST, TWO_LAYERS, TWO_OUTPUTS, Case, assert_close, explicit_kernel, refused

SQUARE = Case((2, 2), (40.0, 25.0, 60.0), (0.9, 1.3, 0.6, 1.7))
# few shapes: each costs a compilation
EXAMPLES, FEATURES = 80, 12
OPTIONS = MatrixFree(jax.random.key(0), progress=False, probes=16, rank=10)
# of 40 rows, with as many probes and products as there are
ALL_PROBES = MatrixFree(jax.random.key(0), probes=40, rank=5, order=40, tolerance=1e-12)


class Example:
    """Random order parameters, and data whose kernel has a spectrum that falls as a power law."""

    def __init__(self, case, examples, features, temperature, *, decay=0.5, seed=0):
        rng = np.random.default_rng(seed)
        self.architecture = case.architecture(temperature)
        self.point = random_order_parameters(self.architecture, rng)
        self.features = rng.normal(size=(examples, self.architecture.paths, features))
        self.features *= np.arange(1, features + 1) ** -decay / np.sqrt(self.architecture.paths)
        self.labels = rng.normal(size=(examples, case.outputs)[: 1 if case.outputs == 1 else 2])
        self.problem = Problem(self.architecture, Data(self.features, self.labels))
        self.data = operands_of(self.problem)
        self.first = self.point.matrices[0]
        self.kernel = Kernel(self.data.bound, self.data.design, self.first)

    def dense(self):
        """K + T I by its definition, Eq. (10)."""
        kernel = explicit_kernel(self.point, self.features, self.features)
        return kernel + float(self.architecture.temperature) * np.eye(len(kernel))

    def by_path(self):
        """Phi as (rows, n_1, columns of a path)."""
        flat = flat_features(self.architecture, jnp.asarray(self.features))
        return np.asarray(flat).reshape(len(flat), len(self.first), -1)

    def exact(self):
        """Log-determinant, misfit, and the gradient of each in U_1."""
        inverse, labels, phi = np.linalg.inv(self.dense()), np.asarray(self.data.labels), self.by_path()
        representer = inverse @ labels[:, 0]
        logdet_gradient = np.einsum("pai,pq,qbi->ab", phi, inverse, phi, optimize=True)
        read = np.einsum("pai,p->ai", phi, representer)
        return np.linalg.slogdet(self.dense())[1], labels[:, 0] @ representer, logdet_gradient, read @ read.T

    def estimate(self, seed, options=OPTIONS, *, scale=1.0):
        """The estimate at U_1 times `scale`."""
        solver = replace(options, key=jax.random.key(seed))
        return estimate_at(self.data, scale * self.first, random_probes(solver, self.data), solver)


@pytest.fixture(scope="module")
def moderate():
    return Example(SQUARE, EXAMPLES, FEATURES, 0.1)


@pytest.fixture(scope="module")
def hard():
    """Condition number 1e7."""
    largest = np.linalg.eigvalsh(Example(SQUARE, EXAMPLES, FEATURES, 1.0, decay=2.0).dense())[-1] - 1
    return Example(SQUARE, EXAMPLES, FEATURES, largest * 1e-7, decay=2.0)


@pytest.fixture(scope="module")
def two_outputs():
    return Example(TWO_OUTPUTS, 20, 4, 0.2)


@pytest.mark.parametrize("case", [TWO_OUTPUTS, SKIP_FIRST, OWN_KINDS], ids=["outputs", "skip", "own"])
def test_the_product_and_its_gradient_are_those_of_the_dense_kernel(case):
    example = Example(case, 7, 3, 0.3)
    columns = np.random.default_rng(1).normal(size=(len(example.data.labels), 2))
    product, slope = eqx.filter_jit(lambda kernel, c: (kernel.product(c), kernel.slope(c, c)))(example.kernel, columns)
    assert_close(product, example.dense() @ columns)
    read = np.einsum("pai,pc->cai", example.by_path(), columns)
    assert_close(slope, np.einsum("cai,cbi->ab", read, read))


def test_the_product_never_forms_anything_as_large_as_the_kernel():
    source = bpkr.compile_action(bpkr.derive(SQUARE.architecture())).kernel_product.source
    assert "Phi @ kron_left_matmul(U_1, Phi.T @ V)" in source
    example = Example(SQUARE, 200, 5, 0.3)
    jaxpr = jax.make_jaxpr(example.kernel.product)(jnp.ones((200, 3)))
    largest = max(np.prod(variable.aval.shape) for equation in jaxpr.eqns for variable in equation.outvars)
    assert largest <= example.features.size < 200**2


@pytest.mark.parametrize("case", [TWO_LAYERS, TWO_OUTPUTS, SKIP_FIRST], ids=["plain", "outputs", "skip"])
def test_the_features_as_an_operator_are_the_flat_features(case):
    architecture, rng = case.architecture(), np.random.default_rng(0)
    features = jnp.asarray(rng.normal(size=(7, architecture.paths, 3)))
    design, flat = Design(features, case.outputs), flat_features(architecture, features)
    assert design.shape == flat.shape and design.T.shape == flat.T.shape
    assert_close(design @ jnp.eye(flat.shape[1]), flat)
    assert_close(design.T @ jnp.eye(len(flat)), flat.T)
    by_path = flat.reshape(len(flat), len(bpkr.gp_limit(architecture).matrices[0]), -1)
    assert_close(path_gram(design), jnp.einsum("pai,pbi->ab", by_path, by_path))


@pytest.mark.slow
def test_with_basis_vectors_for_probes_the_estimate_is_exact(two_outputs):
    log_det, misfit, logdet_gradient, minus_misfit_gradient = two_outputs.exact()
    rows = len(two_outputs.data.labels)
    probes = np.sqrt(rows) * jnp.eye(rows)
    estimate = estimate_at(two_outputs.data, two_outputs.first, probes, ALL_PROBES)
    assert_close(estimate.log_determinant, log_det, 1e-9)
    assert_close(estimate.misfit, misfit, 1e-9)
    assert_close(estimate.slopes.logdet_gradient, logdet_gradient, 1e-8)
    assert_close(estimate.slopes.minus_misfit_gradient, minus_misfit_gradient, 1e-8)


@pytest.mark.slow
def test_a_preconditioner_of_full_rank_is_exact(moderate):
    log_det, misfit, logdet_gradient, minus_misfit_gradient = moderate.exact()
    estimate = moderate.estimate(0, MatrixFree(jax.random.key(0), probes=4, rank=1000))
    assert abs(estimate.value - log_det - misfit) <= float(estimate.error())
    assert estimate.error() < 1e-6
    assert_close(estimate.slopes.gradient, logdet_gradient - minus_misfit_gradient, 1e-8)


@eqx.filter_jit
def from_probes(whitened, probes, order):
    return run_lanczos(lambda vector: whitened.product(vector[:, None])[:, 0], probes, whitened.floor, order, 5)


@pytest.mark.slow
def test_brackets_hold_the_truth_for_every_probe_and_order(moderate):
    whitened = eqx.filter_jit(whiten_kernel)(moderate.kernel, jax.random.key(0), 5)
    matrix = np.asarray(whitened.product(jnp.eye(len(moderate.data.labels))))
    values, vectors = np.linalg.eigh(matrix)
    assert values[0] >= float(whitened.floor) - 1e-9
    rows = len(moderate.data.labels)
    probes = np.concatenate([np.eye(rows)[:6], np.random.default_rng(0).normal(size=(6, rows))])
    seen = (probes @ vectors) ** 2
    logs = seen @ np.log(values)
    roots = probes @ (vectors / np.sqrt(values)) @ vectors.T
    widths = []
    for order in (2, 16, rows):
        runs = from_probes(whitened, jnp.asarray(probes), order)
        assert np.all(runs.lower <= logs + 1e-9) and np.all(logs <= runs.upper + 1e-9)
        missed = np.asarray(runs.roots) - roots
        errors = np.sqrt(np.einsum("ji,ik,jk->j", missed, matrix, missed))
        assert np.all(errors <= np.asarray(runs.root_errors) + 1e-6)
        widths.append(float(jnp.max(runs.half_width)))
    assert widths == sorted(widths, reverse=True) and widths[-1] < 1e-10


def test_runs_in_a_space_that_is_soon_invariant_are_exact():
    rng = np.random.default_rng(0)
    vectors, _ = np.linalg.qr(rng.normal(size=(40, 40)))
    values = np.repeat([1.0, 3.3, 1e4], [30, 5, 5])
    matrix, starts = jnp.asarray(vectors * values @ vectors.T), rng.normal(size=(3, 40))
    runs = eqx.filter_jit(run_lanczos)(lambda v: matrix @ v, jnp.asarray(starts), jnp.array(0.99), 12, 2)
    for bound in (runs.lower, runs.upper):
        assert_close(bound, (starts @ vectors) ** 2 @ np.log(values), 1e-10)
    assert_close(runs.roots, starts @ (vectors / np.sqrt(values)) @ vectors.T, 1e-10)


@pytest.mark.quick(1)
@pytest.mark.parametrize("case", ["plain", "outputs"])
def test_the_stated_errors_cover_the_truth(case, moderate, two_outputs):
    example, options = (moderate, OPTIONS) if case == "plain" else (two_outputs, ALL_PROBES)
    log_det, misfit, logdet_gradient, minus_misfit_gradient = example.exact()
    covered, signed, of_slopes = [], [], []
    rows = np.triu_indices(len(logdet_gradient))
    for seed in range(40):
        estimate = example.estimate(seed, options)
        slopes = estimate.slopes
        covered.append(abs(estimate.value - log_det - misfit) <= estimate.error())
        assert abs(estimate.misfit - misfit) <= estimate.bias
        assert np.all(
            np.abs(slopes.minus_misfit_gradient - minus_misfit_gradient)
            <= slopes.minus_misfit_gradient_bias + 1e-9 * np.max(minus_misfit_gradient)
        )
        signed.append(float((estimate.value - log_det - misfit) / estimate.standard_error))
        of_slopes.append(((slopes.logdet_gradient - logdet_gradient) / slopes.logdet_gradient_error)[rows])
    assert np.mean(covered) >= 0.95
    # neither biased, nor errors far too large or too small
    assert abs(np.mean(signed)) < 4 / np.sqrt(40) and 0.6 < np.std(signed) < 1.5
    assert np.max(np.abs(np.mean(of_slopes, axis=0))) < 5 / np.sqrt(40) and 0.7 < np.std(of_slopes) < 1.4


@pytest.mark.slow
def test_at_condition_1e7_few_steps_are_not_trusted(hard):
    log_det, misfit, *_ = hard.exact()
    # plain quadrature of 20 steps is off by far more than its standard error over probes
    probes = random_probes(replace(OPTIONS, probes=64), hard.data)
    plain = funm.monte_carlo_funm_sym_logdet(decomp.tridiag_sym(20))
    matrix = jnp.asarray(hard.dense())
    samples = jax.vmap(lambda z: plain(lambda v: matrix @ v, z))(probes)
    assert abs(jnp.mean(samples) - log_det) > 10 * jnp.std(samples) / np.sqrt(64)
    assert abs(jnp.mean(samples) - log_det) > 0.1 * abs(log_det)
    with pytest.warns(MatrixFreeWarning, match="condition number"):
        few = hard.estimate(0, MatrixFree(jax.random.key(0), probes=64, rank=1, order=20, max_order=20))
    assert few.bias > few.standard_error
    assert abs(few.value - log_det - misfit) <= few.error()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        enough = [hard.estimate(seed) for seed in range(5)]
    assert all(estimate.stats["order"] == 2 * OPTIONS.order for estimate in enough)
    assert np.mean([abs(estimate.value - log_det - misfit) <= estimate.error() for estimate in enough]) >= 0.9
    assert all(estimate.bias <= estimate.standard_error for estimate in enough)


def test_the_estimate_is_a_function_without_noise(moderate):
    once, again = (moderate.estimate(3).value for _ in range(2))
    assert once == again
    step = 1e-4
    beside = [moderate.estimate(3, scale=1 + step).value, moderate.estimate(3, scale=1 - step).value]
    assert abs(sum(beside) - 2 * once) < 10 * step**2 * abs(once)


def test_no_labels_no_misfit(moderate):
    data = moderate.features, np.zeros(EXAMPLES)
    estimate = estimate_energy(Problem(moderate.architecture, Data(*data)), moderate.point, OPTIONS)
    assert estimate.misfit == 0 and np.all(estimate.slopes.minus_misfit_gradient == 0)
    assert np.isfinite(estimate.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(SQUARE, id="plain"),
        pytest.param(Case((bpkr.Skip(1, 0.7), 2), 30.0, 1.0), id="skip", marks=pytest.mark.slow),
    ],
)
def test_the_saddle_point_is_within_its_stated_error(case):
    example = Example(case, EXAMPLES, FEATURES, 0.1)
    signal = np.einsum("pi,i->p", example.features[:, 0], np.linspace(-2, 2, FEATURES))
    dense = bpkr.solve(example.architecture, bpkr.Data(example.features, signal))
    options = replace(OPTIONS, repeats=6)
    found = solve(example.architecture, Data(example.features, signal), solver=options)
    assert max(found.stats["residual"]) <= 1e-6
    assert abs(found.action - dense.action) <= found.error()
    terms = action_terms(bind(example.architecture), found.order_parameters, example.features, jnp.asarray(signal))
    assert abs(found.energy - terms.energy) <= 4 * found.standard_error + found.bias
    assert_close(found.entropy, terms.entropy)
    climb = terms.total - dense.action
    assert 0 <= climb <= 10 * found.excess
    within = jax.tree.map(
        lambda mine, theirs, margin: np.abs(mine - theirs) <= margin,
        found.order_parameters,
        dense.order_parameters,
        found.margins(0.999),
    )
    assert np.mean(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(within)])) >= 0.95


def test_no_temperature_and_traced_data_are_refused(moderate):
    def estimate(architecture, labels):
        return estimate_energy(Problem(architecture, Data(moderate.features[:10], labels)), moderate.point, OPTIONS)

    with refused("temperature=0 gives no lower bound"):
        estimate(SQUARE.architecture(0.0), moderate.labels[:10])
    with refused("cannot run in jit"):
        jax.jit(lambda labels: estimate(moderate.architecture, labels))(moderate.labels[:10])


@pytest.mark.slow
def test_a_solve_cut_short_says_so(moderate):
    options = replace(OPTIONS, repeats=3)
    with pytest.warns(bpkr.ConvergenceWarning, match="a step still changes a coordinate"):
        solve(moderate.problem, solver=options, max_steps=1)
