"""Functions of hidden units whose kernel is a number: square integrable under the Gaussian of the data."""

from collections.abc import Sequence
from functools import lru_cache

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from sympy import Symbol, sqrt

from ...arguments import is_traced
from ...codegen import CompiledFunction, compile_expressions
from ...symbolic import GaussianAverage, with_nodes
from ..specification.activations import NAMED, UNIT, Activation
from .token_kernels import token_kernel

_VARIANCE = Symbol("c", positive=True)
# nodes of two quadratures, and by what share they may differ: where the average is infinite they do not approach
_NODES, _SHARE = (64, 160), 0.2


def check_square_integrable(
    activations: Sequence[Activation],
    variances: Float[Array, " above"],
    tokens: Float[Array, "examples tokens features"],
) -> None:
    """Raise `ValueError` for a function whose square has no mean over hidden units as large as those of the data."""
    if is_traced(tokens, variances):
        return
    squares = np.sum(np.asarray(tokens) ** 2, axis=-1)
    largest = np.asarray(tokens).reshape(-1, tokens.shape[-1])[[int(np.argmax(squares))]]
    for layer, activation in enumerate(activations):
        below, above = activations[:layer], variances[: max(layer - 1, 0)]
        variance = float(np.max(squares))
        if layer:
            kernel = token_kernel(below, above, jnp.asarray(largest), jnp.asarray(largest))
            variance = float(kernel[0, 0] * jnp.prod(above) * variances[layer - 1])
        _check(activation, variance)


def _check(activation: Activation, variance: float) -> None:
    if activation in NAMED.values():
        return
    found = _mean_squares(activation).call_from({_VARIANCE: variance})
    coarse, fine = float(found["coarse"]), float(found["fine"])
    if not np.isfinite(fine) or not np.isfinite(coarse) or abs(fine - coarse) > _SHARE * abs(fine):
        raise ValueError(
            f"the function {activation.name} is not finite, or not square integrable, under the Gaussian of hidden "
            f"units of variance {variance:.3g}, which these inputs have: its mean square is {coarse:.3g} by "
            f"{_NODES[0]} nodes and {fine:.3g} by {_NODES[1]}"
        )


@lru_cache
def _mean_squares(activation: Activation) -> CompiledFunction:
    """The mean of the function's square, of hidden units of some variance, by either number of nodes."""
    unit = Symbol("z", real=True)
    square = GaussianAverage(activation.function.subs(UNIT, sqrt(_VARIANCE) * unit) ** 2, unit)
    coarse, fine = (with_nodes(square, nodes) for nodes in _NODES)
    return compile_expressions("squares", {"coarse": coarse, "fine": fine}, (_VARIANCE,))
