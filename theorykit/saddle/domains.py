"""Domains of order parameters: unconstrained coordinates, and steps in a natural metric.

Every real vector of coordinates is a point of the domain. To first order, the
Euclidean length of a step from a point (`moved`) is

    number, matrix, symmetric matrix     |dx|, Frobenius norm
    positive number                      |dx| / x
    interval a < x < b                   |dx| (b - a) / ((x - a) (b - x))
    positive definite matrix             (tr(U^{-1} dU U^{-1} dU))^{1/2}

so that curvatures of an action do not depend on units of positive order parameters.
"""

import abc
from typing import Any, ClassVar, SupportsFloat

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float
from sympy import Expr, MatrixSymbol, Symbol

from ..checks import checked_number, is_traced, shown
from ..symbolic.atoms import PositiveDefiniteSymbol, PositiveSemidefiniteSymbol, SymmetricSymbol
from .problem import Coordinates

Shape = tuple[int, ...]
Value = Float[Array | np.ndarray, "..."]

# Assumptions of SymPy that are checked. Others, such as nonnegative, follow from these.
_ASSUMPTIONS = {
    "positive": (lambda x: x > 0, "above zero"),
    "negative": (lambda x: x < 0, "below zero"),
    "zero": (lambda x: x == 0, "zero"),
    "integer": (lambda x: x % 1 == 0, "a whole number"),
}
# Largest difference between a matrix and its transpose, relative to its entries.
_ASYMMETRY = 1e-8
# Ratios of order parameters below this count as zero.
_TINY = 1e-30


# Lower triangular matrices are stored as vectors: the triangle is folded into the
# rows of a square. XLA takes long to compile gathers, scatters and selections, so
# only slices, reversals and products are used.


def _unfolded(entries: Float[Array, " entries"], size: int) -> Float[Array, "size size"]:
    return jnp.concatenate([entries[size:], entries[::-1]]).reshape(size, size)


def _entries_of(lower: Float[Array, "size size"]) -> Float[Array, " entries"]:
    size = len(lower)
    # An entry has one or two positions in the square. Only one is in the triangle,
    # and the other adds zero.
    again, whole = jnp.split(lower.ravel(), [size * (size - 1) // 2])
    return whole[::-1] + jnp.pad(again, (size, 0))


def filled_factor(entries: Float[Array, " entries"], size: int) -> Float[Array, "size size"]:
    """Build a Cholesky factor from its entries, with the logarithm of its diagonal."""
    folded = _unfolded(entries, size)
    diagonal, strictly_below = np.eye(size), np.tri(size, k=-1)
    return folded * strictly_below + jnp.exp(folded * diagonal) * diagonal


def entries_of_factor(factor: Float[Array, "size size"]) -> Float[Array, " entries"]:
    """Return the entries of a Cholesky factor: the inverse of `filled_factor`."""
    size = len(factor)
    diagonal, strictly_below = np.eye(size), np.tri(size, k=-1)
    return _entries_of(factor * strictly_below + jnp.log(factor * diagonal + (1.0 - diagonal)))


def _weighted(step: Coordinates, rows: int, on_diagonal: float) -> Coordinates:
    # An off-diagonal entry occurs twice in a symmetric matrix.
    weights = np.tri(rows, k=-1) * np.sqrt(0.5) + np.eye(rows) * on_diagonal
    return step * _entries_of(jnp.asarray(weights))


class AbstractDomain(eqx.Module):
    """Set of values of an order parameter: numbers from `low` to `high`, or matrices.

    - `condition`: the domain in LaTeX.
    """

    low: ClassVar[float] = -np.inf
    high: ClassVar[float] = np.inf
    condition: ClassVar[str]

    @property
    def has_edges(self) -> bool:
        """Whether `low` or `high` is finite."""
        return self.low > -np.inf

    def size(self, shape: Shape) -> int:
        """Return the number of coordinates of a value of this shape."""
        return int(np.prod(shape, dtype=int))

    @abc.abstractmethod
    def value(self, coordinates: Coordinates, shape: Shape) -> Value:
        """Return the value at `coordinates`."""

    @abc.abstractmethod
    def coordinates(self, value: Value) -> Coordinates:
        """Return the coordinates of `value`."""

    def moved(self, coordinates: Coordinates, step: Coordinates, shape: Shape) -> Coordinates:
        """Return the coordinates after a step."""
        return coordinates + step

    def misfit(self, here: Value, ahead: Value) -> Value:
        """Return the difference between two numbers, relative to the larger one."""
        return (here - ahead) / jnp.maximum(jnp.maximum(jnp.abs(here), jnp.abs(ahead)), _TINY)

    def edge(self, coordinate: ArrayLike) -> Value:
        """Return the edge on the side of `coordinate`."""
        return jnp.where(coordinate < 0, self.low, self.high)

    def latex(self, symbol: str) -> str:
        """Return the domain as a condition on `symbol`, in LaTeX."""
        return self.condition.format(symbol=symbol, low=self.low, high=self.high)


class Real(AbstractDomain):
    """Any number, or a matrix of any numbers."""

    condition = r"{symbol} \in \mathbb{{R}}"

    def value(self, coordinates, shape):
        return coordinates.reshape(shape)

    def coordinates(self, value):
        return value.reshape(-1)


class Positive(AbstractDomain):
    """Positive number x with the coordinate log x."""

    low: ClassVar[float] = 0.0
    condition = "{symbol} > 0"

    def value(self, coordinates, shape):
        return jnp.exp(coordinates[0])

    def coordinates(self, value):
        return jnp.log(value)[None]

    def misfit(self, here, ahead):
        return jnp.log(here) - jnp.log(jnp.maximum(ahead, here * _TINY))


class Between(AbstractDomain):
    """Number x with low < x < high and the coordinate log((x - low) / (high - x))."""

    low: float = eqx.field(static=True)
    high: float = eqx.field(static=True)
    condition = "{low:g} < {symbol} < {high:g}"

    def __init__(self, low: SupportsFloat, high: SupportsFloat):
        self.low, self.high = float(checked_number("low", low)), float(checked_number("high", high))
        if not self.low < self.high:
            raise ValueError(f"low must be below high, got {low} and {high}")

    def value(self, coordinates, shape):
        return self.low + (self.high - self.low) * jax.nn.sigmoid(coordinates[0])

    def coordinates(self, value):
        return (jnp.log(value - self.low) - jnp.log(self.high - value))[None]


class Symmetric(AbstractDomain):
    """Symmetric matrix with eigenvalues of any sign."""

    condition = "{symbol} = {symbol}^T"

    def size(self, shape):
        return shape[0] * (shape[0] + 1) // 2

    def value(self, coordinates, shape):
        lower = _unfolded(coordinates, shape[0]) * np.tri(shape[0])
        return lower + lower.T - jnp.diag(jnp.diagonal(lower))

    def coordinates(self, value):
        return _entries_of(value * np.tri(len(value)))

    def moved(self, coordinates, step, shape):
        return coordinates + _weighted(step, shape[0], 1.0)


class PositiveDefinite(Symmetric):
    """Symmetric positive definite matrix U = C C^T with a Cholesky factor C.

    The coordinates are the lower triangle of C, with the logarithm of its diagonal.
    A step replaces C by C T with a lower triangular T.
    """

    condition = r"{symbol} \succ 0"

    def value(self, coordinates, shape):
        factor = filled_factor(coordinates, shape[0])
        return factor @ factor.T

    def coordinates(self, value):
        return entries_of_factor(jnp.linalg.cholesky(value))

    def moved(self, coordinates, step, shape):
        # C^{-1} dU C^{-T} is 2 dT on the diagonal, and dT on both sides of it.
        turn = filled_factor(_weighted(step, shape[0], 0.5), shape[0])
        return entries_of_factor(filled_factor(coordinates, shape[0]) @ turn)


def check_fits(symbol: Expr, domain: AbstractDomain) -> None:
    """Raise `ValueError` if the domain is not of the kind of `symbol`, or exceeds its sign."""
    if isinstance(symbol, MatrixSymbol):
        kind, needed = Real, "not made by symmetric(name, size) or positive_definite(name, size)"
        if isinstance(symbol, SymmetricSymbol):
            kind, needed = Symmetric, "made by symmetric(name, size)"
        if isinstance(symbol, PositiveDefiniteSymbol):
            kind, needed = PositiveDefinite, "made by positive_definite(name, size)"
        fits = type(domain) is kind
    else:
        needed = "positive" if symbol.is_nonnegative else "negative" if symbol.is_nonpositive else "a number"
        exceeds = (symbol.is_nonnegative and domain.low < 0) or (symbol.is_nonpositive and domain.high > 0)
        fits = not (exceeds or isinstance(domain, Symmetric))
    if not fits:
        raise ValueError(f"the domain {domain!r} does not fit {symbol}, which is {needed}")


def check_value(
    name: str, symbol: Expr, value: Value, domain: AbstractDomain | None = None, *, closed: bool = False
) -> None:
    """Check that a value is finite, in its domain, and as its symbol is declared.

    With `closed`, edges belong to the domain. Traced values are not checked.
    """
    if is_traced(value):
        return
    _require(f"{name} must be finite", value, np.isfinite(value))
    if isinstance(symbol, SymmetricSymbol) and value.shape[-2] == value.shape[-1]:
        difference = abs(value - value.mT).max()
        if difference > _ASYMMETRY * abs(value).max():
            raise ValueError(f"{name} must be symmetric, but differs from its transpose by up to {difference:.3g}")
        if isinstance(symbol, PositiveSemidefiniteSymbol):
            lowest, strictly = np.linalg.eigvalsh(value).min(), isinstance(symbol, PositiveDefiniteSymbol)
            rounding = len(value) * np.finfo(float).eps * abs(value).max()
            if lowest <= rounding if strictly else lowest < -rounding:
                kind = "definite" if strictly else "semidefinite"
                raise ValueError(f"{name} must be positive {kind}, but has the eigenvalue {lowest:.3g}")
    if domain is not None and domain.has_edges:
        low, high = domain.low, domain.high
        inside = (low <= value) & (value <= high) if closed else (low < value) & (value < high)
        words = f"from {low} to {high}" if closed else f"above {low} and below {high}"
        _require(f"{name} must be {words}", value, inside)
    elif isinstance(symbol, Symbol):
        # A zero that must be positive is reported as that, not as having to be non-zero.
        for assumption, (is_so, words) in _ASSUMPTIONS.items():
            if (truth := symbol.assumptions0.get(assumption)) is not None:
                message = f"{name} must {'' if truth else 'not '}be {words}, as its symbol is declared to be"
                _require(message, value, is_so(value) == truth)


def _require(message: str, value: Value, holds: Any) -> None:
    if not np.all(holds):
        wrong = np.asarray(value)[np.broadcast_to(~np.asarray(holds), np.shape(value))][0]
        raise ValueError(f"{message}, got {shown(float(wrong))}")
