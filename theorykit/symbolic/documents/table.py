"""Store expressions as a table of plain values. Each subexpression has one row.

A row contains the name of a kind of expression, followed by its parts: the numbers of earlier rows, or numbers and
text. Only the kinds listed here are allowed. Reading a table creates expressions of these kinds and executes no other
code.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
from sympy import Add, Basic, Expr, Float, Integer, Mul, Rational, S, Symbol
from sympy.core.symbol import Str
from sympy.functions.elementary.piecewise import ExprCondPair
from sympy.matrices.expressions.applyfunc import ElementwiseApplyFunction
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix, BlockMatrix

from ...checks import shown
from .. import atoms, envelopes, functions, matrix_functions
from ..averages import GaussianAverage
from ..numeric import NumericFunction

Row = list[Any]


def _named(names: str, module: Any = sympy) -> dict[str, type]:
    return {name: getattr(module, name) for name in names.split()}


_SCALARS = {
    **_named("Add Mul Pow StrictGreaterThan GreaterThan StrictLessThan LessThan Equality Unequality"),
    **_named("exp log sin cos tan sec csc cot asin acos atan atan2 sinh cosh tanh sech csch coth"),
    **_named("asinh acosh atanh erf erfc erfinv gamma loggamma"),
    **_named("polygamma factorial Abs sign Heaviside floor ceiling frac Mod Max Min"),
    **_named("MoreauEnvelope ProximalPoint", envelopes),
    **_named(
        "Logistic LogCosh LogNormalCDF SmoothedAbs SmoothedRamp AngleBetween PlaneMonomial",
        functions,
    ),
}
_CASES = _named("And Or Not Piecewise")
# Kinds whose parts are all expressions.
_KNOWN = {
    **_SCALARS,
    **_CASES,
    **_named("MatrixSymbol Identity OneMatrix ZeroMatrix MatAdd MatMul MatPow Inverse Transpose Trace Lambda Tuple"),
    **_named("KroneckerProduct HadamardProduct DiagMatrix"),
    **_named("SymmetricSymbol PositiveSemidefiniteSymbol PositiveDefiniteSymbol LogDet PartialTrace Diagonal", atoms),
    **_named("SquareRoot Softmax Stacked SideBySide PrincipalBlock", atoms),
    **_named(
        "Entrywise SumOfEntries KernelMatrix AssumedPositiveDefinite", matrix_functions
    ),
    **{each.__name__: each for each in (BlockDiagMatrix, ElementwiseApplyFunction, GaussianAverage, ExprCondPair)},
}
_VARIABLES = _named("EntryVariable NormalVariable", atoms)
_CONSTANTS = (
    *("ImaginaryUnit", "Pi", "Exp1", "EulerGamma", "GoldenRatio", "Catalan", "Infinity", "NegativeInfinity"),
    *("BooleanTrue", "BooleanFalse"),
)


class ExpressionTable:
    """Table that grows as expressions are entered."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        # Use the type in the key, because SymPy may consider expressions of different types equal.
        self._numbers: dict[tuple[type, Basic], int] = {}

    def enter(self, expression: Basic) -> int:
        """Return the row number of `expression`. A new expression is appended, after its parts."""
        key = (type(expression), expression)
        if key not in self._numbers:
            row = _row(expression, self.enter)
            self._numbers[key] = len(self.rows)
            self.rows.append(row)
        return self._numbers[key]

    @property
    def expressions(self) -> list[Basic]:
        """Return the entered expressions and all their parts, in the order of the rows."""
        return [expression for _, expression in self._numbers]


def _row(expression: Basic, enter: Callable[[Basic], int]) -> Row:
    kind = type(expression)
    name = kind.__name__
    if isinstance(expression, Integer):
        return ["Integer", int(expression)]
    if isinstance(expression, Rational):
        return ["Rational", int(expression.p), int(expression.q)]
    if kind is Float:
        sign, mantissa, exponent, _ = expression._mpf_
        return ["Float", (-1) ** sign * int(mantissa), int(exponent), expression._prec]
    if kind is Str:
        return ["Str", expression.name]
    if kind is Symbol:
        (symbol,), assumptions = expression.__getnewargs_ex__()
        return ["Symbol", symbol, dict(sorted(assumptions.items()))]
    if _VARIABLES.get(name) is kind:
        return [name, expression.name]
    if kind is BlockMatrix:
        blocks = expression.blocks
        return ["BlockMatrix", blocks.rows, *(enter(block) for block in blocks)]
    if name in _CONSTANTS and expression is getattr(S, name):
        return [name]
    if _KNOWN.get(name) is kind:
        return [name, *(enter(argument) for argument in expression.args)]
    if isinstance(expression, NumericFunction):
        raise ValueError(f"{expression} contains Python code, which cannot be stored as text; pickle it instead")
    raise ValueError(
        f"the expression {shown(expression)} is a {kind.__module__}.{name}, which cannot be stored as text; the "
        "supported kinds of expressions are listed in theorykit/symbolic/documents/table.py"
    )


# SymPy raises these errors if an expression cannot be made of the given parts.
_MISTAKES = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, NotImplementedError)


def read_expressions(rows: Sequence[object]) -> list[Basic]:
    """Return the expression of every row of a table. Raises `ValueError`, with the row's number, if one is invalid."""
    found: list[Basic] = []
    for number, row in enumerate(rows):
        try:
            found.append(_expression(row, found))
        except _MISTAKES as error:
            raise ValueError(f"row {number} of its expressions, {shown(row)}, is invalid: {error}") from error
    return found


def _expression(row: object, above: Sequence[Basic]) -> Basic:
    if not isinstance(row, list) or not row or not isinstance(row[0], str):
        raise ValueError("a row must be a list of the name of a kind and its parts")
    name, *parts = row
    if name in _READERS:
        return _READERS[name](*parts)
    if name in _CONSTANTS and not parts:
        return getattr(S, name)
    if name == "BlockMatrix":
        rows, blocks = _whole(parts[0]), _entries(parts[1:], above)
        if rows < 1 or not blocks or len(blocks) % rows:
            raise ValueError(f"{len(blocks)} blocks cannot be arranged in {rows} rows")
        columns = len(blocks) // rows
        return BlockMatrix([list(blocks[row * columns : (row + 1) * columns]) for row in range(rows)])
    if name not in _KNOWN:
        raise ValueError(f"{name} is not a supported kind of expression")
    kind, arguments = _KNOWN[name], _entries(parts, above)
    is_scalar = name in _SCALARS
    if is_scalar and not all(isinstance(each, Expr) and not each.is_Matrix for each in arguments):
        raise ValueError("one of its parts is not a scalar")
    if kind in (Add, Mul):
        made = kind._from_args(arguments)  # keeps the order
    else:
        made = kind(*arguments, evaluate=False) if is_scalar or name in _CASES else kind(*arguments)
    # Reject an expression that SymPy simplifies, because it was not written by `ExpressionTable`.
    if type(made).__name__ != name or made.args != arguments:
        raise ValueError(f"SymPy changes it to {made}")
    return made


def _entries(numbers: Sequence[Any], above: Sequence[Basic]) -> tuple[Basic, ...]:
    for number in numbers:
        if not 0 <= _whole(number) < len(above):
            raise ValueError(f"it refers to row {number}, which is not an earlier row")
    return tuple(above[number] for number in numbers)


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{shown(value)} is not a whole number")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{shown(value)} is not a name")
    return value


def _rational(numerator: Any, denominator: Any) -> Rational:
    made = Rational(_whole(numerator), _whole(denominator))
    if (made.p, made.q) != (numerator, denominator) or denominator == 1:
        raise ValueError("it is not in lowest terms")
    return made


def _float(mantissa: Any, exponent: Any, precision: Any) -> Float:
    if _whole(mantissa) == 0:  # otherwise SymPy makes an integer of it
        return Float(0, precision=_whole(precision))
    sign = int(mantissa < 0)
    return Float((sign, abs(mantissa), _whole(exponent), abs(mantissa).bit_length()), precision=_whole(precision))


def _symbol(name: Any, assumptions: Any) -> Symbol:
    if not isinstance(assumptions, dict) or any(value not in (True, False, None) for value in assumptions.values()):
        raise ValueError("the assumptions of a symbol must be true or false")
    return Symbol(_text(name), **assumptions)


_READERS: Mapping[str, Callable[..., Basic]] = {
    "Integer": lambda number: Integer(_whole(number)),
    "Rational": _rational,
    "Float": _float,
    "Str": lambda text: Str(_text(text)),
    "Symbol": _symbol,
    "EntryVariable": lambda name: atoms.EntryVariable(_text(name)),
    "NormalVariable": lambda name: atoms.NormalVariable(_text(name)),
}
