"""Sizes that follow from the shapes of arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sympy import Expr, MatrixSymbol, Mul, Symbol, factor

from .evaluate import Algebra, At

# The name of an argument, and an axis of its array.
Place = tuple[str, int]


@lru_cache(maxsize=1024)
def _bindings(arguments: tuple[Expr, ...]) -> list[tuple[Symbol, Place, Expr | Place]]:
    """Bind every size that the shapes determine: size = dimension // divisor, which depends on earlier sizes alone.

    A dimension is a product of sizes, or of sums of sizes. If its quotient by another dimension, or by a product of
    known sizes, is a single symbol, this symbol becomes known. Scalar arguments are known from the start.
    """
    known = {argument for argument in arguments if isinstance(argument, Symbol)}
    places = {
        (argument.name, axis): factor(side)
        for argument in arguments
        if isinstance(argument, MatrixSymbol)
        for axis, side in enumerate(argument.shape)
    }
    bindings: list[tuple[Symbol, Place, Expr | Place]] = []
    while True:
        found = []
        for place, side in places.items():
            of_known = Mul(*(part for part in Mul.make_args(side) if part.free_symbols <= known))
            quotients = [(side / of_known, of_known), *((side / other, at) for at, other in places.items())]
            found += [(size, place, by) for size, by in quotients if size.is_Symbol and size not in known]
        if not found:
            return bindings
        # Bind one size at a time. Sizes that are dimensions themselves come before sizes that need a division.
        best = min(found, key=lambda each: 0 if each[2] == 1 else 2 - isinstance(each[2], tuple))
        bindings.append(best)
        known.add(best[0])


def bound_sizes(arguments: Iterable[Expr]) -> frozenset[Expr]:
    """Return the symbols whose values are known from `arguments`, which are scalar arguments and sizes."""
    arguments = tuple(arguments)
    found = {size for size, *_ in _bindings(arguments)}
    return frozenset(found.union(each for each in arguments if each.is_Symbol))


def sizes_of(arguments: Sequence[Expr], values: Mapping[str, Any], algebra: type[Algebra]) -> dict[str, Any]:
    """Return the values of bound sizes by name, from the values of arguments by name."""
    sizes: dict[str, Any] = {}
    for size, (name, axis), divisor in _bindings(tuple(arguments)):
        if isinstance(divisor, tuple):
            by = values[divisor[0]].shape[divisor[1]]
        else:
            by = At({**values, **sizes}, algebra).size(divisor)
        sizes[size.name] = values[name].shape[axis] // by
    return sizes
