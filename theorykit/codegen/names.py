"""Check the names that appear in generated source. No other text of the user appears there."""

import ast
import keyword
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sympy import Dummy, Expr, MatrixSymbol, Symbol
from sympy.matrices.expressions.applyfunc import ElementwiseApplyFunction

from ..checks import shown
from ..symbolic.atoms import BoundVariable
from . import primitives
from .program import OPERATORS
from .scalars import NAMED, NORMAL, SCALAR_OPERATIONS, SPECIAL, NamedFunction, function_name, function_of

# Name of the variable in functions of the entries of a matrix.
ENTRY = "entry"
# Names that scalar formulas use, in addition to symbols and earlier results.
SCALAR_NAMES = frozenset({"abs", "jnp", SPECIAL, *SCALAR_OPERATIONS})
_TAKEN = {*SCALAR_NAMES, ENTRY, NORMAL, *OPERATORS, *vars(primitives)}


def check_name(what: str, name: Any) -> None:
    """Raise an error unless `name` is a normalised Python identifier that generated code does not use itself."""
    if not isinstance(name, str):
        raise TypeError(f"the name of {what} must be text, got {shown(name)}")
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("__"):
        raise ValueError(f"the name {shown(name)} of {what} is not valid in generated code; choose another")
    if (read := unicodedata.normalize("NFKC", name)) != name:
        raise ValueError(f"the name {name!r} of {what} is read by Python as {read!r}; choose that name, or another")
    if re.sub(r"_\d+$", "", name) in _TAKEN:
        raise ValueError(f"the name {name!r} of {what} is reserved in generated code; choose another")


def check_names(name: str, outputs: Mapping[str, Expr], arguments: Sequence[Expr]) -> None:
    """Raise an error for names that are not valid in generated code, and for different symbols of the same name."""
    check_name("the function", name)
    for output in outputs:
        # Outputs are keys of the dictionary of results.
        if not isinstance(output, str) or not output.isidentifier():
            raise ValueError(f"the name {shown(output)} of an output of {name} is not an identifier; choose another")
    sizes = {size for argument in arguments for side in getattr(argument, "shape", ()) for size in side.free_symbols}
    functions = numeric_functions(name, outputs.values())
    for symbol in sorted({*arguments, *sizes}, key=lambda symbol: symbol.name):
        check_name(f"a symbol in {name}", symbol.name)
        if symbol.name in functions:
            raise ValueError(f"the name {symbol.name!r} of a symbol in {name} is the name of a numeric function there")
    if repeated := sorted({a.name for i, a in enumerate(arguments) if a in arguments[:i]}):
        raise ValueError(f"{name}: arguments occur twice: {', '.join(repeated)}")
    named: dict[str, Expr] = {}
    for symbol in {*arguments, *sizes, *(s for expression in outputs.values() for s in symbols_of(expression))}:
        if isinstance(symbol, Dummy):
            raise ValueError(f"{name}: the dummy symbol {symbol} has no unique name; use a Symbol")
        # Generated code could not distinguish symbols of the same name.
        if (other := named.setdefault(symbol.name, symbol)) != symbol:
            raise ValueError(
                f"{name}: two different symbols are named {symbol.name!r} ({_describe(other)}, and "
                f"{_describe(symbol)}); rename one, or give both the same assumptions and shape"
            )


def symbols_of(expression: Expr) -> set[Expr]:
    """Return the symbols of an expression and of the shapes of its matrices, without bound variables."""
    bound = {v for node in expression.atoms(ElementwiseApplyFunction) for v in node.function.variables}
    found = expression.atoms(Symbol, MatrixSymbol)
    return {
        symbol
        for symbol in found
        if symbol in expression.free_symbols or not (symbol in bound or isinstance(symbol, BoundVariable))
    }


def numeric_functions(name: str, expressions: Iterable[Expr]) -> dict[str, NamedFunction]:
    """Return functions in expressions by name in generated code. Raises an error if two have the same name."""
    named: dict[str, NamedFunction] = {}
    found = {function_of(node) for expression in expressions for node in expression.atoms(*NAMED)}
    for function in sorted(found, key=function_name):
        if named.setdefault(function_name(function), function) != function:
            raise ValueError(
                f"{name}: two different numeric functions are named {function.own_name!r}; rename one of them"
            )
    return named


def _describe(symbol: Expr) -> str:
    if isinstance(symbol, MatrixSymbol):
        return f"{type(symbol).__name__} {' x '.join(map(str, symbol.shape))}"
    assumed = [f"{key}={value}" for key, value in sorted(symbol.assumptions0.items())]
    return f"Symbol with {', '.join(assumed[:4])}"


def identifiers(texts: Iterable[str]) -> set[str]:
    """Return the free names in formulas, without attributes and arguments of lambdas."""

    def free_names(node: ast.AST) -> set[str]:
        found = {name for child in ast.iter_child_nodes(node) for name in free_names(child)}
        if isinstance(node, ast.Lambda):
            return found - {argument.arg for argument in node.args.args}
        return found | ({node.id} if isinstance(node, ast.Name) else set())

    return {name for text in texts for name in free_names(ast.parse(text, mode="eval"))}
