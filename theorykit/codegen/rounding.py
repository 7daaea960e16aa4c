"""First-order effects of rounding errors in the sums of an expression, by perturbing each part of each sum."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from sympy import Add, Basic, Expr, Function, Mul, Pow

from ..symbolic.averages import GaussianAverage
from .evaluate import At
from .jax_algebra import Jax
from .sizes import sizes_of


class _Perturbed(At):
    """A point at which every part of some sums has a relative error.

    Averages are evaluated without errors, because their own errors are stated separately.
    """

    def __init__(self, values: Mapping[str, Any], errors: Mapping[Add, Sequence[Array]]):
        super().__init__(values, Jax)
        self.errors, self.exact = errors, At(values, Jax)

    def __call__(self, node: Basic) -> Any:
        if node in self.known:
            return self.known[node]
        if isinstance(node, GaussianAverage):
            self.known[node] = self.exact(node)
        elif node in self.errors:
            parts = zip(node.args, self.errors[node], strict=True)
            self.known[node] = sum(self(part) * (1 + error) for part, error in parts)
        return super().__call__(node)


def _inner_sums(expressions: Sequence[Expr]) -> list[Add]:
    """Return the sums of numbers inside the terms of expressions, each once."""
    found: dict[Add, None] = {}
    seen: set[Basic] = set()
    nodes = [term for expression in expressions for term in Add.make_args(expression)]
    while nodes:
        node = nodes.pop()
        if node in seen or getattr(node, "is_Matrix", False):
            continue
        seen.add(node)
        if isinstance(node, Add):
            found[node] = None
        if isinstance(node, (Add, Mul, Pow, Function)):
            nodes += node.args
    return [each for each in found if not each.is_number]


def rounding_effects(outputs: Sequence[Expr], arguments: Sequence[Expr]) -> Callable[..., Float[Array, "output part"]]:
    """Return a function of the arguments by name: effects of relative errors of one in the parts of inner sums.

    Effects on each output are to first order. Sums inside averages and inside functions of matrices are left out.
    """
    sums = _inner_sums(outputs)
    count = sum(len(each.args) for each in sums)

    def effects(**values: Any) -> Array:
        given = {**values, **sizes_of(arguments, values, Jax)}

        def perturbed(errors: Array) -> Array:
            own, start = {}, 0
            for each in sums:
                own[each] = errors[start : start + len(each.args)]
                start += len(each.args)
            at = _Perturbed(given, own)
            results = [sum(at(term) for term in Add.make_args(expression)) for expression in outputs]
            return jnp.stack([jnp.asarray(result, float) for result in results])

        return jax.jacrev(perturbed)(jnp.zeros(count)) if count else jnp.zeros((len(outputs), 0))

    return effects
