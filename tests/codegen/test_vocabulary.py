"""The table of scalar functions: every row against mpmath, the interpreter and its symbolic derivative."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import sympy
from sympy import Integer, Max, Min, Symbol

from tests.expressions import assert_close
from theorykit.codegen import BATCH, compile_expressions, interpret
from theorykit.codegen.emission import MATRICES
from theorykit.codegen.functions import ROWS as ALL_ROWS
from theorykit.codegen.functions import TABLE
from theorykit.symbolic import gradient, latex, log_cosh, log_normal_cdf
from theorykit.symbolic.documents.mathml import mathml
from theorykit.symbolic.functions import (
    JUMPING,
    AngleBetween,
    LogCosh,
    LogNormalCDF,
    PlaneMonomial,
    SmoothedAbs,
    SmoothedRamp,
)
from theorykit.symbolic.spectral_laws import LawFunctionBase

# functions of spectral laws have tests of their own, tests/symbolic/test_spectral_laws.py
ROWS = tuple(row for row in ALL_ROWS if not issubclass(row.kind, LawFunctionBase))
X, Y = Symbol("x", real=True), Symbol("y", real=True)
ANY = (-5.3, -0.7, 0.31, 2.2, 9.4)
POSITIVE = (1e-3, 0.4, 1.7, 8.2, 61.0)
INSIDE = (-0.97, -0.4, 0.1, 0.83)
OUTSIDE = (-7.0, -1.3, 1.1, 40.0)
PAIRS = ((0.7, 1.3), (-2.1, 0.4), (3.3, 2.0))
# where each row is tried, whole numbers first or last as they stand
POINTS = {
    **dict.fromkeys((row.kind for row in ROWS), ANY),
    **dict.fromkeys((sympy.log, sympy.gamma, sympy.loggamma), POSITIVE),
    **dict.fromkeys((sympy.asin, sympy.acos, sympy.atanh, sympy.erfinv), INSIDE),
    **dict.fromkeys((sympy.asec, sympy.acsc, sympy.acoth), OUTSIDE),
    **dict.fromkeys((sympy.sinc, LogCosh), (0.0, 1e-9, *ANY, -30.0, 200.0)),
    LogNormalCDF: [(x, n) for x in (-30.0, 1e-9, *ANY) for n in (0, 2)],
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
    LogCosh: lambda x: mpmath.log(mpmath.cosh(x)),
    LogNormalCDF: lambda x, n: mpmath.diff(lambda at: mpmath.log(mpmath.ncdf(at)), x, int(n)),
    sympy.polygamma: lambda n, x: mpmath.polygamma(int(n), x),
    sympy.sinc: lambda x: mpmath.hyp0f1(mpmath.mpf(3) / 2, -(x**2) / 4),
    # as derivatives have it too: of the hypergeometric function, which has no branch at zero
    sympy.jn: lambda n, x: x**n / mpmath.fac2(2 * n + 1) * mpmath.hyp0f1(n + mpmath.mpf(3) / 2, -(x**2) / 4),
    sympy.LambertW: mpmath.lambertw,
    AngleBetween: lambda c, d: mpmath.atan2(c, abs(d)),
}


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
    symbols, values, arguments = iter((X, Y)), {}, []
    for letter, number in zip(row.arguments, point, strict=False):
        arguments.append(Integer(number) if letter == "n" else next(symbols))
        if letter == "x":
            values[arguments[-1].name] = number
    return row.kind(*arguments), values


def compiled(expressions, names, **vocabulary):
    return compile_expressions("f", expressions, [s for s in (X, Y) if s.name in names], **vocabulary)


def test_every_row_is_tried():
    assert set(POINTS) == {row.kind for row in ROWS} and len(TABLE) == len(ALL_ROWS)


def nodes(row):
    """The row as expressions, each with the points at which it is tried."""
    found = {}
    for point in tried(row):
        node, values = node_and_numbers(row, point)
        found.setdefault(node, []).append((values, point))
    return found


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
            return function(**values), jax.grad(of_values)(values), jax.jacfwd(jax.grad(of_values))(values)

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
        # the rules of these are tried against quadrature, in the tests of the table of averages
        if row.kind not in (SmoothedRamp, SmoothedAbs, PlaneMonomial):
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
    assert_close(compiled({"value": node}, list(arrays), vocabulary=BATCH)(**arrays)["value"], expected, 1e-12)


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


def test_functions_know_their_symmetries_and_signs_and_how_they_are_written():
    assert latex(log_normal_cdf(X)) == r"\log\Phi\left(x\right)"
    assert latex(log_normal_cdf(X) ** 2) == r"\left(\log\Phi\left(x\right)\right)^{2}"
    assert latex(log_cosh(X)) == r"\log\left(\cosh{\left(x \right)}\right)"
    assert log_cosh(-X) == log_cosh(X) and log_cosh(Integer(0)) == 0
    assert log_cosh(X).is_nonnegative and log_normal_cdf(X).is_negative
    assert log_cosh(X).rewrite("log").func.__name__ == "log"


def test_largest_and_smallest():
    y = Symbol("y", real=True)
    for point, other in ((0.3, -2.0), (-0.7, 1.5)):
        values = {"x": point, "y": other}
        for vocabulary in (MATRICES, BATCH):
            both = compile_expressions("f", {"max": Max(X, y, 0), "min": X * Min(X, y)}, (X, y), vocabulary)(**values)
            assert both == {"max": max(point, other, 0), "min": point * min(point, other)}
        assert interpret(Max(X, y, 0), values) == max(point, other, 0)
        slope = gradient(X * Max(X, y), X)
        assert interpret(slope, values) == compile_expressions("f", {"d": slope}, (X, y))(**values)["d"]
        assert interpret(slope, values) == (2 * point if point > other else other)
