"""Domains of order parameters: unconstrained coordinates, and steps whose length is that of a natural metric.

And what symbols are declared to be, as conditions on the numbers that stand for them.

Every real vector of coordinates is a point of the domain. A step from a point is taken by `moved`; its Euclidean length
is to first order that of

    number, matrix, symmetric matrix     |dx|, Frobenius norm
    positive number                      |dx| / x
    interval a < x < b                   |dx| (b - a) / ((x - a) (b - x))
    positive definite matrix             (tr(U^{-1} dU U^{-1} dU))^{1/2}, the affine-invariant metric

so that curvatures of an action measured in steps do not depend on the units of positive order parameters.
"""

import abc
from collections.abc import Iterator
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from sympy import Expr, MatrixSymbol, Symbol

from ..checks import Requirement, array_module, checked_number, finite_entries, numeric_array, require, shown
from ..symbolic.atoms import PositiveDefiniteSymbol, PositiveSemidefiniteSymbol, SymmetricSymbol
from .problem import Coordinates
from .triangles import entries_of, entries_of_factor, filled, filled_factor

Shape = tuple[int, ...]
Value = Float[Array, "..."]
# known or traced: conditions on known arrays are computed by NumPy
Numbers = Float[np.ndarray, "..."] | Value

# SymPy closes assumptions under implication, so that these tell all others that a real number can contradict
_ASSUMPTIONS = {
    "zero": (lambda x: x == 0, "zero"),
    "positive": (lambda x: x > 0, "above zero"),
    "negative": (lambda x: x < 0, "below zero"),
    "even": (lambda x: x % 2 == 0, "even"),
    "odd": (lambda x: x % 2 == 1, "odd"),
    "integer": (lambda x: x % 1 == 0, "a whole number"),
}
_IMPLIED = {
    ("zero", True): ("positive", "negative", "even", "odd", "integer"),
    ("positive", True): ("negative", "zero"),
    ("negative", True): ("positive", "zero"),
    ("even", True): ("odd", "integer"),
    ("odd", True): ("even", "integer"),
    ("integer", False): ("even", "odd"),
}

# by how much a matrix may differ from its transpose, of its largest entry
_ASYMMETRY = 1e-8
# what is zero beside other order parameters
_TINY = 1e-30


class AbstractDomain(eqx.Module):
    """The values that an order parameter may take, an array of some shape: a number has the shape ()."""

    has_edges: ClassVar[bool] = False

    @abc.abstractmethod
    def check_symbol(self, symbol: Expr) -> None:
        """Raise `ValueError` unless `symbol` can stand for a value of the domain."""

    @abc.abstractmethod
    def size(self, shape: Shape) -> int:
        """How many coordinates a value of this shape has."""

    @abc.abstractmethod
    def value(self, coordinates: Coordinates, shape: Shape) -> Value:
        """The value at `coordinates`."""

    @abc.abstractmethod
    def coordinates(self, value: Value) -> Coordinates:
        """The coordinates of a value: the inverse of `value`."""

    @abc.abstractmethod
    def moved(self, coordinates: Coordinates, step: Coordinates, shape: Shape) -> Coordinates:
        """The coordinates after a step from `coordinates`, of the metric's length to first order."""

    @abc.abstractmethod
    def requirements(self, name: str, value: Numbers) -> Iterator[Requirement]:
        """The conditions on a finite `value`, known or traced, to be in the domain; errors call it `name`."""

    @abc.abstractmethod
    def latex(self, symbol: str) -> str:
        """The condition that the order parameter written `symbol` obeys, as LaTeX."""

    def towards(self, here: Value, ahead: Value) -> Value:
        """The point halfway from `here` to `ahead`, both numbers; halfway to the edge if `ahead` is outside."""
        return (here + ahead) / 2

    def misfit(self, here: Value, ahead: Value) -> Value:
        """How far `ahead` is from `here`, both numbers, in the size of the larger one."""
        return (here - ahead) / jnp.maximum(jnp.maximum(jnp.abs(here), jnp.abs(ahead)), _TINY)

    def edge(self, coordinate: Array) -> Value:
        """The edge of the domain on the side of `coordinate`, of a domain that has edges."""
        raise NotImplementedError

    def checked(self, name: str, value: Any, shape: Shape) -> Value:
        """`value` as an array of float64 of this shape in the domain, or an error; see `arguments.require`."""
        array = numeric_array(name, value)
        return jnp.asarray(require(array, self.all_requirements(name, array, shape)))

    def all_requirements(self, name: str, array: Numbers, shape: Shape) -> Iterator[Requirement]:
        """`requirements` of an array, and before them that its shape fits and its entries are finite."""
        if array.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
        yield finite_entries(name, array)
        yield from self.requirements(name, array)


class Real(AbstractDomain):
    """Any number, or a matrix of any numbers."""

    def check_symbol(self, symbol):
        if isinstance(symbol, SymmetricSymbol):
            raise ValueError(
                f"{symbol} is declared symmetric in its symbol, so that its entries are not free: its domain is "
                "Symmetric() or PositiveDefinite()"
            )
        if isinstance(symbol, Symbol) and symbol.is_nonnegative:
            raise ValueError(
                f"{symbol} is declared positive in its symbol, and simplifications may rest on it, but its domain is "
                "Real(); declare it real=True, or use Positive()"
            )

    def size(self, shape):
        return int(np.prod(shape, dtype=int))

    def value(self, coordinates, shape):
        return coordinates.reshape(shape)

    def coordinates(self, value):
        return value.reshape(-1)

    def moved(self, coordinates, step, shape):
        return coordinates + step

    def requirements(self, name, value):
        yield from ()

    def latex(self, symbol):
        return rf"{symbol} \in \mathbb{{R}}"


class Symmetric(AbstractDomain):
    """A symmetric matrix, of any sign."""

    def check_symbol(self, symbol):
        if not isinstance(symbol, SymmetricSymbol):
            raise ValueError(f"a Symmetric order parameter is made by symmetric(name, size), got {shown(symbol)}")
        _refuse_definite(symbol, self)

    def size(self, shape):
        return shape[0] * (shape[0] + 1) // 2

    def value(self, coordinates, shape):
        lower = filled(coordinates, shape[0])
        return lower + lower.T - jnp.diag(jnp.diagonal(lower))

    def coordinates(self, value):
        return entries_of(value * np.tri(len(value)))

    def moved(self, coordinates, step, shape):
        # an entry off the diagonal occurs twice
        return coordinates + step * _weights(shape[0], 1.0, np.sqrt(0.5))

    def requirements(self, name, value):
        yield is_symmetric(name, value)

    def latex(self, symbol):
        return rf"{symbol} = {symbol}^T"


class PositiveDefinite(AbstractDomain):
    """A symmetric positive definite matrix U = C C^T; coordinates are those of its Cholesky factor C.

    They are the lower triangle of C, with the logarithm of its diagonal. A step makes C into C T, T lower triangular.
    """

    def check_symbol(self, symbol):
        if not isinstance(symbol, PositiveDefiniteSymbol):
            raise ValueError(
                f"a PositiveDefinite order parameter is made by positive_definite(name, size), got {shown(symbol)}"
            )

    def size(self, shape):
        return shape[0] * (shape[0] + 1) // 2

    def value(self, coordinates, shape):
        factor = filled_factor(coordinates, shape[0])
        return factor @ factor.T

    def coordinates(self, value):
        return entries_of_factor(jnp.linalg.cholesky(value))

    def moved(self, coordinates, step, shape):
        # C^{-1} dU C^{-T} is 2 dT on the diagonal, and dT on both sides of it
        turn = filled_factor(step * _weights(shape[0], 0.5, np.sqrt(0.5)), shape[0])
        return entries_of_factor(filled_factor(coordinates, shape[0]) @ turn)

    def requirements(self, name, value):
        yield is_symmetric(name, value)
        yield is_definite(name, value)

    def latex(self, symbol):
        return rf"{symbol} \succ 0"


class Positive(AbstractDomain):
    """A positive number x; the coordinate is log x."""

    has_edges: ClassVar[bool] = True

    def check_symbol(self, symbol):
        _check_number(symbol, self)
        if symbol.is_nonpositive:
            raise ValueError(f"{symbol} is declared not to be positive in its symbol, but its domain is Positive()")

    def size(self, shape):
        return 1

    def value(self, coordinates, shape):
        return jnp.exp(coordinates[0])

    def coordinates(self, value):
        return jnp.log(value)[None]

    def moved(self, coordinates, step, shape):
        return coordinates + step

    def towards(self, here, ahead):
        return (here + jnp.maximum(ahead, 0.0)) / 2

    def misfit(self, here, ahead):
        return jnp.log(here) - jnp.log(jnp.maximum(ahead, here * _TINY))

    def edge(self, coordinate):
        return jnp.where(coordinate < 0, 0.0, jnp.inf)

    def requirements(self, name, value):
        message = f"{name} must be above zero"
        yield Requirement(message, value > 0, lambda: f"{message}, got {shown(value)}")

    def latex(self, symbol):
        return rf"{symbol} > 0"


class Between(AbstractDomain):
    """A number x with low < x < high; the coordinate is log((x - low) / (high - x))."""

    has_edges: ClassVar[bool] = True
    low: float = eqx.field(static=True)
    high: float = eqx.field(static=True)

    def __init__(self, low: float | int, high: float | int):
        self.low, self.high = float(checked_number("low", low)), float(checked_number("high", high))
        if not self.low < self.high:
            raise ValueError(f"low must be below high, got {low} and {high}")

    def check_symbol(self, symbol):
        _check_number(symbol, self)
        if symbol.is_nonnegative and self.low < 0:
            raise ValueError(f"{symbol} is declared positive in its symbol, but its domain reaches down to {self.low}")
        if symbol.is_nonpositive and self.high > 0:
            raise ValueError(f"{symbol} is declared negative in its symbol, but its domain reaches up to {self.high}")

    def size(self, shape):
        return 1

    def value(self, coordinates, shape):
        return self.low + (self.high - self.low) * jax.nn.sigmoid(coordinates[0])

    def coordinates(self, value):
        return (jnp.log(value - self.low) - jnp.log(self.high - value))[None]

    def moved(self, coordinates, step, shape):
        return coordinates + step

    def towards(self, here, ahead):
        return (here + jnp.clip(ahead, self.low, self.high)) / 2

    def edge(self, coordinate):
        return jnp.where(coordinate < 0, self.low, self.high)

    def requirements(self, name, value):
        message = f"{name} must be above {self.low} and below {self.high}"
        yield Requirement(message, (self.low < value) & (value < self.high), lambda: f"{message}, got {shown(value)}")

    def latex(self, symbol):
        return rf"{self.low:g} < {symbol} < {self.high:g}"


def _refuse_definite(symbol: Expr, domain: AbstractDomain) -> None:
    if isinstance(symbol, PositiveDefiniteSymbol):
        raise ValueError(
            f"{symbol} is declared positive definite in its symbol, and simplifications may rest on it, but its domain "
            f"is {type(domain).__name__}(); use PositiveDefinite()"
        )


def _check_number(symbol: Expr, domain: AbstractDomain) -> None:
    if isinstance(symbol, MatrixSymbol):
        raise ValueError(f"{symbol} is a matrix, but its domain {type(domain).__name__} is one of numbers")


def is_symmetric(name: str, value: Numbers) -> Requirement:
    """That a square matrix is its transpose, but for rounding."""
    difference = abs(value - value.T).max()
    message = f"{name} must be symmetric"
    return Requirement(
        message,
        difference <= _ASYMMETRY * abs(value).max(),
        lambda: f"{message}, it differs from its transpose by up to {difference:.3g}",
    )


def is_definite(name: str, value: Numbers, *, strictly: bool = True) -> Requirement:
    """That the eigenvalues of a symmetric matrix are positive, or not negative, by more than their rounding."""
    eigenvalues = array_module(value).linalg.eigvalsh(value)
    smallest, largest = eigenvalues[0], eigenvalues[-1]
    rounding = len(value) * np.finfo(np.float64).eps * abs(eigenvalues).max()
    message = f"{name} must be positive {'definite' if strictly else 'semidefinite'}"
    return Requirement(
        message,
        smallest > rounding if strictly else smallest >= -rounding,
        lambda: f"{message}, its smallest eigenvalue is {smallest:.3g} of {largest:.3g}",
    )


def _weights(rows: int, on_diagonal: float, below: float) -> Float[Array, " entries"]:
    """A number for each entry of a lower triangular matrix."""
    return entries_of(jnp.asarray(np.tri(rows, k=-1) * below + np.eye(rows) * on_diagonal))


def as_declared(name: str, symbol: Expr, value: Any) -> Iterator[Requirement]:
    """The conditions on `value`, known or traced, to be finite and what `symbol` is declared to be.

    Raises `ValueError` for a symbol that no finite real number can stand for.
    """
    if isinstance(symbol, MatrixSymbol):
        yield finite_entries(name, value)
        yield from _of_matrix(name, symbol, value)
        return
    for assumption in ("real", "finite"):
        if symbol.assumptions0.get(assumption) is False:
            raise ValueError(f"{name}: {symbol} is declared not to be {assumption}, and values are finite real numbers")
    finite = f"{name} must be finite"
    yield Requirement(finite, abs(value) < float("inf"), lambda: f"{finite}, got {shown(value.item())}")
    for wanted, holds in _of_number(symbol, value):
        message = f"{name} must {wanted}, as its symbol is declared to be"
        yield Requirement(message, holds, lambda message=message: f"{message}, got {shown(value.item())}")


def _of_number(symbol: Expr, value: Any) -> Iterator[tuple[str, Any]]:
    declared = symbol.assumptions0
    implied = {each for (name, truth), others in _IMPLIED.items() if declared.get(name) is truth for each in others}
    for assumption, (is_so, words) in _ASSUMPTIONS.items():
        truth = declared.get(assumption)
        if truth is not None and assumption not in implied:
            yield (f"be {words}", is_so(value)) if truth else (f"not be {words}", ~is_so(value))


def _of_matrix(name: str, symbol: MatrixSymbol, value: Any) -> Iterator[Requirement]:
    if isinstance(symbol, SymmetricSymbol) and value.shape[0] == value.shape[1]:
        yield is_symmetric(name, value)
        if isinstance(symbol, PositiveSemidefiniteSymbol):
            yield is_definite(name, value, strictly=isinstance(symbol, PositiveDefiniteSymbol))
