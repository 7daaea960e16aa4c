"""Sizes from shapes: solve the symbolic dimensions of a function's matrix arguments for the size symbols in them."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from sympy import Expr, MatrixSymbol, Mul, Symbol, factor, pycode

from ..checks import checked_instance, checked_sequence
from .program import SizeBinding


def bound_sizes(arguments: Iterable[Expr]) -> frozenset[Expr]:
    """The symbols, scalar arguments and sizes, whose values a function of `arguments` knows."""
    arguments = checked_sequence("arguments", arguments, "SymPy symbols")
    for i, argument in enumerate(arguments):
        checked_instance(f"arguments[{i}]", argument, Expr)
    names = {binding.size for binding in bind_sizes(arguments)}
    sides = {symbol for _, _, dimension in _dimensions(arguments) for symbol in dimension.free_symbols}
    return frozenset({symbol for symbol in sides if symbol.name in names} | {a for a in arguments if a.is_Symbol})


def bind_sizes(arguments: Iterable[Expr]) -> tuple[SizeBinding, ...]:
    """Every size symbol that the shapes determine, each after those it depends on.

    A dimension is a product of sizes, or of sums of them. Divided by another dimension, or by a product of known
    sizes, it may leave a single symbol, which is then known. Scalar arguments are known from the start.
    """
    arguments = list(arguments)
    given = {argument for argument in arguments if isinstance(argument, Symbol)}
    dimensions = [(argument, axis, factor(dimension)) for argument, axis, dimension in _dimensions(arguments)]
    texts: dict[Expr, str] = {}
    for argument, axis, dimension in dimensions:
        texts.setdefault(dimension, f"{argument}.shape[{axis}]")
    bindings: dict[Expr, SizeBinding] = {}
    while found := [
        (SizeBinding(size.name, argument, axis, divisor), size)
        for argument, axis, dimension in dimensions
        for size, divisor in _quotients(dimension, texts, {*given, *bindings})
    ]:
        # one at a time, and those that a shape states outright before those that take a longer division
        binding, size = min(found, key=lambda candidate: len(candidate[0].divisor))
        bindings[size] = binding
    return tuple(bindings.values())


def _quotients(dimension: Expr, texts: Mapping[Expr, str], known: Collection[Expr]) -> Iterator[tuple[Expr, str]]:
    """Unknown size symbols that `dimension` leaves when divided by what is known, with the divisor's text."""
    product_of_known = Mul(*(part for part in Mul.make_args(dimension) if part.free_symbols <= set(known)))
    for divisor, text in [(product_of_known, pycode(product_of_known)), *texts.items()]:
        quotient = dimension / divisor
        if isinstance(quotient, Symbol) and quotient not in known:
            yield quotient, text


def _dimensions(arguments: Iterable[Expr]) -> Iterator[tuple[str, int, Expr]]:
    for argument in arguments:
        if isinstance(argument, MatrixSymbol):
            for axis, dimension in enumerate(argument.shape):
                yield argument.name, axis, dimension
