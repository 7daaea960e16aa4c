"""Draw random values for the symbols of an expression."""

from collections.abc import Iterable, Mapping

import numpy as np
from sympy import Expr, MatrixSymbol, Symbol

from ..codegen import interpret
from ..symbolic.atoms import PositiveDefiniteSymbol, PositiveSemidefiniteSymbol, SymmetricSymbol

Values = dict[str, np.ndarray | float | int | complex]


def random_values(expressions: Iterable[Expr], sizes: Mapping[Expr, int], rng: np.random.Generator) -> Values:
    """Draw a value of order one for every symbol, by name. Matrices have the `sizes` and their declared symmetry."""
    values: Values = {size.name: number for size, number in sizes.items()}
    free = {symbol for expression in expressions for symbol in expression.free_symbols}
    for symbol in sorted(free, key=lambda symbol: symbol.name):
        if symbol.name not in values:
            values[symbol.name] = random_value(symbol, values, rng)
    return values


def random_value(symbol: Symbol | MatrixSymbol, sizes: Values, rng: np.random.Generator) -> np.ndarray | float:
    """Draw a value for one symbol."""
    if not getattr(symbol, "is_Matrix", False):
        return float(rng.uniform(0.5, 1.5))
    rows, columns = (round(float(interpret(side, sizes))) for side in symbol.shape)
    matrix = rng.normal(size=(rows, columns)) / np.sqrt(columns)
    if isinstance(symbol, PositiveDefiniteSymbol):
        return matrix @ matrix.T + 0.5 * np.eye(rows)
    if isinstance(symbol, PositiveSemidefiniteSymbol):
        return matrix @ matrix.T
    if isinstance(symbol, SymmetricSymbol):
        return (matrix + matrix.T) / 2
    return matrix
