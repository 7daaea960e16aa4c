"""Values that are refused eagerly are refused under jit, vmap and grad too, by the same words."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sympy import Symbol, log

from theorykit.checks import Requirement, by_name, guard, refuse_known, require
from theorykit.codegen import compile_expressions
from theorykit.saddle import Action, Between, Positive, PositiveDefinite, Real, minimise
from theorykit.saddle.domains import as_declared
from theorykit.symbolic import log_det, positive_definite, positive_semidefinite, symmetric, trace

# what JAX raises of an error in a compiled function depends on how it was dispatched
COMPILED = (RuntimeError, ValueError)
DECLARED = {
    "positive": (1.0, (0.0, -1.0)),
    "negative": (-1.0, (0.0, 1.0)),
    "nonnegative": (0.0, (-1.0,)),
    "nonpositive": (0.0, (1.0,)),
    "nonzero": (1.0, (0.0,)),
    "zero": (0.0, (1.0,)),
    "integer": (2.0, (1.5,)),
    "noninteger": (1.5, (2.0,)),
    "even": (2.0, (1.0, 0.5)),
    "odd": (1.0, (2.0, 0.5)),
    "real": (1.0, (np.nan, np.inf)),
}


def checked(symbol):
    return lambda value: require(value, as_declared("values[x]", symbol, value))


@pytest.mark.parametrize("assumption", DECLARED)
def test_numbers_are_what_their_symbol_is_declared_to_be(assumption):
    right, wrong = DECLARED[assumption]
    check = checked(Symbol("x", **{assumption: True}))
    one, many = jax.jit(check), jax.jit(jax.vmap(check))
    assert check(np.asarray(right)) == one(right) == right
    np.testing.assert_array_equal(many(jnp.full(2, right)), right)
    for value in wrong:
        with pytest.raises(ValueError, match=r"values\[x\] must (.*), got") as refusal:
            check(np.asarray(value))
        words = str(refusal.value).partition(", got")[0]
        for call, given in ((one, value), (many, jnp.array([right, value])), (jax.grad(one), value)):
            with pytest.raises(COMPILED, match=words.replace("[", r"\[").replace("]", r"\]")):
                jax.block_until_ready(call(given))


@pytest.mark.parametrize("assumption", ["imaginary", "infinite"])
def test_symbols_that_no_finite_real_number_can_stand_for_are_refused(assumption):
    symbol = Symbol("x", **{assumption: True})
    with pytest.raises(ValueError, match="and values are finite real numbers"):
        checked(symbol)(np.asarray(1.0))


MATRICES = {
    symmetric: (-np.eye(2), (np.array([[1.0, 0.5], [0.0, 1.0]]),)),
    positive_semidefinite: (np.ones((2, 2)), (-np.eye(2), np.array([[1.0, 0.5], [0.0, 1.0]]))),
    positive_definite: (np.eye(2), (np.ones((2, 2)), -np.eye(2), np.full((2, 2), np.nan))),
}


@pytest.mark.parametrize("declared", MATRICES)
def test_matrices_are_what_their_symbol_is_declared_to_be(declared):
    right, wrong = MATRICES[declared]
    check = checked(declared("x", 2))
    one = jax.jit(check)
    np.testing.assert_array_equal(one(right), right)
    for value in wrong:
        with pytest.raises(ValueError, match=r"values\[x\]"):
            check(value)
        with pytest.raises(COMPILED, match=r"values\[x\]"):
            jax.block_until_ready(one(value))


DOMAINS = {
    Positive(): (1.0, (0.0, -1.0, np.nan)),
    Between(-1, 2): (0.0, (-1.0, 2.0, 3.0, np.inf)),
    Real(): (-1.0, (np.nan, -np.inf)),
    PositiveDefinite(): (np.eye(2), (-np.eye(2), np.ones((2, 2)), np.array([[1.0, 0.5], [0.0, 1.0]]))),
}


@pytest.mark.parametrize("domain", DOMAINS)
def test_starts_are_in_their_domains(domain):
    right, wrong = DOMAINS[domain]

    def check(value):
        return domain.checked("initial[x]", value, np.shape(right))

    one, many = jax.jit(check), jax.jit(jax.vmap(check))
    np.testing.assert_array_equal(one(right), check(right))
    for value in wrong:
        with pytest.raises(ValueError, match=r"initial\[x\]"):
            check(value)
        for call, given in ((one, value), (many, jnp.stack([jnp.asarray(right), value]))):
            with pytest.raises(COMPILED, match=r"initial\[x\]"):
                jax.block_until_ready(call(given))


def test_a_compiled_solve_refuses_by_name_what_an_eager_one_refuses():
    """Its parameters, its start, and a term that is not finite there: by one compiled function."""
    beta, m, c = Symbol("beta", positive=True), Symbol("m", real=True), Symbol("c", real=True)
    action = Action(beta * m**2 / 2 - m - c * log(m + 2), {m: Between(-3, 3)}, [beta, c])

    def solve(numbers):
        values = {beta: numbers[0], c: numbers[1]}
        return minimise(action, values, initial={m: numbers[2]}).action

    compiled, right = jax.jit(solve), (2.0, 0.1, 1.0)
    assert np.isclose(compiled(right), solve(right))
    wrong = {
        r"values\[beta\] must be above zero": {0: -1.0},
        r"values\[beta\] must be finite": {0: np.nan},
        r"values\[c\] must be finite": {1: np.inf},
        r"initial\[m\] must be above -3": {2: -4.0},
        r"the term .*log.* is not finite at initial": {2: -2.5},
    }
    for words, changes in wrong.items():
        numbers = tuple(changes.get(at, number) for at, number in enumerate(right))
        for call, error in ((solve, ValueError), (compiled, COMPILED)):
            with pytest.raises(error, match=words):
                jax.block_until_ready(call(numbers))
    # kinds are refused when the function is traced
    for number in (1j, True):
        with pytest.raises(TypeError, match=r"values\[beta\] must be a number"):
            compiled((jnp.asarray(number), *right[1:]))


@pytest.mark.slow
def test_one_matrix_of_a_batch_is_refused_in_a_compiled_solve():
    n = Symbol("n", integer=True, positive=True)
    big, given = positive_definite("U", n), positive_definite("C", n)
    action = Action(trace(given * big) - log_det(big), {big: PositiveDefinite()}, [given])
    solve = jax.jit(jax.vmap(lambda c: minimise(action, {given: c}, initial={big: jnp.eye(2)}).action))
    np.testing.assert_allclose(solve(jnp.stack([jnp.eye(2), 2 * jnp.eye(2)])), 2 + np.log([1, 4]), atol=1e-9)
    with pytest.raises(COMPILED, match=r"values\[C\] must be positive definite"):
        jax.block_until_ready(solve(jnp.stack([jnp.eye(2), -jnp.eye(2)])))


def test_the_first_condition_that_does_not_hold_is_told():
    def conditions(x):
        return (Requirement(f"x must be above {bound}", x > bound) for bound in (1, 2, 3))

    assert require(4.0, conditions(np.asarray(4.0))) == 4.0
    assert refuse_known(conditions(np.asarray(4.0))) == [] and guard(4.0, []) == 4.0
    compiled = jax.jit(lambda x: require(x, conditions(x)))
    for value, bound in itertools.product((0.0, 1.5, 2.5), (1,)):
        bound = 1 + int(np.ceil(value) - 1) if value > 1 else bound
        with pytest.raises(ValueError, match=f"above {bound}"):
            require(value, conditions(np.asarray(value)))
        with pytest.raises(COMPILED, match=f"above {bound}"):
            jax.block_until_ready(compiled(value))


def test_a_value_that_is_given_twice_is_refused():
    x = Symbol("x", real=True)
    assert by_name("values", {x: 1.0, "y": 2.0}) == {"x": 1.0, "y": 2.0}
    compiled = compile_expressions("f", {"out": x**2}, [x])
    action = Action((x - 1) ** 2, {x: Real()})
    for twice in ({x: 1.0, "x": 1.0}, {x: 1.0, Symbol("x", positive=True): 2.0}):
        for call in (
            lambda given: by_name("values", given),
            compiled.call_from,
            lambda given: minimise(action, initial=given),
        ):
            with pytest.raises(ValueError, match="gives 'x' twice"):
                call(twice)
    y = Symbol("y", real=True)
    for symbols in (({x: Real()}, [Symbol("x", positive=True)]), ({x: Real()}, [y, Symbol("y", positive=True)])):
        with pytest.raises(ValueError, match="declared by two symbols"):
            Action(sum(symbols[0]) + sum(symbols[1]), *symbols)
