"""Numbers of a layer: functions that are generated from its forward map and prior, so that each is written once."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float
from sympy import Expr, Identity, MatrixSymbol, Symbol, sqrt

from ...checks import is_traced
from ...codegen import CompiledFunction, compile_expressions, interpret
from ...symbolic.atoms import split_coefficient
from .layer_form import LayerForm
from .layers import TOKENS

Numbers = Mapping[str, Any]
"""The value of every size, width, variance and parameter symbol of a network's layers, by name."""
# Number of partial paths after a layer.
_OUTER = Symbol("n", integer=True, positive=True)


def count(size: Expr, head_counts: Mapping[str, int]) -> int:
    """Evaluate an expression of head counts to a whole number."""
    if unknown := sorted({symbol.name for symbol in size.free_symbols} - set(head_counts)):
        raise ValueError(f"blocks and sizes must depend on the number of heads alone, got {', '.join(unknown)}")
    return int(interpret(size, head_counts))


def branch_heads(form: LayerForm, heads: int) -> np.ndarray:
    """Return which heads each branch passes, as booleans (branches x heads); none for the skip connection."""
    counts = {form.symbols.heads.name: heads}
    if form.block_heads is None:
        passed = np.zeros((count(form.blocks, counts), heads))
    else:
        # Replace parameters by ones, because only the zero entries matter.
        for each in form.block_heads.atoms(Symbol, MatrixSymbol) - {form.symbols.heads}:
            counts[each.name] = np.ones([count(side, counts) for side in getattr(each, "shape", ())])
        passed = interpret(form.block_heads, counts)
    return np.concatenate([np.zeros((int(form.has_skip), heads)), passed]) != 0


def forward(
    form: LayerForm,
    numbers: Numbers,
    hidden: Float[Array, "width tokens"],
    weights: Float[Array, "nextwidth columns"],
    attention: Float[Array, "headstokens tokens"] | None,
) -> Float[Array, "nextwidth tokens"]:
    """Return X_l, given X_{l-1}, V_l, and the attention of all heads stacked vertically."""
    arrays = {form.hidden: hidden, form.weights: weights, form.symbols.attention: attention}
    return _evaluate(form.forward, numbers, arrays)


def reading(
    form: LayerForm,
    numbers: Numbers,
    outer: Float[Array, "tokens n"],
    attention: Float[Array, "headstokens tokens"] | None,
) -> Float[Array, "tokens branchesn"]:
    """Return how each partial path reads the tokens before the layer, given q_l after it; Eq. (7)."""
    after = MatrixSymbol(f"q_{form.symbols.index}", TOKENS, _OUTER)
    return _evaluate(form.reading(after), numbers, {after: outer, form.symbols.attention: attention})


def all_path_weights(
    forms: Sequence[LayerForm],
    numbers: Numbers,
    layers: Sequence[Float[Array, "_ _"]],
    readout: Float[Array, "outputs width"],
) -> tuple[Float[Array, "_ _"], ...]:
    """Return (w^(1), ..., w^(L+1)), given V_1, ..., V_L and the readout weights; Eq. (6)."""
    found = [readout]
    for form, blocks in zip(reversed(forms), reversed(layers), strict=True):
        outer = MatrixSymbol(f"w_{form.symbols.index}", _OUTER, form.symbols.next_width)
        found.append(_evaluate(form.path_weights(outer), numbers, {outer: found[-1], form.weights: blocks}))
    return tuple(reversed(found))


def prior_means(
    forms: Sequence[LayerForm], numbers: Numbers, outer: Float[Array | np.ndarray, "n n"]
) -> tuple[Float[Array | np.ndarray, "_ _"], ...]:
    """Return the prior mean of (U_1, ..., U_L) given U_{L+1}, in NumPy if all values are known."""
    means, known = [], not is_traced(numbers, outer)
    for form in reversed(forms):
        symbol = MatrixSymbol("U", _OUTER, _OUTER)
        mean = form.prior_mean(symbol)
        if known:  # A compilation takes longer than the evaluation.
            values = {name: value if isinstance(value, int) else np.asarray(value) for name, value in numbers.items()}
            outer = np.asarray(interpret(mean, values | {symbol.name: np.asarray(outer), _OUTER.name: len(outer)}))
        else:
            outer = _evaluate(mean, numbers, {symbol: jnp.asarray(outer)})
        means.insert(0, outer)
    return tuple(means)


def covariance_root(form: LayerForm, numbers: Numbers) -> Float[Array, "blocks blocks"]:
    """Return the lower Cholesky factor of the prior covariance of the layer's weight blocks."""
    variance, matrix = split_coefficient(form.covariance)
    if isinstance(matrix, Identity):
        return _evaluate(sqrt(variance) * matrix, numbers)
    return jnp.linalg.cholesky(_evaluate(form.covariance, numbers))


def gain(form: LayerForm, numbers: Numbers) -> ArrayLike:
    """Return the strength of the skip connection; zero if there is none."""
    return _evaluate(form.gain, numbers)


def _evaluate(expression: Expr, numbers: Numbers, arrays: Mapping[MatrixSymbol, Array | None] | None = None) -> Any:
    given = {symbol: array for symbol, array in (arrays or {}).items() if array is not None}
    function = _compile(expression, tuple(given))
    return function.call_from({**numbers, **{symbol.name: array for symbol, array in given.items()}})["value"]


@lru_cache
def _compile(expression: Expr, arrays: tuple[MatrixSymbol, ...]) -> CompiledFunction:
    """Compile a function of `arrays` and of every other symbol, except sizes that the arrays determine."""
    others = expression.atoms(Symbol, MatrixSymbol) - {*arrays, _OUTER, TOKENS}
    arguments = (*arrays, *sorted(others, key=lambda symbol: symbol.name))
    return compile_expressions("layer", {"value": expression}, arguments)
