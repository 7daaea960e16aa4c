"""Simple terms that an action may lack: of order parameters alone, and with the parameters."""

from collections.abc import Iterator
from itertools import combinations

from sympy import Expr, Integer, MatrixSymbol, Symbol, Trace, log

from ...checks import are_equal_sizes
from ...saddle import Action, Positive, PositiveDefinite
from ...saddle.domains import AbstractDomain
from ...symbolic import log_det


def extra_terms(action: Action) -> Iterator[Expr]:
    """Terms by increasing complexity, none of them constant in the order parameters."""
    alone = [term for symbol, domain in action.order_parameters.items() for term in _of_one(symbol, domain)]
    yield from alone
    numbers = [symbol for symbol in action.order_parameters if isinstance(symbol, Symbol)]
    pairs = [one**power * other for one, other in combinations(numbers, 2) for power in (1, 2)]
    pairs += [one * other**2 for one, other in combinations(numbers, 2)]
    pairs += [one / (1 - other) for one in numbers for other in numbers if one != other]
    yield from pairs
    matrices = [symbol for symbol in action.order_parameters if isinstance(symbol, MatrixSymbol)]
    others = [symbol for symbol in action.parameters if isinstance(symbol, MatrixSymbol)]
    for one in matrices:
        for other in (*others, *matrices):
            yield from _of_two(one, other)
    parameters = [symbol for symbol in action.parameters if isinstance(symbol, Symbol) and symbol not in action.sizes]
    yield from (parameter * term for parameter in parameters for term in (*alone, *pairs))
    yield from (term / parameter for parameter in parameters for term in (*alone, *pairs))


def _of_one(symbol: Expr, domain: AbstractDomain) -> Iterator[Expr]:
    if isinstance(symbol, MatrixSymbol):
        if are_equal_sizes(*symbol.shape):
            yield Trace(symbol)
            yield Trace(symbol * symbol)
        yield Trace(symbol.T * symbol)
        if isinstance(domain, PositiveDefinite):
            yield log_det(symbol)
            yield Trace(symbol.I)
        return
    yield from (symbol**power for power in (1, 2, 3, 4))
    if isinstance(domain, Positive):
        yield log(symbol)
        yield Integer(1) / symbol
    yield from (log(1 - symbol), 1 / (1 - symbol), log(1 + symbol))


def _of_two(one: MatrixSymbol, other: MatrixSymbol) -> Iterator[Expr]:
    """Traces of products of two matrices whose shapes fit."""
    if one.shape == other.shape and one != other:
        yield Trace(one.T * other)
    if are_equal_sizes(one.shape[0], one.shape[1]) and other.shape[0] == one.shape[0]:
        yield Trace(other.T * one * other)
