"""Spectral laws: moments, transforms and derivatives against roots of the polynomial, and sampled matrices."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from theorykit.codegen import compile_expressions, interpret
from theorykit.symbolic import gradient
from theorykit.symbolic.documents.rendering import latex
from theorykit.theories.spectral_laws import marchenko_pastur, nodes, semicircle

NOISE, RATIO, Z = sp.symbols("Delta kappa z", positive=True)
MP, WIGNER = marchenko_pastur(RATIO), semicircle(NOISE)
SUM = MP + WIGNER
POINT = {"Delta": 0.7, "kappa": 1.6, "z": 1.3}
CRITICAL = (1 - 0.5 ** (1 / 3)) ** 3
# with one interval and with two, with edges close to each other and to zero, almost a semicircle, almost without one
LAWS = [(1.0, 0.5), (0.01, 0.5), (1e-4, 0.5), (10.0, 0.1), (0.3, 2.0), (1e-4, 1.0), (1e-3, 5.0), (100.0, 0.05)]
LAWS += [(1e-6, 1e-3), (CRITICAL, 0.5), (CRITICAL * (1 - 1e-6), 0.5), (CRITICAL * (1 + 1e-6), 0.5)]


def over_support(function, v, c):
    """The mean of a function of x and g over a law: midpoints in an angle, with g from the roots of its polynomial."""
    polynomial = [v, -2 * v, v + c - 1, 2, -1] if c else [v, 0, -1]
    stationary = np.roots(np.trim_zeros(polynomial, "f"))
    real = stationary[np.abs(stationary.imag) < 1e-9 * np.abs(stationary)].real
    edges = sorted(1 / g + v * g + (c / (1 - g) if c else 0.0) for g in real)
    angles = np.pi * (np.arange(400) + 0.5) / 400
    total = (1 - c) * function(np.zeros(1), np.zeros(1))[0] if v == 0 and c < 1 else 0.0
    for low, high in zip(edges[::2], edges[1::2], strict=True):
        x = (low + high) / 2 - (high - low) / 2 * np.cos(angles)
        every = (v, -(x + v), x + 1 - c, -1.0) if c else (v, -x, 1.0)
        rows = np.array(np.broadcast_arrays(*(every if v else every[1:]))).T
        companion = np.zeros((len(x), rows.shape[1] - 1, rows.shape[1] - 1))
        companion[:, 1:, :-1] = np.eye(rows.shape[1] - 2)
        companion[:, 0] = -rows[:, 1:] / rows[:, :1]
        roots = np.linalg.eigvals(companion)
        # the transform just above the support is the root with the smallest imaginary part
        g = np.take_along_axis(roots, np.argmin(roots.imag, axis=1)[:, None], 1)[:, 0]
        total += np.mean(function(x, g) * -g.imag * np.sin(angles)) * (high - low) / 2
    return total


def moments(v, c):
    of_law = nodes(v, c)
    return [float(jnp.sum(of_law.masses * of_law.positions**k)) for k in range(4)]


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


def energy(v, c):
    return lambda x, g: (x * g - 1 - np.log(g) - v * g**2 / 2 + c * np.log(1 - g)).real


def expected(name, at):
    """The value by the roots of the polynomial, in units of the jump."""
    noise, ratio, z = at["Delta"], at["kappa"], at["z"]
    law, jump = name.split(": ")[0], 1 / ratio
    v, c = {"sum": (noise / jump**2, ratio), "Marchenko-Pastur": (0.0, ratio), "semicircle": (noise, 0.0)}[law]
    jump = 1.0 if c == 0 else jump
    return {
        "transform": lambda: over_support(lambda x, g: 1 / (z + 8 - jump * x), v, c),
        "left": lambda: over_support(lambda x, g: 1 / (-z - 3 - jump * x), v, c),
        "potential": lambda: over_support(lambda x, g: np.log(z + 8 - jump * x), v, c),
        "cube": lambda: over_support(lambda x, g: (g.imag / np.pi / jump) ** 2, v, c),
        "energy": lambda: over_support(energy(v, c), v, c) + np.log(jump),
    }[name.split(": ")[1]]()


EXPRESSIONS = {
    f"{law}: {name}": expression
    for law, of in {"sum": SUM, "Marchenko-Pastur": MP, "semicircle": WIGNER}.items()
    for name, expression in {
        "transform": of.stieltjes(Z + 8),
        "left": of.stieltjes(-Z - 3),
        "potential": of.log_potential(Z + 8),
        "cube": of.cube_of_density(),
        "energy": of.log_energy(),
    }.items()
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_values_and_derivatives_are_those_of_the_roots_of_the_polynomial(name):
    expression = EXPRESSIONS[name]
    symbols = [symbol for symbol in (NOISE, RATIO, Z) if expression.has_free(symbol)]
    values = {symbol.name: POINT[symbol.name] for symbol in symbols}
    slopes = {symbol.name: gradient(expression, symbol) for symbol in symbols}
    function = compile_expressions("f", {"value": expression, **slopes}, symbols)
    slope = jax.grad(lambda at: function(**at)["value"])
    found, automatic, second = jax.jit(lambda at: (function(**at), slope(at), jax.jacfwd(slope)(at)))(values)
    assert float(found["value"]) == pytest.approx(expected(name, POINT), rel=1e-12)
    assert interpret(expression, values) == pytest.approx(float(found["value"]), rel=1e-13)
    for symbol in symbols:
        assert float(found[symbol.name]) == pytest.approx(float(automatic[symbol.name]), rel=1e-11, abs=1e-13)
        # differentiate a polynomial through values at Chebyshev points
        radius, points = 0.05 * POINT[symbol.name], np.polynomial.chebyshev.chebpts1(14)
        around = [expected(name, {**POINT, symbol.name: POINT[symbol.name] + radius * each}) for each in points]
        fitted = np.polynomial.Chebyshev.fit(points, around, 13, [-1, 1])
        for order, derivative in ((1, automatic[symbol.name]), (2, second[symbol.name][symbol.name])):
            assert float(derivative) == pytest.approx(fitted.deriv(order)(0.0) / radius**order, rel=1e-8, abs=1e-9)
    assert latex(gradient(expression, symbols[0]))


@pytest.mark.slow
def test_the_free_entropy_grows_by_the_free_fisher_information():
    """d Sigma / dv = (2 pi^2 / 3) int mu^3: both sides are computed, one by JAX's differences of the other's nodes."""

    def energy(v, c):
        of_law = nodes(v, c)
        return jnp.sum(of_law.masses * of_law.potential)

    for v, c in LAWS[:8]:
        of_law = nodes(v, c)
        cube = float(jnp.sum(of_law.masses * of_law.density**2))
        assert float(jax.jvp(partial(energy, c=c), (v,), (1.0,))[1]) == pytest.approx(
            2 * np.pi**2 / 3 * cube, rel=1e-12
        )


@pytest.mark.parametrize(
    ("ratio", "energy"), [(0.5, -np.inf), (1.0, -0.5), (2.0, -np.log(2)), (1e4, -4.855186853071442)]
)
def test_the_energy_of_an_atom_is_infinite(ratio, energy):
    function = compile_expressions("f", {"energy": MP.log_energy()}, [RATIO])
    for found in (function(kappa=ratio)["energy"], interpret(marchenko_pastur(sp.Float(ratio)).log_energy(), {})):
        assert float(found) == pytest.approx(energy, rel=1e-11)


def test_the_cube_of_a_law_with_an_atom():
    for ratio in (0.3, 0.9, 4.0):
        found = interpret(marchenko_pastur(sp.Float(ratio)).cube_of_density(), {})
        cube = over_support(lambda x, g: (np.imag(g) / np.pi) ** 2, 0.0, ratio)
        assert found == pytest.approx(cube * ratio**2, rel=1e-12)


@pytest.mark.parametrize("ratio", [0.5, 2.0])
def test_the_eigenvalues_of_a_sampled_matrix_have_the_law(ratio):
    size, rng = 400, np.random.default_rng(3)
    w, z = rng.normal(size=(size, round(ratio * size))), rng.normal(size=(size, size))
    noise = (z + z.T) * np.sqrt(0.7 / (2 * size))
    eigenvalues = np.linalg.eigvalsh(w @ w.T / w.shape[1] + noise)
    sampled = np.mean(np.log(eigenvalues + 4))
    law, other = (marchenko_pastur(sp.Float(ratio)) + semicircle(sp.Float(noise)) for noise in (0.7, 1.0))
    # fluctuations and the bias of a linear statistic are of order 1 / size
    assert sampled == pytest.approx(interpret(law.log_potential(-4), {}), abs=2 / size)
    # a control: another variance is seen
    assert abs(sampled - interpret(other.log_potential(-4), {})) > 2.5 / size


def test_the_transform_exists_outside_the_support():
    place = sp.Symbol("x", real=True)
    function = compile_expressions("f", {"transform": SUM.stieltjes(place)}, [place, NOISE, RATIO])
    x = jnp.linspace(-1, 9, 501)
    for noise, has_gap in ((CRITICAL / 0.25 * 0.4, True), (CRITICAL / 0.25 * 1.1, False)):
        inside = np.isnan(function(x=x, Delta=noise, kappa=0.5)["transform"])
        edges = np.flatnonzero(np.diff(inside.astype(int)))
        assert len(edges) == (4 if has_gap else 2)
        # in units of the jump, the support lies between minimum and maximum of the nodes
        positions = np.asarray(nodes(noise * 0.25, 0.5).positions) / 0.5
        ends = positions.min(), positions.max()
        assert np.allclose(x[edges[[0, -1]]], ends, atol=0.02)


@pytest.mark.slow
def test_parameters_that_are_no_law_give_nan():
    function = compile_expressions("f", {"value": SUM.cube_of_density()}, [NOISE, RATIO])
    found = function(Delta=jnp.array([0.5, -0.5, 0.0, jnp.inf]), kappa=jnp.array([0.5, 0.5, 0.5, 0.5]))["value"]
    assert np.isfinite(found[0]) and np.all(np.isnan(found[1:]))
    with pytest.raises(ValueError, match="the variance of a semicircle law must be positive, got -1"):
        semicircle(-1)
    with pytest.raises(ValueError, match="one size of jumps"):
        marchenko_pastur(2) + marchenko_pastur(3)
