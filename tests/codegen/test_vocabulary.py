"""The table of scalar functions: every row against mpmath, the interpreter and its symbolic derivative."""

import jax
import jax.numpy as jnp
import mpmath
import pytest
import sympy
from sympy import Integer, Symbol

from tests.expressions import assert_close
from theorykit.codegen import average_errors, compile_expressions, interpret
from theorykit.codegen.functions import ROWS, TABLE
from theorykit.symbolic import gaussian_average, gradient, numeric_function
from theorykit.symbolic.averages import with_nodes
from theorykit.symbolic.documents.rendering import latex
from theorykit.symbolic.functions import JUMPING, LogCosh, LogNormalCDF

X, Y, Z = (Symbol(name, real=True) for name in "xyz")
ANY = (-5.3, -0.7, 0.31, 2.2, 9.4)
POSITIVE = (1e-3, 0.4, 1.7, 8.2, 61.0)
INSIDE = (-0.97, -0.4, 0.1, 0.83)
PAIRS = ((0.7, 1.3), (-2.1, 0.4), (3.3, 2.0))
# where each row is tried, whole numbers first or last as they stand
POINTS = {
    **dict.fromkeys((row.kind for row in ROWS), ANY),
    sympy.log: POSITIVE,
    **dict.fromkeys((sympy.asin, sympy.acos, sympy.atanh), INSIDE),
    LogCosh: (0.0, 1e-9, *ANY, -30.0, 200.0),
    LogNormalCDF: [(x, n) for x in (-30.0, 1e-9, *ANY) for n in (0, 2)],
    **dict.fromkeys((sympy.erf, sympy.erfc), (0.0, 1e-9, *ANY[:4])),
    **dict.fromkeys((sympy.atan2, sympy.Heaviside), PAIRS),
}


EXACT = {
    sympy.exp: mpmath.exp,
    sympy.log: mpmath.log,
    sympy.Abs: abs,
    sympy.sign: mpmath.sign,
    sympy.Heaviside: lambda x, y: mpmath.mpf(x > 0),
    LogCosh: lambda x: mpmath.log(mpmath.cosh(x)),
    LogNormalCDF: lambda x, n: mpmath.diff(lambda at: mpmath.log(mpmath.ncdf(at)), x, int(n)),
}


def exact(row):
    if row.kind in EXACT:
        return EXACT[row.kind]
    return getattr(mpmath, row.kind.__name__.lower())


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


def test_every_row_is_tried():
    assert set(POINTS) == {row.kind for row in ROWS} and len(TABLE) == len(ROWS)


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
def test_every_row_is_written(row):
    for node in nodes(row):
        assert latex(node**2 + node)


def lambert_w(x):
    """The principal branch of the inverse of w exp(w), by Newton's method from above."""
    improve = lambda _, w: (x * jnp.exp(-w) + w**2) / (1 + w)  # noqa: E731
    return jax.lax.fori_loop(0, 30, improve, jnp.log1p(x))


def test_a_function_outside_the_table_is_named_and_can_be_defined():
    message = r"LambertW \(in LambertW\(x\)\) is not covered: define it with symbolic.numeric_function"
    for dropped in (sympy.LambertW(X), sympy.besseli(1, X), sympy.binomial(X, 2), sympy.loggamma(X), sympy.coth(X)):
        with pytest.raises(NotImplementedError, match=message if dropped.func is sympy.LambertW else "not covered"):
            compiled({"value": dropped}, "x")
    for f, exact in ((lambert_w, mpmath.lambertw), (jax.scipy.special.i1, lambda x: mpmath.besseli(1, x))):
        function = of_one(numeric_function("f", f)(X))
        for point in (0.1, 2.0, 9.0):
            assert_close(function(point), float(mpmath.re(exact(point))), 1e-13)
            slope = mpmath.diff(lambda at, exact=exact: mpmath.re(exact(at)), point)
            assert_close(jax.grad(function)(point), float(slope), 1e-11)


def of_one(expression):
    function = compiled({"value": expression}, ["x"])
    return lambda x: function(x=x)["value"]


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
