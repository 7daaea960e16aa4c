"""Averages in generated code against the interpreter, which integrates otherwise, and against automatic derivatives."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gamma as gamma_of
from sympy import Abs, Heaviside, Max, Trace, cos, cosh, erf, erfc, exp, log, pi, sign, sqrt, symbols, tanh

from tests.codegen import hard_averages
from tests.expressions import A, H, L, N, X, assert_close, generate, random_values
from tests.marks import slow
from theorykit.codegen import average_errors, compile_expressions, interpret
from theorykit.codegen.errors import _value_and_error
from theorykit.codegen.quadrature import gaussian_mean
from theorykit.symbolic import GaussianAverage, entrywise, gradient, partial_trace
from theorykit.symbolic.atoms import LogDet
from theorykit.symbolic.averages import with_nodes

z, w, h, b = symbols("z w h b", real=True)
AVERAGES = (
    GaussianAverage(log(cosh(b * z + h)), z),
    GaussianAverage(exp(h * z) * tanh(b * z) ** 2, z),
    GaussianAverage(z * GaussianAverage(tanh(b * z + h * w / 2), w) ** 2, z),
    b * GaussianAverage(GaussianAverage(cos(z), z) * cos(h * w), w) ** 2,
    log(GaussianAverage(exp(-(z**2) * b**2) * GaussianAverage(cosh(b * w), w), z)),
)
# the interpreter takes minutes for the average of an average that cancels
CASES = [*AVERAGES[:2], *slow(AVERAGES[2:3]), *AVERAGES[3:]]
NUMBERS = st.floats(-0.7, 0.7)


def on_device(values):
    return {name: jnp.asarray(value) for name, value in values.items()}


def function_of(expression):
    return compile_expressions("average", {"value": expression}, (b, h))


@pytest.mark.parametrize("expression", CASES, ids=str)
@given(field=NUMBERS, slope=NUMBERS)
def test_generated_code_gives_what_the_interpreter_gives(expression, field, slope):
    values = {"h": field, "b": slope}
    assert_close(function_of(expression)(**values)["value"], interpret(expression, values), 1e-9)


@pytest.mark.parametrize("expression", CASES, ids=str)
@pytest.mark.parametrize("symbol", [b, h])
def test_symbolic_gradients_are_the_automatic_ones(expression, symbol):
    values, slope = {"h": 0.4, "b": -0.6}, gradient(expression, symbol)
    automatic = jax.grad(lambda at: function_of(expression)(**{**values, symbol.name: at})["value"])(
        values[symbol.name]
    )
    assert_close(function_of(slope)(**values)["value"], automatic, 1e-12)
    assert_close(interpret(slope, values), automatic, 1e-9)


def test_matrices_in_an_average_are_computed_once_before_it():
    average = GaussianAverage(log(cosh(z * Trace(A * L) / 5 + LogDet(A))), z)
    values = random_values((2, 3, 4), 0)
    expression = average**2 + GaussianAverage(average * tanh(w) * w, w)
    function = compile_expressions("average", {"value": expression}, (A, L))
    # The factor of a matrix is computed once, outside the sums over nodes.
    assert str(jax.make_jaxpr(function.call_from)(on_device(values))).count(" = cholesky ") == 1
    assert_close(function.call_from(on_device(values))["value"], interpret(expression, values), 1e-8)
    for symbol in (A, L):
        slope = gradient(expression, symbol)
        assert_close(generate(slope)(values), interpret(slope, values), 1e-8)


def test_what_depends_on_the_variable_and_is_a_matrix_is_refused_by_name():
    average = GaussianAverage(LogDet(exp(z) * A), z)
    with pytest.raises(NotImplementedError, match=r"LogDet\(exp\(z\)\*A\).*depends on z"):
        compile_expressions("average", {"value": average}, (A,))
    values = random_values((2, 3, 4), 2)
    assert_close(interpret(average, values), interpret(LogDet(A), values), 1e-12)


@pytest.mark.parametrize("nodes", [1, 2, 8, 64, 128, 151, 512, 2000])
def test_the_quadrature_integrates_polynomials_exactly(nodes):
    moment = 1.0
    for power in range(0, min(2 * nodes, 16), 2):
        assert_close(gaussian_mean(lambda point, power=power: point**power, nodes), moment, 1e-12)
        moment *= power + 1


QUICK = ("many kinks", "steep tanh")
# The number of averages per family that the composite rule does not resolve, but reports.
UNRESOLVED = {"oscillation": 3, "oscillation and step": 1, "chirp": 1}
NAMED = {family.name: family for family in hard_averages.FAMILIES}


@pytest.mark.parametrize("name", [*QUICK, *slow(sorted(set(NAMED) - set(QUICK)))])
def test_the_stated_error_covers_the_true_one(name):
    for rule, found in hard_averages.trials(NAMED[name]).items():
        unresolved = 0
        for trial in found:
            stated, size = trial.stated[0], max(1.0, abs(trial.true[0]))
            error, of_slope = np.abs(np.subtract(trial.found, trial.true))
            assert error <= stated + 1e-15 * size, (rule, trial)
            # Differences of true values, which give the slopes, are rounded.
            rounding = 1e-14 + 1e-9 * np.max(np.abs(trial.true))
            assert stated >= 1e-6 * size or of_slope <= 2 * sum(trial.stated) + rounding, (rule, trial)
            unresolved += stated >= 1e-6 * size
        assert rule == "default" or unresolved <= UNRESOLVED.get(name, 0)


SIMPLE = ("ramp", "kink of a kink", "step of a curve", "largest of three", "tilted", "narrow bump", "power")


@pytest.mark.parametrize("name", [*SIMPLE, *slow(sorted(set(NAMED) - set(SIMPLE)))])
def test_the_interpreter_is_right_on_hard_averages(name):
    family = NAMED[name]
    for values, (mean, _) in zip(family.values, hard_averages.TRUTHS[name], strict=True):
        # the last step towards a pole of power -3/4
        tolerance = 1e-9 if name == "weak pole" else 1e-13
        assert_close(interpret(GaussianAverage(family.integrand, z), values), float(mean), tolerance)


# integrands with their derivatives by h and b, once and twice, of means that are known
SECOND = {
    "kink": (Abs(z - h) * b, b * (2 * exp(-(h**2) / 2) / sqrt(2 * pi) + h * erf(h / sqrt(2)))),
    "step": (Heaviside(b * z - h), erfc(h / (sqrt(2) * b)) / 2),
    "step of a curve": (sign(exp(z) - exp(h)) * b**2, -(b**2) * erf(h / sqrt(2))),
    "kink of a square": (Max(h**2 - z**2, 0), (h**2 - 1) * erf(h / sqrt(2)) + h * sqrt(2 / pi) * exp(-(h**2) / 2)),
    "tilted bump": (exp(-(((z - h) / b) ** 2)), b * exp(-(h**2) / (2 + b**2)) / sqrt(2 + b**2)),
}


@pytest.mark.quick("step-64", "tilted bump-64")
@pytest.mark.parametrize("nodes", [64, *slow(["adaptive"])])
@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives_move_with_kinks_and_jumps(name, nodes):
    integrand, mean = SECOND[name]
    function = compile_expressions("f", {"value": GaussianAverage(integrand, z, nodes)}, (b, h))

    def value(point):
        return function(b=point[0], h=point[1])["value"]

    point, at = jnp.array([0.9, 0.4]), {"b": 0.9, "h": 0.4}
    expected = [[interpret(mean.diff(i, j), at) for i in (b, h)] for j in (b, h)]
    assert_close(value(point), interpret(mean, at), 1e-13)
    assert_close(jax.jit(jax.grad(value))(point), [interpret(mean.diff(i), at) for i in (b, h)], 1e-12)
    for second in (jax.jacfwd(jax.grad(value)), jax.jacrev(jax.jacfwd(value))):
        assert_close(jax.jit(second)(point), expected, 1e-11)


@pytest.mark.slow
def test_the_adaptive_rule_is_taken_over_batches_and_within_itself():
    average = GaussianAverage(tanh(b * z + h * GaussianAverage(Abs(w - z), w)) ** 2 / (1 + 100 * z**2), z)
    average = with_nodes(average, "adaptive")
    values = {"h": np.array([0.1, -0.5, 0.7]), "b": np.array([3.0, 0.2, -60.0])}
    expected = [interpret(average, {"h": x, "b": y}) for x, y in zip(values["h"], values["b"], strict=True)]
    given = on_device(values)
    single = compile_expressions("f", {"value": average}, (b, h))
    assert_close(jax.jit(jax.vmap(lambda given: single(**given)["value"]))(given), expected, 1e-12)
    slope = jax.jit(jax.vmap(jax.grad(lambda given: single(**given)["value"])))(given)
    step = 1e-5
    for name in values:
        ends = [
            [interpret(average, {"h": x, "b": y, name: {"h": x, "b": y}[name] + side * step}) for side in (1, -1)]
            for x, y in zip(values["h"], values["b"], strict=True)
        ]
        assert_close(slope[name], [(upper - lower) / (2 * step) for upper, lower in ends], 1e-6)


UNKNOWN = GaussianAverage(Abs(z - h) ** b * exp(w * z**2), z)


INFINITE = [
    *((-2.0, 0.0, 0.0), (-1.0, 0.0, 0.1), (-1.0, 1.0, 0.0), (-3.0, 0.4, 0.0)),
    *((0.0, 0.3, 0.6), (2.0, 0.0, 0.5), (1.0, 0.0, 3.0)),
]


def quadrature_error(expression, values):
    return _value_and_error(expression, values)[1]


@pytest.mark.parametrize(("power", "place", "curvature"), INFINITE)
def test_an_infinite_average_has_an_infinite_error(power, place, curvature):
    values = {"b": power, "h": place, "w": curvature}
    [(_, error)] = average_errors(UNKNOWN, values).values()
    assert np.isposinf(error) and np.isposinf(quadrature_error(UNKNOWN, values))


def test_a_finite_average_of_the_same_kind_has_a_small_error():
    for power, curvature in ((-0.5, 0.0), (2.0, 0.3), (1.0, -4.0)):
        values = {"b": power, "h": 0.0, "w": curvature}
        moment = (
            2 ** (power / 2) * gamma_of((power + 1) / 2) / np.sqrt(np.pi) * (1 - 2 * curvature) ** (-(power + 1) / 2)
        )
        [(value, error)] = average_errors(UNKNOWN, values).values()
        assert abs(value - moment) <= error
        assert_close(refined_value(UNKNOWN, values), moment, 1e-12)


@cache
def compiled_refined(average):
    return jax.jit(compile_expressions("f", {"value": with_nodes(average, "adaptive")}, (b, h, w)).call_from)


def refined_value(average, values):
    return compiled_refined(average)(on_device(values))["value"]


def test_only_the_wanted_derivative_needs_a_rule():
    average = GaussianAverage(exp(h * z) * Heaviside(z**2 - b), z)
    # A moment of a normal number.
    second = interpret(gradient(gradient(average, h), h), {"h": 0.0, "b": 0.0})
    assert_close(second, 1.0, 1e-12)
    with pytest.raises(NotImplementedError, match="the derivative by b has no rule for Heaviside"):
        gradient(average, b)


def test_errors_of_averages_add_up_in_the_value_and_name_the_worst():
    steep, smooth = GaussianAverage(tanh(50 * (z - h)), z), GaussianAverage(tanh(z - h) ** 2, z)
    expression = smooth**2 * A + h * steep * A
    values = {A: jnp.diag(jnp.array([1.0, 2.0])), "h": 0.3}
    error = quadrature_error(expression, values)
    value = interpret(expression, {"A": np.asarray(values[A]), "h": 0.3})
    found = compile_expressions("f", {"value": expression}, (A, h)).call_from(values)["value"]
    assert np.all(np.abs(found - value) <= error + 1e-15) and error[0, 1] == 0
    assert error[0, 0] <= 1.01 * abs(found[0, 0] - value[0, 0]) and error[1, 1] == 2 * error[0, 0]
    with jax.numpy_rank_promotion("raise"):
        each = average_errors(expression, values)
    assert set(each) == {steep, smooth} and each[steep][1] > 0.01 > 1e-6 > each[smooth][1]
    assert quadrature_error(h**2, {"h": 2.0}) == 0 and average_errors(h**2, {"h": 2.0}) == {}
    with pytest.raises(ValueError, match="values has no entries for A, "):
        quadrature_error(expression, {"h": 0.3})


def test_sizes_may_be_given_with_the_matrices():
    expression = A + partial_trace(X, (H, N), 1)
    assert not np.any(quadrature_error(expression, {A: jnp.eye(2), X: jnp.eye(6), H: 2}))


@pytest.mark.slow
def test_errors_are_known_within_functions_of_entries():
    function = entrywise(lambda entry: GaussianAverage(tanh(20 * (z - entry)), z), L)
    values = {"L": random_values((2, 3, 4), 1)["L"], "H": 2.0}
    compiled = compile_expressions("average", {"value": function}, (L,))
    found = np.abs(compiled.call_from(on_device(values))["value"] - interpret(function, values))
    error = quadrature_error(function, {"L": values["L"]})
    assert np.all(found <= error) and np.all(error <= 1.01 * found + 1e-14)
