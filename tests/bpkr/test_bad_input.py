"""Singular kernels, single precision, axes by name, extreme numbers; other wrong values are tried by `tests.faces`."""

import json
import math
import os
import re
import subprocess
import sys
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from theorykit import bpkr

from .cases import Case, changed, random_problem, refused

PAIR = Case((2, 2), (8.0, 8.0, 8.0), (1.0, 1.0, 1.0, 1.0))
PROBLEM = random_problem(PAIR, 0)
ARCHITECTURE, FEATURES, LABELS = PROBLEM.architecture, PROBLEM.features, PROBLEM.labels
POINT = bpkr.gp_limit(ARCHITECTURE)
NAN, INF, EXAMPLES = float("nan"), float("inf"), len(LABELS)


def bound(features=FEATURES, labels=LABELS, architecture=ARCHITECTURE):
    return bpkr.Problem(architecture, bpkr.Data(features, labels))


KERNEL_ALONE, WHOLE = bound(labels=None), bound()
SHARED, REPEATED = np.random.default_rng(0).normal(size=(5, 4, 1)), changed(FEATURES, 4, FEATURES[1])
REFUSED = {
    "first nan at index (3, 1, 2)": lambda: bound(changed(FEATURES, (3, 1, 2), NAN)),
    "labels is not finite in 1 entry, the first inf": lambda: bound(labels=changed(LABELS, 2, INF)),
    f"labels has {EXAMPLES - 1} examples, features has {EXAMPLES}": lambda: bound(labels=LABELS[:-1]),
    f"labels must have shape (examples), got ({EXAMPLES}, 1)": lambda: bound(labels=LABELS[:, None]),
    "features must have shape (examples, paths, features), got (5, 24)": lambda: bound(FEATURES.reshape(EXAMPLES, -1)),
    "features has 3 paths (axis 1 of shape (5, 3, 6)), but layers of (2, 2) branches make 4": lambda: bound(
        FEATURES[:, :3]
    ),
    "features has 6 paths (axis 1 of shape (5, 6, 4))": lambda: bound(FEATURES.transpose(0, 2, 1)),
    "features have 6 input features, but test_features have 4": lambda: bpkr.predict(WHOLE, POINT, FEATURES[:, :, :4]),
    "test_features has 2 paths": lambda: bpkr.predict(WHOLE, POINT, FEATURES[:, :2]),
    "test_features has zero examples": lambda: bpkr.predict(WHOLE, POINT, FEATURES[:0]),
    "other features has 2 paths": lambda: bpkr.kernel(KERNEL_ALONE, POINT, FEATURES[:, :2]),
    "2 layers need 2 matrices U_1, ..., U_2, got 1": lambda: bpkr.evaluate(
        WHOLE, bpkr.OrderParameters((np.eye(4),), 1.0)
    ),
    "U_2 is not positive definite": lambda: bpkr.optimal_readout(ARCHITECTURE, -np.eye(2)),
    "temperature=0 needs an invertible kernel, but 5 examples exceed its rank, at most paths x features": lambda: bound(
        SHARED, architecture=PAIR.architecture(0.0)
    ),
    **{
        f"readout order parameter u must be positive, got {value}": lambda value=value: bpkr.evaluate(
            WHOLE, bpkr.OrderParameters((np.eye(4), np.eye(2)), value)
        )
        for value in (0.0, -1.0)
    },
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_does_not_fit_is_refused_by_name(message):
    with refused(message):
        REFUSED[message]()


@pytest.mark.parametrize("number", ["widths[0]", "temperature"])
def test_traced_numbers_are_refused_when_they_are_known(number):
    @eqx.filter_jit
    def total(value):
        numbers = {"widths": 8.0, "temperature": 0.1, number.removesuffix("[0]"): value}
        return bpkr.evaluate(bound(architecture=bpkr.Architecture((2, 2), **numbers)), POINT).total

    with pytest.raises(RuntimeError, match=re.escape(f"{number} must be finite and")):
        total(jnp.array(-1.0)).block_until_ready()


BAD_MATRICES = {
    "U_1 is not symmetric": changed(np.eye(4), (0, 1), 0.1),
    "definite: smallest eigenvalue -0.5": np.diag([1.0, 1.0, 1.0, -0.5]),
    "U_1 must have shape (4, 4), got (4, 3)": np.ones((4, 3)),
    "U_1 is not finite in 1 entry, the first nan at index (2, 2)": changed(np.eye(4), (2, 2), NAN),
}


@pytest.mark.parametrize("message", BAD_MATRICES)
def test_order_parameters_must_be_positive_definite(message):
    bad = bpkr.OrderParameters((BAD_MATRICES[message], np.eye(2)), 1.0)
    for function in (
        lambda: bpkr.evaluate(WHOLE, bad),
        lambda: bpkr.predict(WHOLE, bad, FEATURES),
        lambda: bpkr.solve(WHOLE, initial=bad),
        lambda: bpkr.kernel(KERNEL_ALONE, bad),
        lambda: bpkr.head_scores(ARCHITECTURE, bad),
    ):
        with refused(message):
            function()


def test_order_parameters_that_are_singular_have_a_kernel_and_no_action():
    singular = bpkr.OrderParameters((np.diag([1.0, 1.0, 1.0, 0.0]), np.eye(2)), 1.0)
    assert np.all(np.isfinite(bpkr.kernel(KERNEL_ALONE, singular)))
    bpkr.predict(WHOLE, singular, FEATURES)
    for function in (bpkr.evaluate, lambda problem, point: bpkr.solve(problem, initial=point)):
        with refused("U_1 is not positive definite: smallest eigenvalue 0"):
            function(WHOLE, singular)


@pytest.mark.slow
def test_draws_of_the_law_at_narrow_widths_have_a_kernel():
    """Half of them have an eigenvalue of -1e-17, by rounding."""
    narrow = bpkr.Architecture((2, 2), (2, 2, 2), temperature=0.1)
    law = bpkr.finite_width_law(narrow)
    points = [law.order_parameters(law.sample(jax.random.key(seed))) for seed in range(20)]
    lowest = [np.linalg.eigvalsh(np.asarray(point.first))[0] for point in points]
    assert min(lowest) < 0 < max(lowest)
    for point in points:
        assert np.all(np.isfinite(bpkr.kernel(bpkr.Problem(narrow, bpkr.Data(FEATURES)), point)))


@pytest.mark.parametrize(
    "temperature, message",
    [(0.0, "temperature=0 needs an invertible kernel"), (1e-20, "not positive definite to double precision")],
)
def test_repeated_examples_need_a_temperature(temperature, message):
    """Rounding may leave the exactly singular kernel a Cholesky factor: no draw may slip through."""
    for seed in range(20):
        drawn = random_problem(PAIR, seed)
        with refused(message):
            bound(changed(drawn.features, 4, drawn.features[1]), drawn.labels, PAIR.architecture(temperature))


def test_repeated_examples_need_a_temperature_under_jit_and_vmap_too():
    def action(features):
        return bpkr.evaluate(bound(features, architecture=PAIR.architecture(0.0)), POINT).total

    both, expected = jax.jit(jax.vmap(action)), float(action(FEATURES))
    np.testing.assert_allclose(both(jnp.stack([FEATURES, FEATURES])), [expected] * 2, rtol=1e-12)
    with pytest.raises((ValueError, RuntimeError), match="temperature=0 needs an invertible kernel"):
        jax.block_until_ready(both(jnp.stack([FEATURES, REPEATED])))
    with refused("temperature=0 needs an invertible kernel, but the examples are linearly dependent"):
        jax.jit(action)(jnp.ones((5, 4, 1)))


def outcomes(script, **environment):
    """Runs `script` in a process of its own, without runtime type checks; what it prints last, as JSON."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


REPORT = """
import json, jax, numpy as np, theorykit
from theorykit import bpkr
x64 = bool(jax.config.jax_enable_x64)
inputs, attention = np.ones((3, 4, 5)), [np.ones((3, 2, 4, 4))]
def outcome(function):
    try:
        return [type(function()).__name__, ""]
    except Exception as error:
        return [type(error).__name__, str(error)]
"""


@pytest.mark.slow
def test_data_with_named_axes_are_taken_by_name():
    """In a process of its own: the type checks of the test run admit arrays of NumPy and JAX alone."""
    script = """
import jax, xarray as xr
architecture, axes = bpkr.Architecture((2, 2), 8.0, temperature=0.3), ("examples", "paths", "features")
features = xr.DataArray(np.random.default_rng(0).normal(size=(5, 4, 6)), dims=axes)
labels = xr.DataArray(np.linspace(-1, 1, 5), dims="example", coords={"example": range(5)})
point = bpkr.gp_limit(architecture)
entries = [
    lambda *data: bpkr.evaluate(bpkr.Problem(architecture, bpkr.Data(*data)), point).total,
    lambda *data: bpkr.solve(architecture, bpkr.Data(*data)).action,
    lambda *data: bpkr.predict(bpkr.Problem(architecture, bpkr.Data(*data)), point, data[0]).mean.sum(),
]
report = []
for entry in entries:
    expected = float(entry(features.values, labels.values))
    for named in (features, features.transpose("features", "examples", "paths").rename(examples="sample")):
        report.append(abs(float(entry(named, labels)) - expected))
    half_named = features.rename(examples="x").transpose("paths", "x", "features")
    for wrong in (half_named, features.assign_coords(examples=range(1, 6))):
        report.append(outcome(lambda: entry(wrong, labels)))
print(json.dumps(report))
"""
    for *differences, names, coordinates in zip(
        *[iter(outcomes(REPORT + script, JAX_ENABLE_X64="1"))] * 4, strict=True
    ):
        assert max(differences) < 1e-12
        assert "features must have the axes (examples, paths, features), got (paths, x, features)" in names[1]
        assert "features and labels have different coordinates along examples: align them first" in coordinates[1]


@pytest.mark.slow
def test_masks_with_named_axes_are_taken_by_name():
    script = """
import itertools, xarray as xr
def attended(mask, layout=None):
    return bpkr.attention(inputs, key_query=[np.zeros((2, 5, 5))], mask=mask, layout=layout)[0]
mask = np.random.default_rng(0).random((3, 2, 4, 4)) < 0.7
mask |= np.eye(4, dtype=bool)
axes = ("examples", "heads", "keys", "queries")
same = []
parts = (
    (mask, mask, axes), (mask[2, 1], mask[2:, 1:], axes[2:]), (mask[:, 0], mask[:, :1], ("batch", "key", "query")),
)
for part, spread, names in parts:
    expected = attended(spread, "keys-first")
    for order in itertools.permutations(names):
        for layout in (None, "torch", "keys-first"):
            named = xr.DataArray(part, dims=names).transpose(*order)
            same.append(bool((attended(named, layout) == expected).all()))
real = np.arange(4) < np.array([4, 2, 3])[:, None]
causal = xr.DataArray(np.tri(4, dtype=bool), dims=("queries", "keys"))
same.append(bool((attended(xr.DataArray(real.T, dims=("tokens", "examples"))) == attended(real)).all()))
same.append(bool((attended(causal) == attended("causal")).all()))
# as many examples as tokens: the names tell which is which
square = np.random.default_rng(0).normal(size=(4, 4, 5))
real = np.arange(4) < np.array([4, 2, 1, 3])[:, None]
named = xr.DataArray(real, dims=("example", "token"), coords={"example": range(4)})
dense = bpkr.Architecture((bpkr.Dense(),), 8.0, temperature=0.1)
def of_square(mask):
    return bpkr.attention(square, key_query=[np.eye(5)[None]], mask=mask)[0]
def averaged(real_tokens, inputs=square):
    return bpkr.path_features(inputs, [], dense, "mean", real_tokens=real_tokens)
for turned in (named, named.T):
    same.append(bool((of_square(turned) == of_square(real[:, None, :, None])).all()))
    same.append(bool((averaged(turned) == averaged(real)).all()))
inputs_with_axes = xr.DataArray(square, dims=("example", "token", "feature"), coords={"example": range(4)})
elsewhere = named.assign_coords(example=[3, 2, 1, 0])
labels = xr.DataArray(list("abab"), dims="example", coords={"example": range(4)})
path_features = xr.DataArray(np.ones((4, 1, 3)), dims=("example", "path", "feature"), coords=elsewhere.coords)
misaligned = [
    outcome(lambda: averaged(elsewhere, inputs_with_axes)),
    outcome(lambda: bpkr.attention(inputs_with_axes, key_query=[np.eye(5)[None]], mask=elsewhere)),
    outcome(lambda: bpkr.Data.of_classes(path_features, labels)),
]
print(json.dumps([
    same,
    outcome(lambda: attended(causal.rename(queries="rows"))),
    outcome(lambda: attended(causal.rename(queries="keys", keys="queries"))),
    misaligned,
]))
"""
    same, other_names, in_other_order, misaligned = outcomes(REPORT + script, JAX_ENABLE_X64="1")
    assert len(same) == 3 * (24 + 2 + 6) + 2 + 4 and all(same)
    expected = ("inputs and real_tokens", "inputs and mask", "features and labels")
    for (_, message), names in zip(misaligned, expected, strict=True):
        assert f"{names} have different coordinates along example: align them first" in message
    assert "mask must have axes among (examples, heads, keys, queries), got (rows, keys)" in other_names[1]
    assert "its axes are in the other order" in in_other_order[1]


EXTREMES = {
    "one unit": {"widths": 1.0},
    "less than one unit": {"widths": 0.1},
    "tiny variances": {"prior_variances": 1e-6},
    "huge variances": {"prior_variances": 1e6},
    "opposite variances": {"prior_variances": (1e-6, 1e6, 1.0, 1.0)},
    "variances that cancel": {"prior_variances": (1.0, 1e6, 1e-6, 1.0)},
    "unequal widths": {"widths": (1.0, 1000.0, 3.0)},
    "interpolation": {"temperature": 0.0},
    "tiny temperature": {"temperature": 1e-12},
    "huge temperature": {"temperature": 1e4},
    **{f"alpha {alpha:g}": {"widths": 20 / alpha} for alpha in (1e-4, 1e-2, 1.0, 1e2, 1e4)},
}
CHAINS = np.random.default_rng(0).normal(size=(20, 4, 6)) / math.sqrt(24)
SIGNS = np.random.default_rng(1).choice([-1.0, 1.0], size=20)


def extreme(**numbers) -> bpkr.Architecture:
    return bpkr.Architecture((2, 2), **{"widths": 10.0, "temperature": 0.1, **numbers})


def assert_solved(architecture, features, labels):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        saddle = bpkr.solve(architecture, bpkr.Data(features, labels))
    assert saddle.gradient_norm <= 1e-9
    assert saddle.min_hessian_eigenvalue > 0
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(eqx.filter(saddle, eqx.is_inexact_array)))


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_numbers_are_solved(name):
    assert_solved(extreme(**EXTREMES[name]), CHAINS, SIGNS)


def test_extreme_data_are_solved():
    doubled = CHAINS[:, [0, 0, 2, 2]]
    for features, labels in (
        (doubled, SIGNS),
        (CHAINS, np.ones(20)),
        (CHAINS, np.zeros(20)),
        (CHAINS, 1e6 * SIGNS),
        (0 * CHAINS, SIGNS),
        (1e-150 * CHAINS, SIGNS),
    ):
        assert_solved(extreme(), features, labels)


@pytest.mark.quick("10000.0")
@pytest.mark.parametrize("temperature", (1e-8, 1e4))
def test_extreme_temperatures_are_solved_with_more_examples_than_features(temperature):
    rng = np.random.default_rng(0)
    assert_solved(extreme(temperature=temperature), rng.normal(size=(60, 4, 6)), rng.choice([-1.0, 1.0], size=60))


@pytest.mark.parametrize(
    ("scale", "tolerance", "cause"), [(1e9, 1e-9, "labels are large"), (1.0, 1e-18, "Likely cause: the tolerance")]
)
def test_a_solve_that_rounding_stops_says_so_and_why(scale, tolerance, cause):
    doubled, architecture = CHAINS[:, [0, 0, 2, 2]], extreme(widths=1.0, temperature=1e-8)
    with pytest.warns(bpkr.ConvergenceWarning, match=f"no step lowers the action beyond rounding.*{cause}"):
        saddle = bpkr.solve(architecture, bpkr.Data(doubled, scale * SIGNS), tolerance=tolerance)
    assert jnp.isfinite(saddle.action) and jnp.isfinite(saddle.gradient_norm)
    assert not saddle.converged
