"""Numerical values of a layer's expressions: the compiled side of `LayerForm`.

Every function here is generated from the forward map and the prior of the layer, so that no formula is written twice.
"""

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
from .layers import LayerSymbols

# The value of every size, width, variance and parameter symbol of a network's layers, by name.
Numbers = Mapping[str, Any]
# Number of partial paths after a layer.
_OUTER = Symbol("n", integer=True, positive=True)


def count(size: Expr, head_counts: Mapping[str, int]) -> int:
    """Evaluate an expression of head counts to a whole number."""
    if unknown := sorted({symbol.name for symbol in size.free_symbols} - set(head_counts)):
        raise ValueError(f"blocks and sizes must depend on the number of heads alone, got {', '.join(unknown)}")
    return int(interpret(size, head_counts))


def branch_heads(form: LayerForm, heads: int) -> np.ndarray:
    """Return which heads each branch passes, as booleans (branches x heads); none for the skip connection."""
    skip = np.zeros((int(form.has_skip), heads), dtype=bool)
    if isinstance(form.block_heads, Identity):
        return np.concatenate([skip, np.eye(heads, dtype=bool)])
    counts = {form.symbols.heads.name: heads}
    if form.block_heads is None:
        return np.concatenate([skip, np.zeros((count(form.blocks, counts), heads), dtype=bool)])
    # Replace parameters by ones, because only the zero entries matter here.
    symbols = _symbols(form.block_heads)
    ones = {each.name: np.ones([count(side, counts) for side in getattr(each, "shape", ())]) for each in symbols}
    return np.concatenate([skip, interpret(form.block_heads, {**ones, **counts}) != 0])


def forward(
    form: LayerForm,
    numbers: Numbers,
    hidden: Float[Array, "width tokens"],
    weights: Float[Array, "nextwidth columns"],
    attention: Float[Array, "headstokens tokens"] | None,
) -> Float[Array, "nextwidth tokens"]:
    """Return X_l, given X_{l-1}, V_l, and the attention of all heads stacked vertically."""
    arrays = {form.hidden: hidden, form.weights: weights, form.symbols.attention: attention}
    return _evaluate(form, form.forward, arrays, numbers)


def reading(
    form: LayerForm,
    numbers: Numbers,
    outer: Float[Array, "tokens n"],
    attention: Float[Array, "headstokens tokens"] | None,
) -> Float[Array, "tokens branchesn"]:
    """Return q_{l-1}, how each partial path reads the tokens before the layer, given q_l after the layer; Eq. (7)."""
    symbol = MatrixSymbol(f"q_{form.symbols.index}", form.symbols.tokens, _OUTER)
    return _evaluate(form, form.reading(symbol), {symbol: outer, form.symbols.attention: attention}, numbers)


def all_path_weights(
    forms: Sequence[LayerForm],
    numbers: Numbers,
    layers: Sequence[Float[Array, "_ _"]],
    readout: Float[Array, "outputs width"],
) -> tuple[Float[Array, "_ _"], ...]:
    """Return (w^(1), ..., w^(L+1)), given V_1, ..., V_L and the readout weights; Eq. (6)."""
    weights = [readout]
    for form, blocks in zip(reversed(forms), reversed(layers), strict=True):
        symbol = MatrixSymbol(f"w_{form.symbols.index}", _OUTER, form.symbols.next_width)
        arrays = {symbol: weights[-1], form.weights: blocks}
        weights.append(_evaluate(form, form.path_weights(symbol), arrays, numbers))
    return tuple(reversed(weights))


def prior_means(
    forms: Sequence[LayerForm], numbers: Numbers, outer: Float[Array | np.ndarray, "n n"]
) -> tuple[Float[Array | np.ndarray, "_ _"], ...]:
    """Return the mean of (U_1, ..., U_L) over the layers' weights, given U_{L+1}.

    Known values are interpreted in NumPy, because compilation would take longer than the evaluation.
    """
    known, means = not is_traced(numbers, outer), []
    if known:
        numbers = {name: value if isinstance(value, int) else np.asarray(value) for name, value in numbers.items()}
    for form in reversed(forms):
        symbol = MatrixSymbol(f"U_{form.symbols.index + 1}", _OUTER, _OUTER)
        mean = form.prior_mean(symbol)
        if known:
            outer = np.asarray(interpret(mean, {**numbers, symbol.name: np.asarray(outer), _OUTER.name: len(outer)}))
        else:
            outer = _evaluate(form, mean, {symbol: jnp.asarray(outer)}, numbers)
        means.insert(0, outer)
    return tuple(means)


def covariance_root(form: LayerForm, numbers: Numbers) -> Float[Array, "blocks blocks"]:
    """Return the lower Cholesky factor of the prior covariance of the layer's weight blocks.

    For independent blocks, as in most layers, the factor is a number times I.
    """
    variance, matrix = split_coefficient(form.covariance)
    if isinstance(matrix, Identity):
        return _evaluate(form, sqrt(variance) * matrix, {}, numbers)
    return jnp.linalg.cholesky(_evaluate(form, form.covariance, {}, numbers))


def gain(form: LayerForm, numbers: Numbers) -> ArrayLike:
    """Return the strength of the skip connection; zero if there is none."""
    return _evaluate(form, form.gain, {}, numbers)


def _symbols(expression: Expr) -> set[Expr]:
    # `free_symbols` leaves out symbols in the shapes of matrices.
    return expression.atoms(Symbol, MatrixSymbol)


def _evaluate(form: LayerForm, expression: Expr, arrays: Mapping[MatrixSymbol, Array | None], numbers: Numbers) -> Any:
    arrays = {symbol: array for symbol, array in arrays.items() if array is not None}
    function = _compile(form.symbols, expression, tuple(arrays))
    return function.call_from({**numbers, **{symbol.name: array for symbol, array in arrays.items()}})["value"]


@lru_cache
def _compile(symbols: LayerSymbols, expression: Expr, arrays: Sequence[MatrixSymbol]) -> CompiledFunction:
    """Compile a function of `arrays` and of every other symbol in `expression`, except the sizes of the arrays."""
    others = _symbols(expression) - {*arrays, _OUTER, symbols.tokens}
    arguments = (*arrays, *sorted(others, key=lambda symbol: symbol.name))
    return compile_expressions(f"layer_{symbols.index}", {"value": expression}, arguments)
