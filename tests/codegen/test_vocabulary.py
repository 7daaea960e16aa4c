"""The table of scalar functions: every row against mpmath, the interpreter and its symbolic derivative."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sympy import Integer, Max, Min, Symbol

from tests.expressions import assert_close
from theorykit.codegen import BATCH, average_errors, compile_expressions, interpret
from theorykit.codegen.jax_algebra import Jax
from theorykit.codegen.functions import ROWS as ALL_ROWS
from theorykit.codegen.functions import TABLE
from theorykit.symbolic import (
    bivariate_normal_cdf,
    gaussian_average,
    gradient,
    latex,
    log_bivariate_normal_cdf,
    log_cosh,
    log_normal_cdf,
    with_nodes,
)
from theorykit.symbolic.documents.mathml import mathml
from theorykit.symbolic.functions import (
    JUMPING,
    AngleBetween,
    LogBivariateNormalCDF,
    LogCosh,
    Logistic,
    LogNormalCDF,
    PlaneMonomial,
    SmoothedAbs,
    SmoothedRamp,
)
from theorykit.symbolic.spectral_laws import LawFunctionBase

# functions of spectral laws have tests of their own, tests/symbolic/test_spectral_laws.py
ROWS = tuple(row for row in ALL_ROWS if not issubclass(row.kind, LawFunctionBase))
X, Y, Z = (Symbol(name, real=True) for name in "xyz")
ANY = (-5.3, -0.7, 0.31, 2.2, 9.4)
POSITIVE = (1e-3, 0.4, 1.7, 8.2, 61.0)
INSIDE = (-0.97, -0.4, 0.1, 0.83)
OUTSIDE = (-7.0, -1.3, 1.1, 40.0)
# limits far in both tails, limits that nearly cancel, and correlations near -1 and 1
LIMITS = (
    *((0.3, -1.2, 1 / 3), (-30.0, -37.5, -1 / 3), (-38.0, 38.0, 0.4), (12.0, -12.5, -0.999), (1e-4, -2e-4, -1 + 1e-9)),
    *((-9.0, -9.001, 1 - 1e-9), (3.0, 5.0, 0.9), (-2.0, 0.0, 1e-9)),
)
PAIRS = ((0.7, 1.3), (-2.1, 0.4), (3.3, 2.0))
# where each row is tried, whole numbers first or last as they stand
POINTS = {
    **dict.fromkeys((row.kind for row in ROWS), ANY),
    **dict.fromkeys((sympy.log, sympy.gamma, sympy.loggamma), POSITIVE),
    **dict.fromkeys((sympy.asin, sympy.acos, sympy.atanh, sympy.erfinv), INSIDE),
    **dict.fromkeys((sympy.asec, sympy.acsc, sympy.acoth), OUTSIDE),
    **dict.fromkeys((sympy.sinc, LogCosh), (0.0, 1e-9, *ANY, -30.0, 200.0)),
    Logistic: (0.0, 1e-9, *ANY, -30.0, -800.0, 800.0),
    LogNormalCDF: [(x, n) for x in (-30.0, 1e-9, *ANY) for n in (0, 2)],
    LogBivariateNormalCDF: LIMITS,
    **dict.fromkeys((sympy.erf, sympy.erfc, sympy.erfi), (0.0, 1e-9, *ANY[:4])),
    sympy.acosh: (1.01, 1.7, 30.0),
    sympy.asech: (0.02, 0.5, 0.97),
    sympy.factorial: (-0.6, 0.0, 2.5, 20.0),
    sympy.LambertW: (-0.36, -0.1, 0.0, 1e-9, 0.5, 2.9, 3.1, 1e3, 1e200),
    sympy.polygamma: [(n, x) for n in (0, 1, 4) for x in POSITIVE],
    sympy.jn: [(n, x) for n in (0, 1, 5) for x in (0.0, 1e-3, *ANY, 60.0)],
    sympy.besseli: [(n, x) for n in (0, 1, 4) for x in (0.0, 1e-3, *ANY, 19.9, 20.1, 300.0)],
    **dict.fromkeys((sympy.atan2, sympy.Heaviside, AngleBetween, sympy.Mod), PAIRS),
    sympy.binomial: ((5.0, 2.5), (0.7, 1.1), (70.0, 35.0)),
    sympy.beta: ((0.3, 4.0), (2.0, 2.0)),
    SmoothedRamp: [(a, b, n, k) for a, b in PAIRS for n, k in ((0, 0), (1, 0), (4, 1))],
    SmoothedAbs: [(a, b, n, 0) for a, b in PAIRS for n in (0, 1)],
    PlaneMonomial: [(c, d, *order) for c, d in PAIRS for order in ((2, 3, 1, 0), (0, 0, 0, -1))],
}


def log_orthant(h, k, r):
    """The logarithm of the bivariate normal distribution function, from the angle at which each point is seen.

    In polar coordinates about the corner (h, k), in variables in which the density is isotropic, the integral over the
    radius is 1 - b exp(b^2 / 2) Phi(-b) sqrt(2 pi) with the distance b along the ray.
    """
    s = mpmath.sqrt(1 - r**2)
    # the edges of the wedge leave the corner in directions whose angles with the x axis are these
    first, opening = -mpmath.pi / 2, mpmath.acos(-r)
    corner = mpmath.matrix([h, (k - r * h) / s])
    size = corner[0] ** 2 + corner[1] ** 2

    def of_ray(angle):
        along = corner[0] * mpmath.cos(first - angle) + corner[1] * mpmath.sin(first - angle)
        tail = mpmath.exp((along**2 - size) / 2) * mpmath.erfc(along / mpmath.sqrt(2)) * mpmath.sqrt(mpmath.pi / 2)
        return mpmath.exp(-size / 2) - along * tail

    towards = first - mpmath.atan2(-corner[1], -corner[0])
    widths = [4**i / (1 + mpmath.sqrt(size)) for i in range(-1, 4)]
    centres = (0, towards, towards + 2 * mpmath.pi, opening)
    places = [at + sign * width for at in centres for width in (0, *widths) for sign in (1, -1)]
    edges = [0, *sorted(at for at in set(places) if 0 < at < opening), opening]
    largest = max(map(of_ray, edges))
    integral = mpmath.quad(lambda angle: of_ray(angle) / largest, edges)
    return mpmath.log(largest * integral / (2 * mpmath.pi))


EXACT = {
    sympy.exp: mpmath.exp,
    sympy.log: mpmath.log,
    sympy.Abs: abs,
    sympy.sign: mpmath.sign,
    sympy.Heaviside: lambda x, y: mpmath.mpf(x > 0),
    sympy.ceiling: mpmath.ceil,
    sympy.frac: lambda x: x - mpmath.floor(x),
    sympy.Mod: lambda x, y: x - y * mpmath.floor(x / y),
    sympy.acot: lambda x: mpmath.atan(1 / x),
    Logistic: lambda x: 1 / (1 + mpmath.exp(-x)),
    LogCosh: lambda x: mpmath.log(mpmath.cosh(x)),
    LogNormalCDF: lambda x, n: mpmath.diff(lambda at: mpmath.log(mpmath.ncdf(at)), x, int(n)),
    LogBivariateNormalCDF: log_orthant,
    sympy.polygamma: lambda n, x: mpmath.polygamma(int(n), x),
    sympy.sinc: lambda x: mpmath.hyp0f1(mpmath.mpf(3) / 2, -(x**2) / 4),
    # as derivatives have it too: of the hypergeometric function, which has no branch at zero
    sympy.jn: lambda n, x: x**n / mpmath.fac2(2 * n + 1) * mpmath.hyp0f1(n + mpmath.mpf(3) / 2, -(x**2) / 4),
    sympy.LambertW: mpmath.lambertw,
    AngleBetween: lambda c, d: mpmath.atan2(c, abs(d)),
}


# their derivatives are tried in the tests of the table of averages, and below
TRIED_ELSEWHERE = (SmoothedRamp, SmoothedAbs, PlaneMonomial, LogBivariateNormalCDF)


def exact(row):
    if row.kind in EXACT:
        return EXACT[row.kind]
    if hasattr(mpmath, row.kind.__name__.lower()):
        return getattr(mpmath, row.kind.__name__.lower())
    # the closed form, in many digits
    form = sympy.sign if row.kind is PlaneMonomial else sympy.erf
    return lambda *at: mpmath.mpf(row.kind(*_arguments(row, at)).rewrite(form).evalf(30)._mpf_)


def _arguments(row, at):
    pairs = zip(row.arguments, at, strict=True)
    return [Integer(int(number)) if letter == "n" else sympy.Float(number, 40) for letter, number in pairs]


def tried(row):
    return [point if isinstance(point, tuple) else (point,) for point in POINTS[row.kind]]


def node_and_numbers(row, point):
    """The row of symbols for its numbers, and those by name."""
    symbols, values, arguments = iter((X, Y, Z)), {}, []
    for letter, number in zip(row.arguments, point, strict=False):
        arguments.append(Integer(number) if letter == "n" else next(symbols))
        if letter == "x":
            values[arguments[-1].name] = number
    return row.kind(*arguments), values


def compiled(expressions, names, **options):
    return compile_expressions("f", expressions, [s for s in (X, Y, Z) if s.name in names], **options)


COMPILED_BIVARIATE = jax.jit(lambda **values: compiled({"value": LogBivariateNormalCDF(X, Y, Z)}, "xyz")(**values))


def test_every_row_is_tried():
    assert set(POINTS) == {row.kind for row in ROWS} and len(TABLE) == len(ALL_ROWS)


def nodes(row):
    """The row as expressions, each with the points at which it is tried."""
    found = {}
    for point in tried(row):
        node, values = node_and_numbers(row, point)
        found.setdefault(node, []).append((values, point))
    return found


@pytest.mark.quick(4)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.kind.__name__)
def test_values_and_derivatives_are_those_of_many_digits_of_the_interpreter_and_of_symbols(row):
    for node, points in nodes(row).items():
        names = list(points[0][0])
        arrays = {name: jnp.array([values[name] for values, _ in points]) for name in names}
        # functions that jump have no symbolic gradient
        slopes = {} if isinstance(node, JUMPING) else {name: gradient(node, Symbol(name, real=True)) for name in names}
        function = compiled({"value": node, **slopes}, names)

        @jax.jit
        @jax.vmap
        def everything(values, function=function):
            of_values = lambda values: function(**values)["value"]  # noqa: E731
            second = {} if row.kind in TRIED_ELSEWHERE else jax.jacfwd(jax.grad(of_values))(values)
            return function(**values), jax.grad(of_values)(values), second

        found, automatic, curvatures = everything(arrays)
        for i, (values, point) in enumerate(points):
            expected = exact_derivatives(row, point)
            assert_close(found["value"][i], expected[0], 1e-12)
            assert_close(interpret(node, values), expected[0], 1e-12)
            for name in slopes:
                assert_close(found[name][i], automatic[name][i], 1e-11)
                assert_close(interpret(slopes[name], values), automatic[name][i], 1e-10)
            for name, (slope, curvature) in zip(names, expected[1:], strict=False):
                assert_close(automatic[name][i], slope, 1e-11)
                assert_close(curvatures[name][name][i], curvature, 1e-10)


def exact_derivatives(row, point):
    """The value, and the first and second derivative by each number unless they are known from symbols alone."""
    with mpmath.workdps(40):
        numbers = [
            int(at) if letter == "n" else mpmath.mpf(at) for letter, at in zip(row.arguments, point, strict=False)
        ]
        found = [float(mpmath.re(exact(row)(*numbers)))]
        if row.kind not in TRIED_ELSEWHERE:
            for place, letter in enumerate(row.arguments[: len(point)]):
                if letter == "x":
                    found.append(_derivatives(exact(row), numbers, place))
    return found


def _derivatives(function, numbers, place):
    if function is EXACT[LogNormalCDF]:
        return [float(function(numbers[0], numbers[1] + order)) for order in (1, 2)]

    def of_one(at):
        return mpmath.re(function(*numbers[:place], at, *numbers[place + 1 :]))

    return [float(mpmath.diff(of_one, numbers[place], order)) for order in (1, 2)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.kind.__name__)
def test_every_row_is_written_and_runs_on_a_batch(row):
    for node in nodes(row):
        assert mathml(latex(node**2 + node))
    node, points = next(iter(nodes(row).items()))
    arrays = {name: jnp.array([values[name] for values, _ in points]) for name in points[0][0]}
    expected = [interpret(node, values) for values, _ in points]
    assert_close(compiled({"value": node}, list(arrays), algebra=BATCH)(**arrays)["value"], expected, 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("point", [(0.3, -1.2, 1 / 3), (-2.5, -1.0, -0.9)])
def test_derivatives_of_the_bivariate_normal_distribution_function(point):
    node, values = node_and_numbers(TABLE[LogBivariateNormalCDF], point)
    slopes = {name: gradient(node, Symbol(name, real=True)) for name in values}
    function = compiled(slopes, values)
    found = function(**values)
    with mpmath.workdps(40):
        for i, name in enumerate(values):
            numbers = list(map(mpmath.mpf, point))
            slope = mpmath.diff(lambda at, i=i, n=numbers: log_orthant(*n[:i], at, *n[i + 1 :]), numbers[i], h=1e-12)
            assert_close(found[name], float(slope), 1e-12)
    second = jax.jit(jax.jacfwd(lambda at: function(**at)))(values)
    for name, slope in slopes.items():
        for other in values:
            assert_close(second[name][other], interpret(gradient(slope, Symbol(other, real=True)), values), 1e-10)
            assert_close(second[name][other], second[other][name], 1e-10)


def test_bivariate_normal_distribution_function_knows_its_symmetry_limits_and_domain():
    for r in (-1 + 1e-12, -0.7, 1 / 3, 0.999):
        assert_close(at_limits(0.0, 0.0, r), np.log(np.arctan2(np.sqrt((1 - r) * (1 + r)), -r) / (2 * np.pi)), 1e-14)
        assert_close(at_limits(-7.0, 38.0, r), scipy.special.log_ndtr(-7.0), 1e-14)
    assert log_bivariate_normal_cdf(X, Y, Z) == log_bivariate_normal_cdf(Y, X, Z)
    assert log_bivariate_normal_cdf(X, Y, 0) == log_normal_cdf(X) + log_normal_cdf(Y)
    assert log_bivariate_normal_cdf(X, Y, Z).is_negative
    assert np.all(np.isnan([at_limits(0.0, 1.0, r) for r in (-1.0, 1.0, 1.5, np.nan)]))
    for r in (-1, Integer(1), 1.5):
        with pytest.raises(ValueError, match="between -1 and 1"):
            bivariate_normal_cdf(X, Y, r)
    assert latex(bivariate_normal_cdf(X, Y, Z)) == r"\Phi_{2}\left(x, y; z\right)"
    with mpmath.workdps(40):
        for point in LIMITS[:3]:
            exact = log_orthant(*map(mpmath.mpf, point))
            digits = log_bivariate_normal_cdf(*(sympy.Float(each, 40) for each in point)).evalf(30)
            assert abs(digits / exact - 1) < 1e-28


def at_limits(h, k, r):
    return COMPILED_BIVARIATE(x=h, y=k, z=r)["value"]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(arrays(float, (64, 2), elements=st.floats(-38, 38)), arrays(float, 64, elements=st.floats(-1, 1, width=32)))
def test_bivariate_normal_distribution_function_agrees_with_plackett(limits, r):
    r = np.clip(r, -1 + 1e-12, 1 - 1e-12)
    h, k = limits.T
    found, swapped = at_limits(h, k, r), at_limits(k, h, r)
    expected = interpret(log_bivariate_normal_cdf(X, Y, Z), {"x": h, "y": k, "z": r})
    # Both are accurate to some rounding errors of h, k and the conditional limits.
    s = np.sqrt((1 - r) * (1 + r))
    slopes = [
        np.exp(scipy.special.log_ndtr((b - r * a) / s) - a**2 / 2 - expected) / np.sqrt(2 * np.pi)
        for a, b in ((h, k), (k, h))
    ]
    bound = 2e-16 * (100 + 4 * abs(expected) + 4 * (abs(h) + abs(k)) * sum(slopes))
    assert np.all(abs(found - expected) <= bound) and np.all(abs(found - swapped) <= bound)


def of_one(expression):
    function = compiled({"value": expression}, ["x"])
    return lambda x: function(x=x)["value"]


@pytest.mark.parametrize("point", [-1e3, 1e3, -1e8, 1e8])
def test_far_out_nothing_overflows(point):
    even, tail = of_one(log_cosh(X)), of_one(log_normal_cdf(X))
    assert_close(even(point), abs(point) - np.log(2), 1e-15)
    assert (jax.grad(even)(point), jax.grad(jax.grad(even))(point)) == (np.sign(point), 0)
    leading = -(point**2) / 2 - np.log(-point * np.sqrt(2 * np.pi)) if point < 0 else 0.0
    assert_close(tail(point), leading, 1e-9)
    if abs(point) < 1e4:
        slope = interpret(gradient(log_normal_cdf(X), X), {"x": point})
        assert_close(slope, -point if point < 0 else 0.0, 1e-5)


RATIOS = {
    "tanh": sympy.sinh(X) / sympy.cosh(X),
    "tanh and power": Y * sympy.sinh(X) ** 2 / sympy.cosh(X) ** 3,
    "Fermi": sympy.exp(X) / (1 + sympy.exp(X)),
    "slope of Fermi": sympy.exp(-X) / (1 + sympy.exp(-X)) ** 2,
    "three states": sympy.log(sympy.exp(X) + 3 * sympy.exp(-2 * X) + Y**2).diff(X),
    "two cosines": sympy.log(sympy.cosh(X) + sympy.cosh(2 * X)).diff(X),
    "three factors": sympy.exp(2 * X) * sympy.sinh(X) / (1 + sympy.exp(X)) ** 3,
    "Gaussian": Y * sympy.exp(-(X**2)) / (1 + sympy.exp(-(X**2))),
}


@pytest.mark.parametrize("name", RATIOS)
@pytest.mark.parametrize("point", [1e-9, 0.3, -2.0, 30.0, 800.0, -900.0, 1e5])
def test_ratios_of_exponentials_neither_overflow_nor_cancel(name, point):
    function = compiled({"value": RATIOS[name]}, ["x", "y"])
    found, slope = jax.jvp(lambda x: function(x=x, y=0.7)["value"], (point,), (1.0,))
    with mpmath.workdps(40):
        exact, exact_slope = (
            sympy.lambdify((X, Y), each, "mpmath")(mpmath.mpf(point), mpmath.mpf(0.7))
            for each in (RATIOS[name], RATIOS[name].diff(X))
        )
    assert_close(found, float(exact), 1e-13)
    # The interpreter adds logarithms, whose rounding errors are multiples of their size.
    assert_close(interpret(RATIOS[name], {"x": point, "y": 0.7}), float(exact), 1e-15 * (100 + abs(point)))
    assert abs(slope - float(exact_slope)) <= 1e-12 * abs(float(exact_slope)) + 1e-15 * abs(float(exact))


@pytest.mark.parametrize(
    "of", [2 * sympy.cosh(X), 1 + 2 * sympy.exp(X), sympy.exp(-X) + sympy.cosh(X / 2) - 1 / Integer(2)]
)
def test_the_interpreter_takes_logarithms_of_numbers_that_overflow(of):
    for point in (0.3, 800.0, -1e4):
        with mpmath.workdps(40):
            exact = sympy.lambdify(X, sympy.log(of), "mpmath")(mpmath.mpf(point))
        assert_close(interpret(sympy.log(of), {"x": point}), float(exact), 1e-14)


def test_a_steep_average_of_log_cosh_has_a_slope():
    # The hyperbolic functions of its slope overflow, as 31 x 38 > 710.
    average = gaussian_average(sympy.log(2 * sympy.cosh(31 * X + Y)), X)
    ((value, error),) = average_errors(with_nodes(gradient(average, Y), "adaptive"), {"y": -4.0}).values()
    assert_close(value, interpret(gaussian_average(sympy.tanh(31 * X + Y), X), {"y": -4.0}), 1e-12)
    assert error < 1e-13


def test_functions_know_their_symmetries_and_signs():
    assert log_cosh(-X) == log_cosh(X) and log_cosh(Integer(0)) == 0
    assert log_cosh(X).is_nonnegative and log_normal_cdf(X).is_negative
    assert log_cosh(X).rewrite("log").func.__name__ == "log"


def test_largest_and_smallest():
    y = Symbol("y", real=True)
    for point, other in ((0.3, -2.0), (-0.7, 1.5)):
        values = {"x": point, "y": other}
        for algebra in (Jax, BATCH):
            both = compile_expressions("f", {"max": Max(X, y, 0), "min": X * Min(X, y)}, (X, y), algebra)(**values)
            assert both == {"max": max(point, other, 0), "min": point * min(point, other)}
        assert interpret(Max(X, y, 0), values) == max(point, other, 0)
        slope = gradient(X * Max(X, y), X)
        assert interpret(slope, values) == compile_expressions("f", {"d": slope}, (X, y))(**values)["d"]
        assert interpret(slope, values) == (2 * point if point > other else other)
