"""What a layer's own numbers must be: every symbol has its value, and the values are those of a Gaussian prior.

Concrete values are checked here and refused with a `ValueError`; traced ones when the compiled function runs.
"""

import re
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from sympy import Expr, Identity, MatrixSymbol, Symbol

from ...checks import by_name, check_is_number, checked_whole_number, real_array
from ...codegen import interpret
from ...codegen.names import check_name
from ...symbolic.atoms import split_coefficient
from .layer_form import LayerForm
from .layer_functions import count
from .layers import AbstractLayer

# names that stand for something else in an action or in its derivation
_TAKEN = frozenset({"H", "N", "Omega", "Q", "R", "U", "V", "X", "Z", "q", "sigma2", "w"})


def check_layer(kind: AbstractLayer, form: LayerForm, variance: Any) -> AbstractLayer:
    """`kind` itself, refused where its heads, parameters or prior do not make a layer of the theory."""
    layer = f"layer {form.symbols.index} ({type(kind).__name__})"
    _check_heads(layer, kind, form)
    counts = {form.symbols.heads.name: kind.heads} if kind.heads else {}
    values = kind.parameters(form.symbols)
    _check_named(layer, form, values)
    for symbol, value in values.items():
        if isinstance(symbol, MatrixSymbol):
            size = count(symbol.shape[0], counts)
            kind = _checked_matrix(f"parameter {symbol.name} of {layer}", kind, value, size)
        else:
            kind = _checked_number(f"parameter {symbol.name} of {layer}", kind, value, form.gain.has(symbol))
    _check_prior(layer, form, {**counts, form.symbols.variance: variance, **values})
    return kind


def _check_heads(layer: str, kind: AbstractLayer, form: LayerForm) -> None:
    checked_whole_number(f"heads of {layer}", kind.heads, least=0)
    attends = form.forward.has(form.symbols.attention)
    if attends and kind.heads < 1:
        raise ValueError(f"{layer} has attention in its forward map, but heads={kind.heads}")
    if kind.heads and not attends:
        raise ValueError(f"{layer} has heads={kind.heads}, but no attention in its forward map")


def _check_named(layer: str, form: LayerForm, values: Mapping[Expr, Any]) -> None:
    missing = sorted(symbol.name for symbol in form.parameters - set(values))
    if missing:
        raise ValueError(f"{layer} gives no value for {', '.join(missing)}: `parameters` must name every symbol it has")
    for symbol in values:
        check_name(f"a parameter of {layer}", symbol.name)
        if re.sub(rf"_{form.symbols.index}$", "", symbol.name) in _TAKEN:
            raise ValueError(f"{layer} cannot have a parameter called {symbol.name}: it stands for something else")


def _checked_number(name: str, kind: AbstractLayer, value, is_gain: bool) -> AbstractLayer:
    if isinstance(value, jax.core.Tracer):
        return eqx.error_if(kind, ~(jnp.isfinite(value) & (value > 0)), f"{name} must be finite and positive")
    try:
        check_is_number(name, value)
    except TypeError as error:
        raise ValueError(str(error)) from None
    if not (value > 0 and np.isfinite(value)):
        causes = {0: ": for a skip connection of no strength, leave the skip out"}
        if value < 0:
            causes = {value: ": the sign of a skip connection can be absorbed into the weights, whose prior is even"}
        raise ValueError(f"{name} must be finite and positive, got {value!r}{causes.get(value, '') if is_gain else ''}")
    return kind


def _checked_matrix(name: str, kind: AbstractLayer, value, size: int) -> AbstractLayer:
    if not isinstance(value, jax.core.Tracer):
        value = real_array(name, value)
    if value.shape != (size, size):
        raise ValueError(f"{name} must have shape {(size, size)}, got {value.shape}")
    if isinstance(value, jax.core.Tracer):
        asymmetric = jnp.max(jnp.abs(value - value.T)) > 1e-8 * jnp.max(jnp.abs(value))
        bad = asymmetric | ~(jnp.linalg.eigvalsh(value)[0] > 0)
        return eqx.error_if(kind, bad, f"{name} must be symmetric positive definite")
    _check_positive_definite(name, value)
    return kind


def _check_positive_definite(name: str, matrix: np.ndarray) -> None:
    if not np.all(np.isfinite(matrix)):
        raise ValueError(f"{name} must be finite, got {matrix}")
    if np.max(np.abs(matrix - matrix.T)) > 1e-8 * np.max(np.abs(matrix)):
        raise ValueError(f"{name} must be symmetric, got {matrix}")
    smallest, largest = np.linalg.eigvalsh(matrix)[[0, -1]]
    if smallest <= len(matrix) * np.finfo(np.float64).eps * largest:
        raise ValueError(f"{name} is not positive definite: smallest eigenvalue {smallest:.3g} of {largest:.3g}")


def _check_prior(layer: str, form: LayerForm, values: Mapping[Expr | str, Any]) -> None:
    sizes = {form.symbols.width, form.symbols.next_width, form.symbols.tokens}
    if found := sorted(symbol.name for symbol in sizes & form.covariance.atoms(Symbol)):
        raise ValueError(
            f"the prior covariance of the weight blocks of {layer} depends on {', '.join(found)}: keep sizes out of "
            "`prior`, and divide by sqrt(layer.width) in `forward`"
        )
    if any(isinstance(value, jax.core.Tracer) for value in values.values()):
        return
    named = by_name("parameters", values)
    numbers = {name: np.asarray(value) if np.ndim(value) else float(value) for name, value in named.items()}
    name = f"the prior covariance of the weight blocks of {layer}"
    variance, matrix = split_coefficient(form.covariance)
    if isinstance(matrix, Identity):
        # never formed: blocks may be very many
        _check_positive_definite(name, np.full((1, 1), interpret(variance, numbers)))
    else:
        _check_positive_definite(name, interpret(form.covariance, numbers))
