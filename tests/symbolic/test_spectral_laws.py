"""Spectral laws: moments, transforms and derivatives against roots of the polynomial, digits and sampled matrices."""

from functools import partial

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from theorykit.codegen import compile_expressions, interpret, quadrature_error
from theorykit.codegen.spectral_laws import _nodes, spectral_average
from theorykit.symbolic import gradient, latex, marchenko_pastur, semicircle
from theorykit.symbolic.documents.mathml import mathml
from theorykit.symbolic.functions import many_digits
from theorykit.symbolic.spectral_laws import CubeOfDensity, SpectralAverage

NOISE, RATIO, Z = sp.symbols("Delta kappa z", positive=True)
MP, WIGNER = marchenko_pastur(RATIO), semicircle(NOISE)
SUM = MP + WIGNER
POINT = {"Delta": 0.7, "kappa": 1.6, "z": 1.3}
CRITICAL = (1 - 0.5 ** (1 / 3)) ** 3
# with one interval and with two, with edges close to each other and to zero, almost a semicircle, almost without one
LAWS = [(1.0, 0.5), (0.01, 0.5), (1e-4, 0.5), (10.0, 0.1), (0.3, 2.0), (1e-4, 1.0), (1e-3, 5.0), (100.0, 0.05)]
LAWS += [(1e-6, 1e-3), (CRITICAL, 0.5), (CRITICAL * (1 - 1e-6), 0.5), (CRITICAL * (1 + 1e-6), 0.5)]


def moments(v, c):
    nodes = _nodes(v, c)
    return [float(jnp.sum(nodes.masses * nodes.positions**k)) for k in range(4)]


@pytest.mark.parametrize(("v", "c"), LAWS)
def test_the_moments_are_those_of_the_free_cumulants(v, c):
    mass, mean, square, cube = moments(v, c)
    # free cumulants are c, c + v, c
    assert mass == pytest.approx(1, abs=1e-13)
    assert mean == pytest.approx(c, rel=1e-12)
    assert square == pytest.approx(c + v + c**2, rel=1e-12)
    assert cube == pytest.approx(c + 3 * c * (c + v) + c**3, rel=1e-11, abs=1e-13)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.floats(-6, 3), st.floats(-3, 2))
def test_any_law_has_mass_one(log_v, log_c):
    v, c = 10**log_v, 10**log_c
    mass, mean, square, _ = moments(v, c)
    assert mass == pytest.approx(1, abs=1e-12)
    assert mean == pytest.approx(c, rel=1e-11, abs=1e-13 * v**0.5)
    assert square == pytest.approx(c + v + c**2, rel=1e-11)


EXPRESSIONS = {
    "mean of a square": SUM.average(lambda s: s**2),
    "mean of a logarithm": SUM.average(lambda s: 2 * sp.log(3 * s + 9)),
    "mean of a function": SUM.average(lambda s: sp.exp(-Z * s) + 1),
    "density": SUM.density(Z),
    "transform": SUM.stieltjes(Z + 8),
    "potential": SUM.log_potential(Z + 8),
    "cube of the density": SUM.cube_of_density(),
    "energy": SUM.log_energy(),
    "Marchenko-Pastur: logarithm": MP.average(lambda s: sp.log(s + Z)),
    "Marchenko-Pastur: function": MP.average(lambda s: sp.cos(Z * s)),
    "Marchenko-Pastur: cube": MP.cube_of_density(),
    "semicircle: function": WIGNER.average(lambda s: sp.cos(Z * s)),
    "semicircle: potential": WIGNER.log_potential(Z + 4),
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_values_and_derivatives_are_those_of_the_interpreter_and_of_differences(name):
    expression = EXPRESSIONS[name]
    symbols = [symbol for symbol in (NOISE, RATIO, Z) if expression.has_free(symbol)]
    values = {symbol.name: POINT[symbol.name] for symbol in symbols}
    slopes = {symbol.name: gradient(expression, symbol) for symbol in symbols}
    function = compile_expressions("f", {"value": expression, **slopes}, symbols)
    found, automatic = jax.jit(lambda at: (function(**at), jax.grad(lambda at: function(**at)["value"])(at)))(values)
    assert float(found["value"]) == pytest.approx(interpret(expression, values), rel=1e-11)
    for symbol in symbols:
        name = symbol.name
        assert float(found[name]) == pytest.approx(float(automatic[name]), rel=1e-11, abs=1e-13)
        assert float(found[name]) == pytest.approx(interpret(slopes[name], values), rel=1e-8, abs=1e-11)

        def at(step, name=name):
            return interpret(expression, {**values, name: values[name] + step})

        h = 1e-3
        difference = (8 * (at(h) - at(-h)) - at(2 * h) + at(-2 * h)) / (12 * h)
        assert float(found[name]) == pytest.approx(difference, rel=1e-7, abs=1e-9)
    assert mathml(latex(expression))


VALUES = {NOISE: sp.Rational(7, 10), RATIO: sp.Rational(8, 5)}


def exact_mean(law, function):
    """The mean of a function of x and the density over one interval, by an integral in many digits."""
    v, c, jump = (sp.sympify(each).xreplace(VALUES) for each in (*law._parameters, law.jump))
    inverse = lambda g: 1 / g + v * g + (c / (1 - g) if c else 0)  # noqa: E731
    # the edges are where two roots of the equation meet
    g = sp.Symbol("g")
    turns = sp.Poly(sp.together(sp.diff(inverse(g), g)).as_numer_denom()[0], g)
    turns = [root for root in turns.nroots(n=40) if root.is_real]
    low, high = (jump * edge for edge in sorted(map(inverse, turns)))
    x = sp.Symbol("x", positive=True)
    density = many_digits(x, law.density(x).xreplace(VALUES))

    def integrand(angle):
        at = (low + high) / 2 - (high - low) / 2 * mpmath.cos(angle)
        mu = density(at)
        return function(at, mu) * mu * (high - low) / 2 * mpmath.sin(angle)

    low, high = mpmath.mpmathify(low), mpmath.mpmathify(high)
    return mpmath.quad(integrand, [0, mpmath.pi / 2, mpmath.pi])


@pytest.mark.quick("semicircle")
@pytest.mark.parametrize("law", [SUM, MP, WIGNER], ids=["sum", "Marchenko-Pastur", "semicircle"])
def test_many_digits(law):
    laws = {
        law.average(lambda s: sp.log(s + 9)): lambda: exact_mean(law, lambda x, _: mpmath.log(x + 9)),
        law.average(lambda s: sp.sqrt(s + 9)): lambda: exact_mean(law, lambda x, _: mpmath.sqrt(x + 9)),
        law.stieltjes(12): lambda: exact_mean(law, lambda x, _: 1 / (12 - x)),
        law.cube_of_density(): lambda: exact_mean(law, lambda x, density: density**2),
    }
    for expression, integral in laws.items():
        exact = expression.xreplace(VALUES)
        with mpmath.workdps(25):
            digits = sp.Float(integral(), 25)
        assert interpret(exact, {}) == pytest.approx(float(digits), rel=1e-11)
        compiled = compile_expressions("f", {"value": exact}, [])()["value"]
        assert float(compiled) == pytest.approx(float(digits), rel=1e-13)
        if not exact.has(SpectralAverage, CubeOfDensity):
            assert abs(sp.N(exact, 25) - digits) < 1e-19


@pytest.mark.slow
def test_the_free_entropy_grows_by_the_free_fisher_information():
    """d Sigma / dv = (2 pi^2 / 3) int mu^3: both sides are computed, one by JAX's differences of the other's nodes."""

    def energy(v, c):
        nodes = _nodes(v, c)
        return jnp.sum(nodes.masses * nodes.potential)

    for v, c in LAWS[:8]:
        nodes = _nodes(v, c)
        cube = float(jnp.sum(nodes.masses * nodes.density**2))
        assert float(jax.jvp(partial(energy, c=c), (v,), (1.0,))[1]) == pytest.approx(
            2 * np.pi**2 / 3 * cube, rel=1e-12
        )


@pytest.mark.parametrize("ratio", [0.5, 2.0])
def test_the_eigenvalues_of_a_sampled_matrix_have_the_law(ratio):
    size, rng = 400, np.random.default_rng(3)
    w, z = rng.normal(size=(size, round(ratio * size))), rng.normal(size=(size, size))
    noise = (z + z.T) * np.sqrt(0.7 / (2 * size))
    eigenvalues = np.linalg.eigvalsh(w @ w.T / w.shape[1] + noise)
    law = marchenko_pastur(sp.Float(ratio)) + semicircle(sp.Float(0.7))
    expected = interpret(law.average(lambda s: sp.cos(s)), {})
    # fluctuations and the bias of a linear statistic are of order 1 / size
    assert np.mean(np.cos(eigenvalues)) == pytest.approx(expected, abs=5 / size)
    # a control: another variance is seen
    other = marchenko_pastur(sp.Float(ratio)) + semicircle(sp.Float(1.0))
    assert abs(np.mean(np.cos(eigenvalues)) - interpret(other.average(lambda s: sp.cos(s)), {})) > 10 / size


def test_the_edges_and_the_gap():
    place = sp.Symbol("x", real=True)
    function = compile_expressions(
        "f", {"density": SUM.density(place), "transform": SUM.stieltjes(place)}, [place, NOISE, RATIO]
    )
    x = jnp.linspace(-1, 9, 501)
    for noise, has_gap in ((CRITICAL / 0.25 * 0.4, True), (CRITICAL / 0.25 * 1.1, False)):
        found = function(x=x, Delta=noise, kappa=0.5)
        inside = np.asarray(found["density"]) > 0
        # the transform exists where the density is zero, and nowhere else
        assert np.array_equal(inside, np.isnan(found["transform"]))
        assert np.sum(np.abs(np.diff(inside.astype(int)))) == (4 if has_gap else 2)


@pytest.mark.slow
def test_the_stated_error_of_an_average_covers_the_true_one():
    # the pole at -1e-6 is just below the hard edge at zero
    expression = marchenko_pastur(sp.S.One).average(lambda s: 1 / (s + sp.Float(1e-6)) ** 2)
    # minus the derivative of the transform of 1 / (s + z), which is elementary
    z = mpmath.mpf(10) ** -6
    with mpmath.workdps(60):
        exact = float(-mpmath.diff(lambda z: (mpmath.sqrt(1 + 4 / z) - 1) / 2, z))
    value = float(compile_expressions("f", {"value": expression}, [])()["value"])
    assert abs(value - exact) <= float(quadrature_error(expression, {}))
    # a control: the error of a rough function is seen
    steep = spectral_average(lambda x: jnp.tanh(1e4 * (x - 1.234)), 0.5, 0.4, 0, 0, 1.0)
    assert float(steep - spectral_average(lambda x: jnp.tanh(1e4 * (x - 1.234)), 0.5, 0.4)) > 1e-6


@pytest.mark.slow
def test_parameters_that_are_no_law_give_nan():
    function = compile_expressions("f", {"value": SUM.cube_of_density()}, [NOISE, RATIO])
    found = function(Delta=jnp.array([0.5, -0.5, 0.0, jnp.inf]), kappa=jnp.array([0.5, 0.5, 0.5, 0.5]))["value"]
    assert np.isfinite(found[0]) and np.all(np.isnan(found[1:]))
