"""Convert a `Program` to readable Python source that uses JAX, and to a callable."""

from __future__ import annotations

import linecache
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from textwrap import wrap
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array
from sympy import Expr, MatrixSymbol, Symbol

from ..checks import by_name, checked_instance
from ..symbolic import Heading, Text
from ..symbolic.documents.display import DisplayMixin
from ..symbolic.documents.document import Code, Folded, Table
from ..symbolic.envelopes import ProximalPoint, derivative
from ..symbolic.functions import partial_derivative
from . import batch, primitives
from .functions import least_proximal_point, proximal_point
from .lowering import lower
from .names import identifiers
from .program import Program
from .scalars import SCALAR_OPERATIONS, SPECIAL, NamedFunction


@dataclass(frozen=True, repr=False)
class Vocabulary:
    """Functions that generated code may call.

    - `module`: module that contains the functions.
    - `formulas`: operations that are written as formulas instead of calls.
    """

    module: ModuleType
    formulas: Mapping[str, Callable[[Sequence[str]], str]]

    def __repr__(self):
        return self.module.__name__


def _infix(operator: str) -> Callable[[Sequence[str]], str]:
    return lambda operands: f" {operator} ".join(map(_factor, operands))


MATRICES = Vocabulary(
    primitives,
    {
        "add": _infix("+"),
        "matmul": _infix("@"),
        "named": lambda operands: operands[0],
        "scale": _infix("*"),
        "transpose": lambda operands: f"{_factor(operands[0])}.T",
    },
)
"""Functions of a single matrix."""
BATCH = Vocabulary(batch, {"named": lambda operands: operands[0]})
"""Functions of a batch of small matrices."""


@dataclass(frozen=True, repr=False)
class CompiledFunction(DisplayMixin):
    """A pure JAX function generated from expressions. It takes named arrays and scalars and returns a dictionary.

    - `program`: the intermediate form of the function.
    - `source`: the Python source of the function.
    """

    program: Program
    source: str
    _function: Any

    def _view(self):
        yield Heading(f"{self.program.name}: generated function", 1)
        matrices = [each for each in self.program.arguments if isinstance(each, MatrixSymbol)]
        numbers = ", ".join(each.name for each in self.program.arguments if each not in matrices)
        rows = [(each.name, " x ".join(map(str, each.shape))) for each in matrices]
        yield Table((*rows, *([("numbers", numbers)] if numbers else [])), ("argument", "shape"))
        yield Text(f"Returns {', '.join(f'`{name}`' for name in self.program.outputs)}, by name.")
        yield Folded("Its source: `.source`", (Code(self.source),))

    def __call__(self, /, **arguments: Any) -> Mapping[str, Any]:
        return self._function(**arguments)

    def call_from(self, values: Mapping[str | Expr, Any]) -> Mapping[str, Any]:
        """Call the function with arguments from `values`, by symbol or by name. Other entries are ignored."""
        given = by_name("values", values, "numbers and arrays by name")
        if missing := sorted({argument.name for argument in self.program.arguments} - set(given)):
            raise ValueError(f"values has no entries for {', '.join(missing)}, arguments of {self.program.name}")
        return self._function(**{argument.name: given[argument.name] for argument in self.program.arguments})


def compile_expressions(
    name: str, outputs: Mapping[str, Expr], arguments: Sequence[Expr], vocabulary: Vocabulary = MATRICES
) -> CompiledFunction:
    """Compile expressions to one JAX function.

    Args:
        name: name of the function.
        outputs: expressions by name. The function returns their values in a dictionary.
        arguments: symbols that become arguments of the function, by name.
        vocabulary: operations that the function uses. With `BATCH` it takes batches of small matrices,
            `theorykit.codegen.batch.Matrix`.

    Raises:
        ValueError: a name is invalid, or a symbol is neither an argument nor a size of an argument.
        NotImplementedError: an expression contains a function that is not covered. The message suggests a replacement.

    Example:
        >>> import jax.numpy as jnp
        >>> from sympy import MatrixSymbol, Trace, symbols
        >>> from theorykit.codegen import compile_expressions
        >>> n = symbols("n", integer=True, positive=True)
        >>> A = MatrixSymbol("A", n, n)
        >>> square = compile_expressions("square", {"trace": Trace(A * A.T)}, [A])
        >>> float(square(A=jnp.eye(3))["trace"])
        3.0
    """
    checked_instance("vocabulary", vocabulary, Vocabulary)
    program = lower(name, outputs, arguments)
    source = emit(program, vocabulary)
    # Use one file name per source, so that tracebacks show the right lines for functions with equal names.
    filename = f"<generated by theorykit: {name} {zlib.crc32(source.encode()):08x}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {name: _of_named(function) for name, function in program.functions.items()}
    exec(compile(source, filename, "exec"), namespace)
    return CompiledFunction(program, source, namespace[name])


@cache
def _of_named(function: NamedFunction) -> Callable[..., Array]:
    """Make a JAX function: of the arguments of a numeric function, or of omega, V and the parameters of a loss."""
    if not isinstance(function, tuple):
        return differentiable(function.implementation, function, range(1, len(function.orders) + 1))
    kind, loss, least = function
    symbols = [Symbol(variable.name, real=True) for variable in loss.variables]
    renamed = dict(zip(loss.variables, symbols, strict=True))
    orders = {f"order_{order}": derivative(loss, order).xreplace(renamed) for order in range(2 if least else 3)}
    compiled = compile_expressions("loss", orders, symbols)

    @jax.jit
    def value(omega, variance, *parameters):
        omega, variance, *parameters = jnp.broadcast_arrays(omega, variance, *parameters)

        def of_loss(order: int, x: Array) -> Array:
            values = zip(symbols, (x, *parameters), strict=True)
            return jnp.broadcast_to(
                compiled(**{symbol.name: number for symbol, number in values})[f"order_{order}"], x.shape
            )

        orders = [partial(of_loss, order) for order in range(3)]
        find = partial(least_proximal_point, *orders[:2]) if least else partial(proximal_point, *orders[1:])
        point = find(omega, variance)
        return point if kind is ProximalPoint else variance * orders[1](point) ** 2 / 2 + orders[0](point)

    return differentiable(
        value,
        lambda omega, variance, *parameters: kind(omega, variance, loss, least, *parameters),
        (1, 2, *range(5, 4 + len(symbols))),
    )


def differentiable(
    value: Callable[..., Array], node: Callable[..., Expr], places: Sequence[int]
) -> Callable[..., Array]:
    """Add symbolic derivatives to `value`, an elementwise function of arrays.

    `node` returns the expression of the function for symbols. `places` are the positions of these symbols among the
    arguments of the expression, from 1.
    """

    symbols = [Symbol(f"x_{k}", real=True) for k in range(len(places))]

    @cache
    def slope(i: int) -> Callable[..., Array]:
        expression = partial_derivative(node(*symbols), places[i])
        compiled = compile_expressions("slope", {"value": expression}, symbols)
        return lambda *numbers: compiled(**{s.name: x for s, x in zip(symbols, numbers, strict=True)})["value"]

    return with_slopes(value, slope)


def with_slopes(value: Callable[..., Array], slope: Callable[[int], Callable[..., Array]]) -> Callable[..., Array]:
    """Add derivatives to `value`, an elementwise function of arrays: `slope(i)` with respect to argument i."""
    function = jax.custom_jvp(value)

    @partial(function.defjvp, symbolic_zeros=True)
    def rule(primals, tangents):
        result = function(*primals)
        # Skip zero tangents, because their product with an infinite derivative would be NaN.
        changes = [
            slope(i)(*primals) * tangent for i, tangent in enumerate(tangents) if not isinstance(tangent, SymbolicZero)
        ]
        return result, jnp.broadcast_to(sum(changes), result.shape)

    return lambda *numbers: function(*(jnp.asarray(number, float) for number in numbers))


def emit(program: Program, vocabulary: Vocabulary = MATRICES) -> str:
    """Write the program as Python source."""
    body = []
    for size in program.sizes:
        divisor = "" if size.divisor == "1" else f" // {_factor(size.divisor)}"
        body.append(f"{size.size} = {size.argument}.shape[{size.axis}]{divisor}")
    for step in program.instructions:
        formula = vocabulary.formulas.get(step.operation)
        value = formula(step.operands) if formula else f"{step.operation}({', '.join(step.operands)})"
        body.append(f"{step.target} = {value}")
    body.append("return {")
    for name, operand in program.outputs.items():
        # Inside braces, a line of a formula may end at any space.
        body += wrap(f'    "{name}": {operand},', 100, subsequent_indent=" " * 8, break_long_words=False)
    body.append("}")

    in_formulas = identifiers(program.operands())
    used = in_formulas & set(SCALAR_OPERATIONS) | {step.operation for step in program.instructions}
    used = sorted(used - set(vocabulary.formulas))
    module = vocabulary.module.__name__
    if unknown := [operation for operation in used if not hasattr(vocabulary.module, operation)]:
        raise NotImplementedError(f"{program.name}: {module} has no {', '.join(unknown)}")
    imports = ["import jax.numpy as jnp", ""] if any("jnp." in line for line in body) else []
    if SPECIAL in in_formulas:
        imports += [f"from {__package__} import {SPECIAL}", *([] if used else [""])]
    if used:
        imports += [f"from {module} import (", *(f"    {operation}," for operation in used), ")"]
    # These names are in the namespace in which the source is executed.
    imports += [f"# {name}: {_described(function)}" for name, function in program.functions.items()]

    names = ", ".join(["*", *(each.name for each in program.arguments)] if program.arguments else [])
    shapes = [
        f"    {each.name}: {' x '.join(map(str, each.shape))}"
        for each in program.arguments
        if isinstance(each, MatrixSymbol)
    ]
    docstring = [
        f'    """Generated from the symbolic expressions {", ".join(program.outputs)}.',
        "",
        *shapes,
        '    """',
    ]
    lines = [*imports, "", "", f"def {program.name}({names}):", *docstring, *(f"    {line}" for line in body)]
    return "\n".join(lines) + "\n"


def _described(function: NamedFunction) -> str:
    if isinstance(function, tuple):
        return f"the {function[0].__name__} of {function[1].expr}"
    return f"the numeric function {function.own_name}"


def _factor(operand: str) -> str:
    return f"({operand})" if any(character in operand for character in "+-*/ ") else operand
