"""Sizes that follow from the shapes of arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sympy import Expr, MatrixSymbol, Mul, Symbol, factor

from .evaluate import Algebra, At


class SizeBinding(NamedTuple):
    """A size that follows from a dimension of an argument: `size = dimension // divisor`.

    The divisor is a dimension of an argument, or a function of sizes that are known before.
    """

    size: Symbol
    dimension: tuple[str, int]
    divisor: Expr | tuple[str, int]


@lru_cache(maxsize=1024)
def bind_sizes(arguments: tuple[Expr, ...]) -> tuple[SizeBinding, ...]:
    """Bind every size symbol that the shapes determine. Each binding depends only on earlier ones.

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
    bindings: list[SizeBinding] = []
    while True:
        found = []
        for place, side in places.items():
            of_known = Mul(*(part for part in Mul.make_args(side) if part.free_symbols <= known))
            quotients = [(side / of_known, of_known), *((side / other, at) for at, other in places.items())]
            found += [SizeBinding(size, place, by) for size, by in quotients if size.is_Symbol and size not in known]
        if not found:
            return tuple(bindings)
        # Bind one size at a time. Sizes that are dimensions themselves come before sizes that need a division.
        best = min(found, key=lambda binding: 0 if binding.divisor == 1 else 2 - isinstance(binding.divisor, tuple))
        bindings.append(best)
        known.add(best.size)


def bound_sizes(arguments: Iterable[Expr]) -> frozenset[Expr]:
    """Return the symbols whose values are known from `arguments`, which are scalar arguments and sizes."""
    arguments = tuple(arguments)
    return frozenset({binding.size for binding in bind_sizes(arguments)} | {a for a in arguments if a.is_Symbol})


def sizes_of(arguments: Sequence[Expr], values: Mapping[str, Any], algebra: type[Algebra]) -> dict[str, Any]:
    """Return the values of bound sizes by name, from the values of arguments by name."""
    sizes: dict[str, Any] = {}
    for size, (name, axis), divisor in bind_sizes(tuple(arguments)):
        if isinstance(divisor, tuple):
            by = values[divisor[0]].shape[divisor[1]]
        else:
            by = At({**values, **sizes}, algebra).size(divisor)
        sizes[size.name] = values[name].shape[axis] // by
    return sizes
