"""Functions of entries and softmax, lowered two ways: one matrix at a time, and a batch of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sympy import Lambda, MatrixSymbol, Symbol, Trace, exp, symbols, tanh
from sympy.matrices.expressions.diagonal import DiagMatrix

from theorykit.codegen import BATCH, compile_expressions, interpret
from theorykit.codegen import batch as side_by_side
from theorykit.symbolic import Softmax, gradient, latex, positive_definite
from theorykit.symbolic.atoms import LogDet

L, M = symbols("L M", integer=True, positive=True)
K, V = MatrixSymbol("K", L, M), MatrixSymbol("V", L, M)
q, c, ell = MatrixSymbol("q", M, 1), MatrixSymbol("c", M, 1), MatrixSymbol("ell", L, 1)
gamma, x = Symbol("gamma"), Symbol("x")

WEIGHTS = Softmax(gamma * K * q + ell)
EXPRESSIONS = {
    "attention": V.T * WEIGHTS,
    "response": DiagMatrix(WEIGHTS) * V - WEIGHTS * WEIGHTS.T * V,
    "squashed": K.T * (gamma * K * q).applyfunc(tanh),
    "of entries": V.T * (K * q).applyfunc(Lambda(x, x / (1 + exp(-x)))),
    "outer": ell * q.T,
}
VARIABLES = (K, V, q, ell)
ARGUMENTS = (*VARIABLES, gamma)
SIZES = ((1, 1), (5, 2))


def random_values(size: tuple[int, int], batch: tuple[int, ...] = ()) -> dict[str, np.ndarray]:
    rng, sizes = np.random.default_rng(0), dict(zip((L, M), size, strict=True))
    shapes = {a.name: tuple(int(s.subs(sizes)) if s != 1 else 1 for s in a.shape) for a in (*ARGUMENTS[:-1], c)}
    drawn = {name: rng.normal(size=(*shape, *batch)) for name, shape in shapes.items()}
    return {**drawn, "gamma": rng.uniform(0.5, 2.0, size=batch)}


def literal(expression, values, size):
    return interpret(expression, {**values, "L": size[0], "M": size[1]})


def as_jax(values: dict[str, np.ndarray]) -> dict[str, jax.Array]:
    return {name: jnp.asarray(value) for name, value in values.items()}


def as_batch(values: dict[str, np.ndarray], long: bool) -> dict:
    """A batch of matrices; those of L rows with their rows as an axis where they are `long`."""
    given = as_jax(values)
    matrices = {name: side_by_side.matrix(value) for name, value in given.items() if name != "gamma"}
    if long:
        matrices |= {
            name: side_by_side.long_matrix(tuple(jnp.moveaxis(given[name], 1, 0))) for name in ("K", "V", "ell")
        }
    return {**matrices, "gamma": given["gamma"]}


def as_array(found: side_by_side.Matrix) -> np.ndarray:
    """Rows, columns, batch."""
    if found.long_rows:
        return np.stack([np.asarray(entry) for entry in found.grid[0]], axis=1)
    return np.stack([np.stack([np.asarray(entry) for entry in row]) for row in found.grid])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_one_matrix_and_every_instance_of_a_batch_are_what_the_interpreter_says(name, size):
    batch, expression = (2, 3), EXPRESSIONS[name]
    values, outputs = random_values(size, batch), {"found": expression}
    whole = compile_expressions("f", outputs, ARGUMENTS, BATCH)
    found = [as_array(whole.call_from(as_batch(values, long))["found"]) for long in (False, True)]
    alone = compile_expressions("f", outputs, ARGUMENTS)
    for instance in np.ndindex(batch):
        given = {key: value[(..., *instance)] for key, value in values.items()}
        for one in (*(each[(..., *instance)] for each in found), alone.call_from(as_jax(given))["found"]):
            np.testing.assert_allclose(one, literal(expression, given, size), rtol=1e-12, atol=1e-13)


def test_softmax_takes_minus_infinity_and_does_not_overflow():
    scores = jnp.array([[900.0], [-jnp.inf], [899.0]])
    for long in (False, True):
        column = side_by_side.long_matrix((scores,)) if long else side_by_side.matrix(scores[..., None])
        softmax = compile_expressions("softmax", {"of": Softmax(ell)}, (ell,), BATCH)
        found = as_array(softmax(ell=column)["of"]).reshape(-1)
        np.testing.assert_allclose(found[[0, 2]], 1 / (1 + np.exp([-1.0, 1.0])), rtol=1e-14)
        assert found[1] == 0


def test_the_symbolic_gradient_is_that_of_jax():
    scalar, size = Trace(c.T * EXPRESSIONS["attention"]) + Trace(c.T * EXPRESSIONS["of entries"]), SIZES[1]
    values = random_values(size)
    function, given = compile_expressions("f", {"f": scalar}, (*ARGUMENTS, c)), as_jax(values)
    slopes = jax.grad(lambda at: function.call_from({**given, **at})["f"])({v.name: given[v.name] for v in VARIABLES})
    for variable in VARIABLES:
        symbolic = literal(gradient(scalar, variable), values, size)
        np.testing.assert_allclose(symbolic, slopes[variable.name], rtol=1e-10, atol=1e-11)


def test_an_operation_without_a_rule_for_a_batch_is_an_error():
    positive = positive_definite("A", M)
    matrix = side_by_side.matrix(jnp.ones((2, 2, 3)))
    with pytest.raises(AttributeError, match=r"batch.* has no attribute"):
        compile_expressions("f", {"f": LogDet(positive)}, (positive,), BATCH)(A=matrix)
    long = as_batch(random_values((3, 2), (1,)), long=True)
    with pytest.raises(NotImplementedError, match="two long dimensions"):
        long["K"] @ long["V"].T


def test_they_are_written_as_on_paper():
    assert latex(EXPRESSIONS["attention"]) == r"V^{T} \operatorname{softmax}\left(\gamma K q + \ell\right)"
    assert latex(EXPRESSIONS["squashed"]) == r"K^{T} \tanh{\left(\gamma K q \right)}"
    assert r"\operatorname{diag}\left(q\right)" in latex(DiagMatrix(q) * c)
