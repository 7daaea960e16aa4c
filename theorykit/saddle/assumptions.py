"""What symbols are declared to be, as conditions on the numbers that stand for them."""

from collections.abc import Iterator
from typing import Any

from sympy import Expr, MatrixSymbol

from ..arguments import Requirement, finite_entries, shown
from ..symbolic import PositiveDefiniteSymbol, PositiveSemidefiniteSymbol, SymmetricSymbol
from .domains import is_definite, is_symmetric

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
