"""Closed forms of Gaussian averages where the slope or a variance vanishes: values and derivatives of two orders."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from sympy import Abs, Float, Heaviside, Max, Rational, Symbol, erf, sign, sqrt, symbols

from tests.expressions import assert_close
from tests.marks import slow
from theorykit.codegen import compile_expressions, interpret
from theorykit.symbolic import GaussianAverage, gaussian_average, gradient
from theorykit.symbolic.documents.rendering import latex
from theorykit.symbolic.functions import AngleBetween, SmoothedKink
from theorykit.symbolic.gaussian_table import _ROWS

a, b, c, x, y, z = symbols("a b c x y z", real=True)
q = Symbol("q", positive=True)
KINKED = {Heaviside: Heaviside, sign: sign, Abs: Abs, Max: lambda at: Max(at, 0)}
SMOOTH = {kind: kind for kind in _ROWS if kind not in KINKED}
SLOPES = (0.0, 1e-200, -1e-200, 1e-9, -0.3, 0.7)
OFFSETS = (0.4, -1.1)


def everything(expression, symbols, has_curvature=True):
    """The value, gradient and Hessian by JAX, and the gradient and Hessian from symbols, or the gradient alone."""
    slopes = [gradient(expression, s) for s in symbols]
    written = {f"slope_{i}": slope for i, slope in enumerate(slopes)}
    if has_curvature:
        written |= {f"curvature_{i}_{j}": gradient(s, at) for i, s in enumerate(slopes) for j, at in enumerate(symbols)}
    function = compile_expressions("f", {"value": expression, **written}, symbols)

    @jax.jit
    def found(point):
        of = lambda point: function(**{s.name: at for s, at in zip(symbols, point, strict=True)})  # noqa: E731
        value = lambda point: jnp.asarray(of(point)["value"], float)  # noqa: E731
        return value(point), jax.grad(value)(point), jax.jacfwd(jax.grad(value))(point), of(point)

    def both(point):
        value, slope, curvature, symbolic = found(jnp.array(point))
        n = len(symbols)
        by_symbols = np.array([symbolic[f"slope_{i}"] for i in range(n)])
        if not has_curvature:
            return float(value), (slope, curvature), (by_symbols, curvature)
        curved = np.array([[symbolic[f"curvature_{i}_{j}"] for j in range(n)] for i in range(n)])
        return float(value), (slope, curvature), (by_symbols, curved)

    return both


ORDERS = ((0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2))
# value and slope, with none of the others, of what is a straight line beside its kink
LINES = {
    Heaviside: lambda at: (at > 0, 0),
    sign: lambda at: (mpmath.sign(at), 0),
    Abs: lambda at: (abs(at), mpmath.sign(at)),
    Max: lambda at: (max(at, 0), at > 0),
}


def exact(kind, power, offset, slope):
    """The same of the mean of z^power f(a + b z), of many digits."""
    with mpmath.workdps(50):
        offset, slope = mpmath.mpf(offset), mpmath.mpf(slope)
        if abs(slope) < 1e-6:
            return [float(_by_taylor(kind, power, offset, slope, *order)) for order in ORDERS]
        # by SymPy's own rules, which divide by the slope
        closed = gaussian_average(z**power * {**KINKED, **SMOOTH}[kind](a + b * z), z).rewrite(erf)
        at = {a: Float(offset, 50), b: Float(slope, 50)}
        return [float(closed.diff(a, by_a, b, by_b).subs(at).evalf(30)) for by_a, by_b in ORDERS]


def _by_taylor(kind, power, offset, slope, by_offset, by_slope):
    """The derivative of sum_j f^(j)(a) b^j E[z^(power + j)] / j!."""
    if kind in KINKED:
        derivatives = [*map(mpmath.mpf, LINES[kind](offset)), *[mpmath.mpf(0)] * 8]
    else:
        derivatives = mpmath.taylor(getattr(mpmath, kind.__name__), offset, 9)
        derivatives = [mpmath.factorial(j) * coefficient for j, coefficient in enumerate(derivatives)]
    moments = [0 if n % 2 else mpmath.fac2(n - 1) for n in range(power + 8)]
    return sum(
        derivatives[j + by_offset] * slope ** (j - by_slope) * moments[power + j] / mpmath.factorial(j - by_slope)
        for j in range(by_slope, 6)
    )


@pytest.mark.quick("Abs-2")
@pytest.mark.parametrize("power", [*slow([0, 1]), 2])
@pytest.mark.parametrize("kind", [*KINKED, erf, *slow([kind for kind in SMOOTH if kind is not erf])])
def test_every_row_has_its_limit_for_zero_slope_and_its_derivatives(kind, power):
    closed = gaussian_average(z**power * {**KINKED, **SMOOTH}[kind](a + b * z), z)
    assert not closed.has(GaussianAverage)
    both = everything(closed, (a, b))
    for offset in OFFSETS:
        for slope in SLOPES:
            value, *derivatives = both((offset, slope))
            expected = exact(kind, power, offset, slope)
            assert_close(value, expected[0], 1e-13)
            assert_close(interpret(closed, {"a": offset, "b": slope}), expected[0], 1e-13)
            for slopes, curvatures in derivatives:
                assert_close(slopes, expected[1:3], 1e-11)
                assert_close(curvatures, [[expected[3], expected[4]], [expected[4], expected[5]]], 1e-10)


@pytest.mark.parametrize("kind", [Abs, *slow([Heaviside, sign, Max])])
def test_far_from_a_kink_and_at_it_nothing_is_missing(kind):
    closed = gaussian_average(KINKED[kind](a + b * z), z)
    both = everything(closed, (a, b))
    limits = {Heaviside: 0.5, sign: 0.0, Abs: 0.0, Max: 0.0}
    for slope in (0.0, 1e-50, 1e-20):
        value, *derivatives = both((0.0, slope))
        assert value == pytest.approx(limits[kind], abs=2 * slope)
        # infinite where the mean turns into the kink itself, but never not a number
        assert not any(np.any(np.isnan(part)) for part in (*derivatives[0], *derivatives[1]))
    value, *derivatives = both((1e200, 1e-200))
    assert value == interpret(KINKED[kind](a), {"a": 1e200})
    assert not any(np.any(np.isnan(part)) for part in (*derivatives[0], *derivatives[1]))
    # the curve of a standard deviation that a parameter makes vanish
    spread = compile_expressions("f", {"value": closed.xreplace({b: c**3 - c})}, (a, c))

    def of_parameter(at, start):
        return spread(a=start, c=at)["value"]

    for start in (0.4, -1.1):
        assert jax.grad(of_parameter)(1.0, start) == 0 and np.isfinite(jax.hessian(of_parameter)(1.0, start))


@pytest.mark.parametrize("kind", slow([Abs, Heaviside, sign, Max]))
def test_two_variables_have_the_length_of_both_slopes(kind):
    closed = gaussian_average(KINKED[kind](a + b * x + c * y), x, y)
    of_length = gaussian_average(KINKED[kind](a + b * z), z)
    assert not closed.has(GaussianAverage)
    both = everything(closed, (a, b, c))
    for point in ((0.4, 0.0, 0.0), (-1.1, 1e-200, 0.0), (0.4, 0.3, -0.2)):
        value, *derivatives = both(point)
        expected = interpret(of_length, {"a": point[0], "b": np.hypot(*point[1:])})
        assert_close([value, interpret(closed, dict(zip("abc", point, strict=True)))], [expected, expected], 1e-14)
        for by_jax, by_symbols in zip(*derivatives, strict=True):
            assert np.all(np.isfinite(by_jax))
            assert_close(by_symbols, by_jax, 1e-12)
    slopes = derivatives[0][0]
    assert_close(slopes[1] / 0.3, slopes[2] / -0.2, 1e-12)


@pytest.mark.parametrize("kind", [sign, *slow([Heaviside, Abs, Max, erf])])
def test_pairs_at_correlation_one_and_variance_zero(kind):
    function = {**KINKED, erf: erf}[kind]
    closed = gaussian_average(function(a * x) * function(b * x + c * y), x, y)
    assert not closed.has(GaussianAverage)
    both = everything(closed, (a, b, c), has_curvature=False)
    # E[f(x) f(y)] for x = +-y, and for y = 0
    expected = {
        sign: (1.0, -1.0, 0.0),
        Heaviside: (0.5, 0.0, 0.25),
        Abs: (0.7 * 1.3, 0.7 * 1.3, 0.0),
        Max: (0.7 * 1.3 / 2, 0.0, 0.0),
        erf: (None, None, 0.0),
    }[kind]
    points = ((0.7, 1.3, 0.0), (0.7, -1.3, 0.0), (0.7, 0.0, 0.0))
    for point, mean in zip(points, expected, strict=True):
        value, *derivatives = both(point)
        if mean is not None:
            assert_close(value, mean, 1e-15)
        if kind is not Abs or point[1]:
            assert all(np.all(np.isfinite(part)) for part in (*derivatives[0], *derivatives[1]))
        for by_jax, by_symbols in zip(*derivatives, strict=True):
            assert_close(by_symbols, by_jax, 1e-12)
    for point in ((1e-200, 1e-200, 1e-200), (1e-50, -0.3, 0.4), (0.0, 0.0, 0.0)):
        value, *derivatives = both(point)
        assert np.isfinite(value) and not any(np.any(np.isnan(part)) for part in (*derivatives[0], *derivatives[1]))
    # close to one no difference of products is rounded
    near = both((0.7, 1.3, 1e-12))[0]
    if kind is sign:
        assert 1 - near == pytest.approx(2 / np.pi * 1e-12 / 1.3, rel=1e-3)


def test_whole_functions_know_their_closed_forms():
    assert [SmoothedKink(a, 0, n, s) for s in (0, 1) for n in (0, 1)] == [Max(a, 0), Heaviside(a), Abs(a), sign(a)]
    assert SmoothedKink(-a, -b, 1, 1) == -SmoothedKink(a, b, 1, 1)
    assert SmoothedKink(a, -b, 3, 0) == SmoothedKink(a, b, 3, 0)
    assert AngleBetween(-a, b) == -AngleBetween(a, b)
    assert latex(gaussian_average(sign(a + b * z), z)) == latex(erf(a / (2 ** Rational(1, 2) * Abs(b))))


def test_a_small_order_parameter_keeps_all_its_digits():
    closed = gaussian_average(sign(a + sqrt(q) * z), z)
    value = compile_expressions("f", {"value": closed}, (a, q))(a=1e-9, q=2.0)["value"]
    assert value == pytest.approx(1e-9 / np.sqrt(np.pi), rel=1e-14)
    near = interpret(closed, {"a": 1e-9, "q": 2.0})
    assert near == pytest.approx(float(value), rel=1e-14)
