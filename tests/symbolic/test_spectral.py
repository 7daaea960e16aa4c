"""Functions of eigenvalues: derivatives of several orders where eigenvalues agree, and what they are otherwise."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.linalg
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from tests.expressions import assert_close, assert_gradient
from tests.marks import slow
from theorykit.codegen import compile_expressions, interpret
from theorykit.codegen.spectral import eigendecomposition
from theorykit.codegen.spectral import eigenvalue_sum as sum_of
from theorykit.codegen.spectral import spectral_function as function_of
from theorykit.symbolic import (
    GaussianAverage,
    SquareRoot,
    eigenvalue_sum,
    gradient,
    latex,
    log_normal_cdf,
    positive_definite,
    spectral_function,
    symmetric,
)
from theorykit.symbolic.atoms import LogDet
from theorykit.symbolic.documents.mathml import mathml
from theorykit.symbolic.matrix_functions import EigenvalueSum, SpectralFunction, is_symmetric

N = sp.Symbol("N", integer=True, positive=True)
S, K, L = symmetric("S", N), positive_definite("K", N), sp.MatrixSymbol("L", N, N)
t, z = sp.symbols("t z", real=True)
SPECTRA = {
    "apart": (0.3, 1.1, 2.7),
    "two the same": (0.6, 0.6, 2.0),
    "all the same": (0.8, 0.8, 0.8),
    "close": (0.5, 0.5 + 1e-9, 0.5 + 1e-4),
    "one": (0.4,),
    "far apart": (0.01, 0.02, 4.0, 4.0 + 1e-6),
}
EXPRESSIONS = {
    "log": eigenvalue_sum(lambda x: sp.log(1 + t**2 * x**2), S),
    "of a sum": eigenvalue_sum(lambda x: sp.sqrt(x + t**2), K + L.T * L) ** 2,
    "average": eigenvalue_sum(lambda x: GaussianAverage(sp.cosh(x * z / 2 + t), z), S),
    "trace": sp.Trace(spectral_function(lambda x: sp.exp(t * x), S)),
    "product": sp.Trace(spectral_function(lambda x: sp.tanh(t * x), K) * sp.Inverse(K) * spectral_function(sp.cos, K)),
    "number in it": eigenvalue_sum(lambda x: sp.tanh(x * LogDet(K) * t), S),
}


def rotated(spectrum, seed=0):
    generator = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(generator.standard_normal((len(spectrum), len(spectrum))))
    return rotation @ np.diag(spectrum) @ rotation.T


def values_of(spectrum, seed=0):
    size = len(spectrum)
    general = np.random.default_rng(seed).standard_normal((size, size))
    return {"S": rotated(spectrum, seed), "K": rotated(spectrum, seed), "L": general, "t": 0.7, "N": float(size)}


def compiled(expression):
    function = compile_expressions("f", {"value": expression}, (S, K, L, t))
    return lambda values: function(**{name: jnp.asarray(values[name]) for name in "SKLt"})["value"]


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
@given(spectrum=st.sampled_from(list(SPECTRA.values())), seed=st.integers(0, 100))
def test_generated_code_gives_what_the_interpreter_gives(expression, spectrum, seed):
    values = values_of(spectrum, seed)
    assert_close(compiled(expression)(values), interpret(expression, values), 1e-9)


@pytest.mark.quick(6)
@pytest.mark.parametrize("spectrum", SPECTRA.values(), ids=SPECTRA)
@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_gradients_are_those_of_automatic_differentiation_and_of_differences(expression, spectrum):
    step = 1e-4 if min(spectrum) > 0.1 else 1e-5
    for symbol in (symbol for symbol in (S, K, L, t) if expression.has(symbol)):
        assert_gradient(expression, symbol, values_of(spectrum), compiled, 1e-8, 1e-4, (step,))


def along_a_line(function, spectrum):
    """`function` of a matrix of this spectrum, moved along a direction in which eigenvalues that agree separate."""
    size = len(spectrum)
    direction = np.random.default_rng(3).standard_normal((size, size))
    direction = jnp.asarray(direction + direction.T) / 4
    weights = jnp.asarray(np.random.default_rng(4).standard_normal((size, size)))
    return lambda step, number: function(jnp.asarray(rotated(spectrum)) + step * direction, number, weights)


def ours(matrix, number, weights):
    eigen = eigendecomposition(matrix)
    return sum_of(lambda x: jnp.exp(number * x), eigen) + jnp.sum(
        function_of(lambda x: jnp.exp(number**2 * x), eigen) * weights
    )


def theirs(matrix, number, weights):
    power = jax.scipy.linalg.expm
    return jnp.trace(power(number * matrix)) + jnp.sum(power(number**2 * matrix) * weights)


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", ["two the same", *slow(["apart", "all the same", "close", "far apart"])])
@pytest.mark.parametrize(
    "arguments", [(0, 0), (0, 1), (1, 0), *slow([(1, 1), (0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)])], ids=str
)
def test_derivatives_of_up_to_third_order_are_those_of_the_matrix_exponential(name, arguments):
    found, expected = along_a_line(ours, SPECTRA[name]), along_a_line(theirs, SPECTRA[name])
    for argument in arguments[:-1]:
        found, expected = jax.grad(found, argument), jax.grad(expected, argument)
    expected = jax.jit(jax.grad(expected, arguments[-1]))(0.0, 0.7)
    # backwards, and forwards over backwards, as Newton's method takes them
    for take in (jax.grad, jax.jacfwd):
        assert_close(jax.jit(take(found, arguments[-1]))(0.0, 0.7), expected, 1e-11)


def test_many_matrices_at_once_have_the_same_derivatives():
    matrices = jnp.stack([jnp.asarray(rotated(SPECTRA[name], i)) for i, name in enumerate(("apart", "two the same"))])
    weights = jnp.asarray(np.random.default_rng(0).standard_normal((3, 3)))

    def total(function):
        return lambda matrices: jnp.sum(jax.vmap(lambda matrix: function(matrix, 0.7, weights))(matrices) ** 2)

    symmetrised = jax.grad(total(theirs))(matrices)
    symmetrised = (symmetrised + symmetrised.swapaxes(1, 2)) / 2
    assert_close(jax.grad(total(ours))(matrices), symmetrised, 1e-12)


@pytest.mark.quick(2)
@pytest.mark.parametrize("gap", [0.0, 1e-15, 1e-6, 1e-2, 0.7])
@pytest.mark.parametrize("centre", [0.02, 1.0])
def test_second_derivatives_are_accurate_whatever_the_distance_of_the_eigenvalues(gap, centre):
    spectrum = (centre, centre * (1 + gap), 3 * centre)
    direction = np.random.default_rng(0).standard_normal((3, 3))
    matrix, direction = jnp.asarray(rotated(spectrum)), jnp.asarray(direction + direction.T) * centre / 4

    def ours(step):
        return sum_of(jnp.log, eigendecomposition(matrix + step * direction))

    inverse = np.linalg.inv(matrix) @ direction
    expected = -np.trace(inverse @ inverse)
    assert_close(jax.grad(jax.grad(ours))(0.0), expected, 1e-12)
    if centre == 1:
        assert_close(jax.grad(jax.grad(jax.grad(ours)))(0.0), 2 * np.trace(inverse @ inverse @ inverse), 1e-11)


def test_a_parameter_that_is_an_array_has_a_gradient():
    coefficients, matrix = jnp.array([0.3, -0.2, 0.5]), jnp.asarray(rotated(SPECTRA["two the same"]))
    for function in (sum_of, lambda f, eigen: jnp.sum(function_of(f, eigen)[0])):

        def ours(coefficients, function=function):
            return function(lambda x: jnp.polyval(coefficients, x), eigendecomposition(matrix))

        powers = [np.linalg.matrix_power(np.asarray(matrix), power) for power in (2, 1, 0)]
        expected = [np.trace(power) if function is sum_of else np.sum(power[0]) for power in powers]
        assert_close(jax.grad(ours)(coefficients), expected, 1e-13)


def test_a_spectral_function_is_that_of_the_matrix():
    assert S.T == S and sp.MatrixSymbol("S", N, N) != S
    with pytest.raises(NotImplementedError, match="positive definite"):
        compile_expressions("f", {"value": LogDet(S)}, (S,))
    values = values_of(SPECTRA["two the same"])
    assert_close(interpret(spectral_function(sp.exp, S), values), scipy.linalg.expm(values["S"]), 1e-13)
    assert_close(compiled(spectral_function(sp.sqrt, S))(values), scipy.linalg.sqrtm(values["S"]), 1e-13)
    assert spectral_function(lambda x: t * x, S) == t * S
    assert spectral_function(lambda x: t, S) == t * sp.Identity(N)
    assert spectral_function(sp.exp, S) == spectral_function(sp.exp, S).T
    assert gradient(eigenvalue_sum(lambda x: t * x**2, S), S) == 2 * t * S


def test_one_eigendecomposition_serves_all_functions_and_roots_of_a_matrix():
    values = {
        "f": EXPRESSIONS["log"],
        "slope": gradient(EXPRESSIONS["log"], S),
        "root": SquareRoot(K) * L * SquareRoot(K),
    }
    counts = compile_expressions("f", values, (S, K, L, t)).program.operation_counts()
    assert counts["eigendecomposition"] == 2


def test_in_a_product_with_other_matrices_there_is_no_symbolic_gradient_in_it():
    with pytest.raises(NotImplementedError, match=r"SpectralFunction.*product with other matrices"):
        gradient(sp.Trace(spectral_function(sp.exp, S) * L), S)
    expected = spectral_function(sp.exp, S).T
    assert gradient(sp.Trace(spectral_function(sp.exp, S) * L), L) == expected


@pytest.mark.parametrize("make", [eigenvalue_sum, spectral_function])
def test_a_matrix_that_is_not_provably_symmetric_is_refused(make):
    for matrix in (L, L * S, L.T + S, K * S):
        assert not is_symmetric(matrix)
        with pytest.raises(ValueError, match=r"provably symmetric.*symmetric\(\.\.\.\)"):
            make(sp.exp, matrix)
    symmetric_ones = (2 * S - K, L + L.T, L * S * L.T, S * K + K * S, sp.Inverse(S), spectral_function(sp.exp, S) + S)
    for matrix in (S, K, *symmetric_ones):
        assert is_symmetric(matrix)
        make(sp.exp, matrix)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (eigenvalue_sum(sp.exp, S), r"\sum_{i} e^{\lambda_{i}\left(S\right)}"),
        (
            eigenvalue_sum(lambda x: x**2 + t, K + S) * t,
            r"t \sum_{i} \left(t + \lambda_{i}\left(K + S\right)^{2}\right)",
        ),
        (
            L * spectral_function(sp.tanh, S),
            r"L \left(\sum_{i} \tanh{\left(\lambda_{i}\left(S\right) \right)} \, v_{i} v_{i}^{T}\right)",
        ),
    ],
)
def test_eigenvalues_are_written_out(expression, expected):
    assert latex(expression) == expected
    assert mathml(expected)


def test_the_variable_is_its_own():
    named = sp.Symbol("x", real=True)
    for made in (kind(sp.Lambda(named, sp.exp(named * t)), S) for kind in (EigenvalueSum, SpectralFunction)):
        assert made.free_symbols == {S, t}
        assert made.func(*made.args) == made
        assert made.xreplace({t: named}).free_symbols == {S, named}


ROOTS = {
    "trace": sp.Trace(SquareRoot(K)),
    "of a sum": LogDet(SquareRoot(L.T * L + K + t**2 * sp.Identity(N))),
    "in a product": sp.Trace(L.T * SquareRoot(K) * L),
}


@pytest.mark.quick(2)
@pytest.mark.parametrize("spectrum", SPECTRA.values(), ids=SPECTRA)
@pytest.mark.parametrize("name", ["in a product", *slow(["trace", "of a sum"])])
def test_square_roots_have_derivatives_where_eigenvalues_agree(name, spectrum):
    values, generator = values_of(spectrum), np.random.default_rng(5)
    function, direction = compiled(ROOTS[name]), generator.standard_normal((len(spectrum), len(spectrum)))
    direction = direction + direction.T
    assert_close(function(values), interpret(ROOTS[name], values), 1e-9)

    def along(step):
        return function({**values, "K": jnp.asarray(values["K"]) + step * direction})

    def exact(step):
        with mpmath.workdps(60):
            matrix = mpmath.matrix(values["K"].tolist()) + step * mpmath.matrix(direction.tolist())
            other = mpmath.matrix(values["L"].tolist())
            if name == "of a sum":
                total = other.T * other + matrix + mpmath.eye(len(spectrum)) * mpmath.mpf(values["t"]) ** 2
                return mpmath.log(mpmath.det(total)) / 2
            # distinct eigenvalues in so many digits: the values themselves are rounded
            eigenvalues, vectors = mpmath.eigsy(matrix)
            root = vectors * mpmath.diag([mpmath.sqrt(each) for each in eigenvalues]) * vectors.T
            product = root if name == "trace" else other.T * root * other
            return sum(product[i, i] for i in range(len(spectrum)))

    with mpmath.workdps(60):
        step = mpmath.mpf(10) ** -15 * min(spectrum)
        ends = [exact(k * step) for k in (-1, 0, 1)]
        slope, curvature = (ends[2] - ends[0]) / (2 * step), (ends[2] - 2 * ends[1] + ends[0]) / step**2
    assert_close(jax.grad(along)(0.0), float(slope), 1e-10)
    assert_close(jax.jacfwd(jax.grad(along))(0.0), float(curvature), 1e-8)


OF_EIGENVALUES = (
    sp.gamma,
    sp.sinc,
    sp.LambertW,
    lambda x: sp.Piecewise((sp.sqrt(x), x > 0), (0, True)),
    log_normal_cdf,
    lambda x: sp.besseli(1, x),
)


@pytest.mark.quick(3)
@pytest.mark.parametrize("function", OF_EIGENVALUES)
@pytest.mark.parametrize("name", ["all the same", *slow(["two the same", "close"])])
def test_sums_over_eigenvalues_have_second_derivatives_for_any_function(function, name):
    spectrum, variable = SPECTRA[name], sp.Symbol("x", real=True)
    values, direction = values_of(spectrum), np.diag(np.arange(1.0, len(spectrum) + 1))
    run = compiled(eigenvalue_sum(function, S))
    rotation = np.linalg.eigh(values["S"])[1]
    # along a direction with the same eigenvectors every eigenvalue moves by itself
    along = rotation @ direction @ rotation.T
    eigenvalues = np.linalg.eigvalsh(values["S"])

    def moved(step):
        return run({**values, "S": jnp.asarray(values["S"]) + step * along})

    expression = function(variable)
    for order, take in ((1, jax.grad(moved)), (2, jax.jacfwd(jax.grad(moved)))):
        expression = gradient(expression, variable)
        each = [interpret(expression, {"x": float(at)}) for at in eigenvalues]
        assert_close(take(0.0), np.sum(np.array(each) * np.diag(direction) ** order), 1e-8)
