"""Values that are refused eagerly are refused under jit, vmap and grad too, by the same words."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sympy import Symbol, log

from theorykit.checks import Requirement, by_name, guard, refuse_known, require
from theorykit.codegen import compile_expressions
from theorykit.saddle import Action, Between, Positive, PositiveDefinite, Real, minimise
from theorykit.saddle.domains import as_declared
from theorykit.symbolic import positive_definite, positive_semidefinite, symmetric

# what JAX raises of an error in a compiled function depends on how it was dispatched
COMPILED = (RuntimeError, ValueError)
ASYMMETRIC = np.array([[1.0, 0.5], [0.0, 1.0]])
# by assumption, by kind of matrix, and by domain: a value that is admitted, and some that are not
NUMBERS = {
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
MATRICES = {
    symmetric: (-np.eye(2), (ASYMMETRIC,)),
    positive_semidefinite: (np.ones((2, 2)), (-np.eye(2), ASYMMETRIC)),
    positive_definite: (np.eye(2), (np.ones((2, 2)), -np.eye(2), np.full((2, 2), np.nan))),
}
DOMAINS = {
    Positive(): (1.0, (0.0, -1.0, np.nan)),
    Between(-1, 2): (0.0, (-1.0, 2.0, 3.0, np.inf)),
    Real(): (-1.0, (np.nan, -np.inf)),
    PositiveDefinite(): (np.eye(2), (-np.eye(2), np.ones((2, 2)), ASYMMETRIC)),
}
CASES = [
    *(
        (lambda name, value, a=a: as_declared(name, Symbol("x", **{a: True}), value), *given)
        for a, given in NUMBERS.items()
    ),
    *(
        (lambda name, value, make=make: as_declared(name, make("x", 2), value), *given)
        for make, given in MATRICES.items()
    ),
    *(
        (lambda name, value, domain=domain: domain.all_requirements(name, value, np.shape(value)), *given)
        for domain, given in DOMAINS.items()
    ),
]


@pytest.mark.quick(7)
@pytest.mark.parametrize("case", CASES, ids=[*NUMBERS, *(make.__name__ for make in MATRICES), *map(str, DOMAINS)])
def test_values_fulfil_their_conditions_eagerly_and_compiled(case):
    conditions, right, wrong = case
    check = lambda value: require(value, conditions("values[x]", value))  # noqa: E731
    one, many = jax.jit(check), jax.jit(jax.vmap(check))
    np.testing.assert_array_equal(check(np.asarray(right)), right)
    np.testing.assert_array_equal(many(jnp.stack([jnp.asarray(right)] * 2)), [right] * 2)
    for value in wrong:
        with pytest.raises(ValueError, match=r"values\[x\]") as refusal:
            check(np.asarray(value))
        # of one number the condition is said by the same words
        words = str(refusal.value).partition(", ")[0] if "must" in str(refusal.value) else "values[x]"
        calls = [(one, value), (many, jnp.stack([jnp.asarray(right), value]))]
        for call, given in [*calls, (jax.grad(one), value)] if np.ndim(value) == 0 else calls:
            with pytest.raises(COMPILED, match=words.replace("[", r"\[").replace("]", r"\]")):
                jax.block_until_ready(call(given))


@pytest.mark.parametrize("assumption", ["imaginary", "infinite"])
def test_symbols_that_no_finite_real_number_can_stand_for_are_refused(assumption):
    with pytest.raises(ValueError, match="but values are finite real numbers"):
        list(as_declared("values[x]", Symbol("x", **{assumption: True}), np.asarray(1.0)))


@pytest.mark.slow
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


@pytest.mark.parametrize(("value", "bound"), [(0.0, 1), (1.5, 2), (2.5, 3)])
def test_the_first_condition_that_does_not_hold_is_told(value, bound):
    def conditions(x):
        return (Requirement(f"x must be above {bound}", x > bound) for bound in (1, 2, 3))

    assert require(4.0, conditions(np.asarray(4.0))) == 4.0
    assert refuse_known(conditions(np.asarray(4.0))) == [] and guard(4.0, []) == 4.0
    compiled = jax.jit(lambda x: require(x, conditions(x)))
    for call, error in ((lambda x: require(x, conditions(np.asarray(x))), ValueError), (compiled, COMPILED)):
        with pytest.raises(error, match=f"above {bound}"):
            jax.block_until_ready(call(value))


def test_a_value_that_is_given_twice_is_refused():
    x, y = Symbol("x", real=True), Symbol("y", real=True)
    assert by_name("values", {x: 1.0, "y": 2.0}) == {"x": 1.0, "y": 2.0}
    compiled = compile_expressions("f", {"out": x**2}, [x])
    action = Action((x - 1) ** 2, {x: Real()})
    calls = (lambda given: by_name("values", given), compiled.call_from, lambda given: minimise(action, initial=given))
    for twice in ({x: 1.0, "x": 1.0}, {x: 1.0, Symbol("x", positive=True): 2.0}):
        for call in calls:
            with pytest.raises(ValueError, match="has 'x' twice"):
                call(twice)
    for domains, parameters in (
        ({x: Real()}, [Symbol("x", positive=True)]),
        ({x: Real()}, [y, Symbol("y", positive=True)]),
    ):
        with pytest.raises(ValueError, match="declared by two symbols"):
            Action(sum(domains) + sum(parameters), domains, parameters)
