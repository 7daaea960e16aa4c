"""Generated functions against the interpreter, the structure that lowering exploits, and what it refuses."""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from sympy import (
    Abs,
    Determinant,
    Function,
    HadamardProduct,
    Identity,
    Inverse,
    KroneckerProduct,
    MatAdd,
    MatMul,
    MatPow,
    Rational,
    Symbol,
    Trace,
    Transpose,
    ZeroMatrix,
    cos,
    exp,
    log,
    pi,
    sqrt,
    tanh,
    zeta,
)

from tests.expressions import (
    SHAPES,
    SYMBOLS,
    A,
    B,
    F,
    H,
    L,
    N,
    P,
    R,
    W,
    X,
    assert_close,
    generate,
    matrices,
    random_numbers,
    random_values,
    s,
    scalars,
    t,
    v,
    y,
)
from theorykit.codegen import compile_expressions, interpret, lower
from theorykit.symbolic import Diagonal, LogDet, PartialTrace, positive_definite, quadratic_form


def assert_generated_equals_interpreted(expression, values):
    assert_close(generate(expression)(values), interpret(expression, values))


def operations(**outputs):
    return lower("lowered", outputs, SYMBOLS).operation_counts()


@given(matrices(), random_numbers)
def test_generated_matrices_equal_interpreted_ones(expression, values):
    assert_generated_equals_interpreted(expression, values)


@given(scalars(), random_numbers)
def test_generated_scalars_equal_interpreted_ones(expression, values):
    assert_generated_equals_interpreted(expression, values)


KERNEL = F * KroneckerProduct(A, Identity(N)) * F.T
REGULARISED = KERNEL + t * Identity(P)
NO_IDENTITY, NO_RIGHT, NO_LEFT = (
    KroneckerProduct(*factors) for factors in ((L, R), (L, Identity(N)), (Identity(H), R))
)
MATRICES = [
    A,
    X.T,
    Transpose(Transpose(X)),
    MatMul(2, A),
    MatMul(-s, Trace(L), X, W),
    MatPow(X, 3),
    MatPow(A, -2),
    Inverse(W),
    Inverse(KroneckerProduct(A, B)),
    Inverse(KroneckerProduct(A, B)) * X,
    Inverse(KroneckerProduct(A, B, A)),
    Inverse(A) * L,
    L * Inverse(A),
    Inverse(REGULARISED) * F * X,
    NO_IDENTITY,
    NO_RIGHT,
    NO_LEFT,
    KroneckerProduct(L, Identity(H), R),
    KroneckerProduct(L, y, v.T),
    *(kron * X for kron in (NO_IDENTITY, NO_RIGHT, NO_LEFT)),
    *(X * kron for kron in (NO_IDENTITY, NO_RIGHT, NO_LEFT)),
    *(F * kron.T * v for kron in (NO_IDENTITY, NO_RIGHT, NO_LEFT)),
    KERNEL,
    A + Identity(H),
    2 * A + L / 3 - s * t * Identity(H) + 2 * Identity(H),
    s * Identity(H) + t * Identity(H),
    MatAdd(A, Identity(H), MatMul(s, Identity(H))),
    MatMul(s, Identity(H) + A, L),
    Identity(H) * s,
    ZeroMatrix(H, N),
    y * y.T * F * X,
    F * X * v * v.T * W,
    X * v * y.T,
    y.T * F * X,
    v.T * X * W,
    v.T * X * v,
    y.T * F * v * v.T,
    PartialTrace(X, (H, N), 0),
    PartialTrace(X * W * X, (H, N), 1),
    PartialTrace(X * W, (H, N), 0),
    PartialTrace(Inverse(W) * X, (H, N), 1),
    PartialTrace(X + 2 * W, (H, N), 0),
    PartialTrace(X.T * W * X - s * W, (H, N), 1),
    PartialTrace(s * X, (H, N), 1) * A,
    PartialTrace(v * v.T, (H, N), 0),
    PartialTrace(v * y.T * F, (H, N), 1),
    PartialTrace(NO_IDENTITY, (H, N), 1),
    PartialTrace(NO_RIGHT * X, (H, N), 0),
    Diagonal(X),
    Diagonal(X * W),
    Diagonal(X + s * W * X - 2 * Identity(H * N)),
    Diagonal(KERNEL - KERNEL.T * Inverse(REGULARISED) * KERNEL),
    Diagonal(v * v.T * X),
    Diagonal(-3 * X.T * X),
    Diagonal(Inverse(W)),
    Diagonal(s * Identity(H)),
    PartialTrace(Identity(H * N), (H, N), 0),
]
SCALARS = [
    Trace(X),
    Trace(X + W),
    Trace(2 * X * W),
    Trace(Inverse(W) * X),
    Trace(X * Inverse(W) * X.T * W),
    Trace(v * v.T * X),
    Trace(NO_RIGHT * X),
    Trace(KroneckerProduct(L, R)),
    Trace(Identity(H)),
    quadratic_form(v, X),
    quadratic_form(y, Inverse(REGULARISED)),
    LogDet(REGULARISED),
    LogDet(KroneckerProduct(A, B)),
    LogDet(PartialTrace(W, (H, N), 1)),
    Trace(L) + Trace(Trace(L) * A * L),
    LogDet(A) * Trace(A) / Trace(B) + exp(-s) * cos(s) + tanh(t) + sqrt(s + t) + log(t) ** 2,
    log(2 * pi * s),
    s**t + Rational(1, 3),
    Abs(s - 3 * t),
    sum(Trace(L) ** power * s ** (12 - power) / (1 + t**power) for power in range(12)),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("expression", [*MATRICES, *SCALARS], ids=str)
def test_every_form_is_generated_rightly(expression, shape):
    assert_generated_equals_interpreted(expression, random_values(shape, 5))


@pytest.mark.parametrize("expression", [PartialTrace(X, (H, N), 0), KERNEL, X * v * y.T], ids=str)
def test_sizes_may_be_numbers(expression):
    shape = (2, 3, 4)
    numbers = dict(zip((H, N, P), shape, strict=True))
    arguments = [symbol.subs(numbers) for symbol in SYMBOLS]
    values = random_values(shape, 6)
    function = compile_expressions("generated", {"value": expression.subs(numbers)}, arguments)
    result = function(**{symbol.name: jnp.asarray(values[symbol.name]) for symbol in SYMBOLS})["value"]
    assert_close(result, interpret(expression, values))


def test_log_det_and_solve_share_one_factorisation():
    counts = operations(energy=LogDet(REGULARISED) + quadratic_form(y, Inverse(REGULARISED)), again=LogDet(REGULARISED))
    assert counts["cholesky"] == counts["solve"] == counts["log_det"] == 1


def test_kronecker_factors_are_applied_and_not_formed():
    counts = operations(kernel=KERNEL, solved=Inverse(KroneckerProduct(A, B)) * X)
    assert counts["kron"] == 0
    assert counts["kron_left_matmul"] >= 1


def test_an_identity_factor_costs_nothing():
    counts = operations(right=NO_RIGHT * X, left=NO_LEFT * X)
    assert counts == {"kron_left_matmul": 1, "kron_right_matmul": 1}


def test_identity_terms_are_added_to_the_diagonal():
    counts = operations(value=A + s * Identity(H) + Identity(H))
    assert counts == {"add_identity": 1}


def test_products_in_traces_and_partial_traces_are_not_formed():
    counts = operations(trace=Trace(X * W), blocks=PartialTrace(X * W, (H, N), 0), diagonal=Diagonal(X * W))
    assert counts["matmul"] == 0


def test_an_inverse_in_a_trace_is_a_solve_and_not_formed():
    counts = operations(trace=Trace(Inverse(W) * X), blocks=PartialTrace(Inverse(W) * X, (H, N), 1))
    assert counts == {"cholesky": 1, "solve": 1, "trace": 1, "trace_of_blocks": 1}


def test_a_product_is_split_where_an_inner_size_is_one():
    steps = lower("lowered", {"value": X * v * y.T}, SYMBOLS).instructions
    products = [step for step in steps if step.operation == "matmul"]
    assert {"X", "v"} in [set(step.operands) for step in products]
    assert len(products) == 2


def test_common_subexpressions_are_computed_once():
    once, twice = operations(a=X * W * X), operations(a=X * W * X, b=Trace(A) + 1, c=X * W * X, d=s * Trace(A))
    assert twice["matmul"] == once["matmul"]
    assert twice["trace"] == 1


def test_generated_functions_can_be_jitted_mapped_and_differentiated():
    values = random_values((2, 3, 4), 7)
    function = generate(s**2 * quadratic_form(y, Inverse(REGULARISED)))

    def of_scale(scale):
        return function({**values, "s": scale})

    scales = jnp.array([0.5, 1.0, 2.0])
    assert_close(jax.jit(jax.vmap(of_scale))(scales), [of_scale(scale) for scale in scales], 1e-12)
    assert_close(jax.grad(of_scale)(3.0), 2 * of_scale(3.0) / 3, 1e-12)


@pytest.mark.parametrize("name", ["trace", "trace_1", "jnp", "lambda", "value", "generated"])
def test_an_argument_named_like_something_generated_is_harmless_or_refused(name):
    scale = Symbol(name, positive=True)
    values = random_values((2, 3, 4), 8)
    try:
        function = compile_expressions("generated", {"value": scale * Trace(A) + log(scale)}, (A, scale))
    except ValueError as refusal:
        assert name in str(refusal)
    else:
        result = function(**{"A": jnp.asarray(values["A"]), name: 2.0})["value"]
        assert_close(result, 2 * jnp.trace(values["A"]) + jnp.log(2.0), 1e-12)


NOT_PROVABLY_DEFINITE = [Inverse(X), LogDet(X), LogDet(A - Inverse(A)), LogDet(-A), LogDet(F * W * F.T)]


@pytest.mark.parametrize("expression", NOT_PROVABLY_DEFINITE, ids=str)
def test_a_matrix_that_is_not_provably_definite_is_refused(expression):
    with pytest.raises(NotImplementedError, match="not provably positive definite"):
        operations(value=expression)


WITHOUT_A_RULE = [
    (HadamardProduct(A, L) * L, "HadamardProduct"),
    (Determinant(A) + 1, "Determinant"),
    (MatPow(A, Rational(1, 2)), "power"),
    (MatPow(A, Symbol("k", integer=True)), "power"),
    (Function("unheard_of")(s), "unheard_of"),
    (zeta(s) * Trace(A), "zeta"),
]


@pytest.mark.parametrize(("expression", "name"), WITHOUT_A_RULE, ids=str)
def test_a_node_without_a_rule_is_named(expression, name):
    with pytest.raises(NotImplementedError, match=name):
        operations(value=expression)


def test_a_definite_symbol_stays_definite_under_substitution_of_its_size():
    small = positive_definite("A", H).subs(H, 2)
    assert lower("lowered", {"value": LogDet(small)}, (small,)).operation_counts()["cholesky"] == 1
