"""Draw random arrays to test the forward map of a layer against the user's reference."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from jax.typing import ArrayLike
from sympy import Expr

from ...bpkr.specification import layer_functions
from ...bpkr.specification.architecture import Architecture
from ...bpkr.specification.layer_form import LayerForm
from ...bpkr.specification.layers import AbstractLayer
from ...codegen import interpret
from ...symbolic.algebra import from_terms, matrix_terms
from ..problems import plain
from ..report import raised
from .placement import short_name

Reference = Callable[[np.ndarray, np.ndarray, np.ndarray | None, Mapping[str, ArrayLike]], ArrayLike]
"""Forward map in NumPy, (weights, hidden, attention, parameters) -> next hidden; see `check_layer`."""
Sizes = tuple[int, int, int]
"""(N_l, N_{l+1}, tokens)."""


class Unusable(Exception):
    """The reference raises an error, or does not return an array of next hidden activations."""


@dataclass(frozen=True)
class Trial:
    """Arrays of one layer, with different sizes if possible.

    - `form`: the symbolic form of the layer.
    - `weights` (blocks, N_{l+1}, N_l): weight blocks.
    - `hidden` (N_l, tokens): hidden activations.
    - `attention` (heads, keys, queries): attention, or None.
    - `parameters`: values of parameters by their names in the layer.
    """

    form: LayerForm
    weights: np.ndarray
    hidden: np.ndarray
    attention: np.ndarray | None
    parameters: Mapping[str, np.ndarray | float]

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the next hidden activations."""
        return self.weights.shape[1], self.hidden.shape[1]

    @property
    def sizes(self) -> Sizes:
        """(N_l, N_{l+1}, tokens)."""
        return (self.weights.shape[2], *self.shape)

    @property
    def quantities(self) -> dict[str, float]:
        """Possible ingredients of a factor, by their names in `forward`."""
        blocks, next_width, width = self.weights.shape
        found = {"layer.width": width, "layer.next_width": next_width, "layer.tokens": self.hidden.shape[1]}
        if next_width == width:
            del found["layer.next_width"]
        found |= {} if self.attention is None else {"layer.heads": len(self.attention)}
        found |= {} if blocks == found.get("layer.heads") else {"the number of blocks": blocks}
        found |= {name: value for name, value in self.parameters.items() if not np.ndim(value)}
        return {name: float(value) for name, value in found.items()}

    def terms(self) -> list[np.ndarray]:
        """Evaluate each term of the stated forward map."""
        values = self.values()
        return [np.asarray(interpret(term, values)) for term in term_expressions(self.form)]

    def stated(self) -> np.ndarray:
        """Return the next hidden activations according to `forward`."""
        return np.asarray(interpret(self.form.forward, self.values()))

    def referred(self, reference: Reference) -> np.ndarray:
        """Return the next hidden activations according to the reference. Raises `Unusable` if they are invalid."""
        attention = None if self.attention is None else self.attention.copy()
        try:
            with np.errstate(all="ignore"):
                returned = np.asarray(
                    reference(self.weights.copy(), self.hidden.copy(), attention, copies(self.parameters))
                )
                found = np.asarray(returned, dtype=float) if returned.dtype.kind != "c" else returned
        except Exception as error:  # The user's code may raise any error.
            raise Unusable(f"it raises {raised(error)}") from None
        if returned.dtype.kind == "c":
            size = np.max(np.abs(np.imag(returned)), initial=0.0)
            raise Unusable(f"it returns complex numbers, with imaginary parts up to {size:.3g}")
        if returned.dtype in (np.float32, np.float16):
            raise Unusable(f"it returns numbers in {returned.dtype}, whose rounding hides mistakes")
        if found.shape != self.shape:
            raise Unusable(f"it returns an array of shape {found.shape}, not {self.shape}")
        if not np.all(np.isfinite(found)):
            raise Unusable("it returns numbers that are not finite")
        return found

    def values(self) -> dict[str, np.ndarray | float]:
        """Return the value of every symbol of `forward`, by name."""
        form, (blocks, next_width, width) = self.form, self.weights.shape
        by_symbol: dict[Expr, ArrayLike] = {
            form.symbols.width: width,
            form.symbols.next_width: next_width,
            form.symbols.tokens: self.hidden.shape[1],
            form.weights: self.weights.swapaxes(0, 1).reshape(next_width, blocks * width),
            form.hidden: self.hidden,
        }
        if self.attention is not None:
            by_symbol[form.symbols.heads] = len(self.attention)
            by_symbol[form.symbols.attention] = self.attention.reshape(-1, self.attention.shape[2])
        by_symbol |= {symbol: self.parameters[short_name(symbol, form)] for symbol in form.parameters}
        return plain({symbol.name: value for symbol, value in by_symbol.items()})


def copies(parameters: Mapping[str, np.ndarray | float]) -> dict[str, np.ndarray | float]:
    """Copy the parameters, because the user's code may change them."""
    return {name: np.copy(value) if np.ndim(value) else value for name, value in parameters.items()}


def term_expressions(form: LayerForm) -> list[Expr]:
    """Return the terms of the sum in the forward map."""
    return [from_terms([term], form.forward.shape) for term in matrix_terms(form.forward)]


def make_trials(
    kind: AbstractLayer, form: LayerForm, sizes: Sequence[Sizes], seed: int, own_numbers: bool
) -> list[Trial]:
    """Make a trial for each of `sizes`, with the kind's own parameters if `own_numbers`, and else with other ones."""
    rng, found = np.random.default_rng(seed), []
    blocks = layer_functions.count(form.blocks, {form.symbols.heads.name: kind.heads} if kind.heads else {})
    given = plain({short_name(symbol, form): value for symbol, value in kind.parameters(form.symbols).items()})
    for width, next_width, tokens in sizes:
        # Columns of random attention sum to one over keys, as after a softmax.
        scores = np.exp(rng.normal(size=(kind.heads, tokens, tokens)))
        weights, hidden = rng.normal(size=(blocks, next_width, width)), rng.normal(size=(width, tokens))
        attention = scores / scores.sum(axis=1, keepdims=True) if kind.heads else None
        parameters = given
        if not own_numbers:
            parameters = {
                name: _other_matrix(value, rng) if np.ndim(value) else value * rng.uniform(1.2, 1.9)
                for name, value in given.items()
            }
        found.append(Trial(form, weights, hidden, attention, parameters))
    return found


def _other_matrix(matrix: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    factor = np.eye(len(matrix)) + rng.normal(size=matrix.shape) / (2 * len(matrix))
    return factor @ matrix @ factor.T


def of_other_heads(
    kind: AbstractLayer, form: LayerForm, heads: int, seed: int
) -> tuple[AbstractLayer, LayerForm] | None:
    """Return the layer with `heads` heads and arrays of matching shape, and its form, or None if this is impossible.

    At a second number of heads, a factor that depends on layer.heads changes, but a constant factor does not.
    """
    if not kind.heads:
        return None
    rng = np.random.default_rng(seed)
    old, new = (layer_functions.count(form.blocks, {form.symbols.heads.name: each}) for each in (kind.heads, heads))
    try:
        other = _resized(kind, {old: new, kind.heads: heads}, heads, rng)
        (found,) = Architecture((other,), 6, temperature=1.0).forms
    except Exception:  # The user's code may raise any error.
        return None
    return (other, found) if other.heads == heads and found.forward == form.forward else None


def _resized(kind: AbstractLayer, sizes: Mapping[int, int], heads: int, rng: np.random.Generator) -> AbstractLayer:
    # Resize arrays with an axis in `sizes`, here and in nested layers. Bypass the constructor, which may not accept
    # fields.
    other = object.__new__(type(kind))
    for field in fields(kind):
        value = getattr(kind, field.name)
        if isinstance(value, AbstractLayer):
            value = _resized(value, sizes, heads, rng)
        elif field.name == "heads":
            value = heads
        elif np.ndim(value) and any(axis in sizes for axis in np.shape(value)):
            shape = tuple(sizes.get(axis, axis) for axis in np.shape(value))
            is_square = len(shape) == 2 and shape[0] == shape[1]
            value = _other_matrix(np.eye(shape[0]), rng) if is_square else rng.uniform(0.5, 2.0, size=shape)
        object.__setattr__(other, field.name, value)
    return other
