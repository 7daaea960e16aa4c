"""Write expressions as Python source that imports nothing but JAX, to be read, and to be pasted into other code."""

from __future__ import annotations

import ast
import inspect
import keyword
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from textwrap import wrap
from types import FunctionType, ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy
import sympy as sp
from sympy import Expr, MatrixSymbol

from ..symbolic.averages import GaussianAverage, breaks
from . import functions, primitives
from .evaluate import At, as_number
from .functions import ScalarFunction
from .structured import Structured

# Longest part of a formula that is written in place instead of by a name.
_LONGEST = 60
# The same for parts that occur several times.
_SHORTEST = 12
_WIDTH = 88
# Precedence of Python's operators, and of calls and names.
_COMPARE, _ADD, _MULTIPLY, _NEGATE, _POWER, _ATOM = range(6)
# Operations that JAX has, as text.
_OPERATIONS = {
    "cholesky": ("jnp.linalg.cholesky({0})", _ATOM, (_COMPARE,)),
    "solve": ("cho_solve(({0}, True), {1})", _ATOM, (_COMPARE, _COMPARE)),
    "log_det": ("2 * jnp.sum(jnp.log(jnp.diagonal({0})))", _MULTIPLY, (_COMPARE,)),
    "trace": ("jnp.trace({0})", _ATOM, (_COMPARE,)),
    "trace_of_product": ("jnp.vdot({0}, {1})", _ATOM, (_COMPARE, _COMPARE)),
    "kron": ("jnp.kron({0}, {1})", _ATOM, (_COMPARE, _COMPARE)),
    "diagonal": ("jnp.diagonal({0})[:, None]", _ATOM, (_COMPARE,)),
    "diagonal_of_product": ("jnp.sum({0} * {1}, axis=0)[:, None]", _ATOM, (_MULTIPLY, _NEGATE)),
}
# Operations whose results have names, which contain the name of their argument.
_NAMED = {
    "jnp.linalg.cholesky({0})": "L_{0}",
    "2 * jnp.sum(jnp.log(jnp.diagonal({0})))": "log_det_{0}",
}


class Text:
    """A piece of source: a template, the pieces in it, and the precedence of its operator."""

    def __init__(self, template: str, parts: tuple = (), precedence: int = _ATOM, least: Sequence[int] = ()):
        self.template, self.parts, self.precedence = template, parts, precedence
        # The precedence that each part needs to stand without parentheses.
        self.least = tuple(least) or (_COMPARE,) * len(parts)
        self.hint = ""

    @property
    def key(self):
        """What makes two pieces equal."""
        return self.template, tuple(map(id, self.parts))

    def __add__(self, other):
        return _binary("{0} + {1}", self, other, _ADD, (_ADD, _ADD))

    def __radd__(self, other):
        # The sum of a list starts with zero.
        is_start = isinstance(other, int) and other == 0
        return self if is_start else _binary("{0} + {1}", other, self, _ADD, (_ADD, _ADD))

    def __sub__(self, other):
        return _binary("{0} - {1}", self, other, _ADD, (_ADD, _MULTIPLY))

    def __rsub__(self, other):
        return _binary("{0} - {1}", other, self, _ADD, (_ADD, _MULTIPLY))

    def __mul__(self, other):
        return _times(self, other)

    def __rmul__(self, other):
        return _times(other, self)

    def __truediv__(self, other):
        return _binary("{0} / {1}", self, other, _MULTIPLY, (_MULTIPLY, _NEGATE))

    def __rtruediv__(self, other):
        return _binary("{0} / {1}", other, self, _MULTIPLY, (_MULTIPLY, _NEGATE))

    def __matmul__(self, other):
        return _binary("{0} @ {1}", self, other, _MULTIPLY, (_MULTIPLY, _NEGATE))

    def __pow__(self, exponent):
        if exponent == -1:
            return 1 / self
        return _binary("{0}**{1}", self, exponent, _POWER, (_ATOM, _NEGATE))

    def __rpow__(self, base):
        return _binary("{0}**{1}", base, self, _POWER, (_ATOM, _NEGATE))

    def __neg__(self):
        return Text("-{0}", (self,), _NEGATE, (_MULTIPLY,))

    def __lt__(self, other):
        return _binary("{0} < {1}", self, other, _COMPARE, (_ADD, _ADD))

    def __le__(self, other):
        return _binary("{0} <= {1}", self, other, _COMPARE, (_ADD, _ADD))

    def __gt__(self, other):
        return _binary("{0} > {1}", self, other, _COMPARE, (_ADD, _ADD))

    def __ge__(self, other):
        return _binary("{0} >= {1}", self, other, _COMPARE, (_ADD, _ADD))

    def __getitem__(self, index):
        sides = [each if isinstance(each, slice) else None for each in index]
        parts, texts = [self], []
        for side in sides:
            if side is None:
                continue
            ends = []
            for end in (side.start, side.stop):
                ends.append("" if end is None else f"{{{len(parts)}}}")
                parts += [] if end is None else [end]
            texts.append(":".join(ends))
        return Text(f"{{0}}[{', '.join(texts)}]", tuple(parts), _ATOM, (_ATOM,) + (_COMPARE,) * (len(parts) - 1))

    @property
    def T(self):
        """The transpose."""
        return Text("{0}.T", (self,), _ATOM, (_ATOM,))


def _binary(template, left, right, precedence, least):
    return Text(template, (left, right), precedence, least)


def _times(left, right):
    for one, other in ((left, right), (right, left)):
        if isinstance(one, (int, float)) and one == 1:
            return other
        if isinstance(one, (int, float)) and one == -1:
            return -other
    return _binary("{0} * {1}", left, right, _MULTIPLY, (_MULTIPLY, _NEGATE))


def _call(name: str) -> Callable[..., Text]:
    def call(*arguments, **options):
        parts: list = []

        def slot(value):
            if isinstance(value, (list, tuple)):
                inner = ", ".join(map(slot, value))
                return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
            parts.append(value)
            return f"{{{len(parts) - 1}}}"

        texts = [slot(each) for each in arguments] + [f"{key}={slot(value)}" for key, value in options.items()]
        return Text(f"{name}({', '.join(texts)})", tuple(parts))

    return call


class _Module:
    """Stands for `jax.numpy`: its functions record their calls."""

    pi = Text("jnp.pi")

    def __getattr__(self, name: str) -> Callable[..., Text]:
        return _call(f"jnp.{name}")


class _Operations:
    """Stands for the operations of `theorykit.codegen.primitives`."""

    def __getattr__(self, name: str) -> Callable[..., Text]:
        if name not in _OPERATIONS:
            return _call(name)
        template, precedence, least = _OPERATIONS[name]
        return lambda *parts: Text(template, parts, precedence, least)

    @staticmethod
    def entrywise(function: Callable, *matrices: Text) -> Text:
        """Apply a function of numbers, which acts on each entry of arrays as well."""
        return function(*matrices)


def gauss_hermite(nodes):
    """Return nodes and weights of means over a standard normal variable (Golub and Welsch, 1969)."""
    beside = jnp.sqrt(jnp.arange(1.0, nodes))
    points, vectors = jnp.linalg.eigh(jnp.diag(beside, 1) + jnp.diag(beside, -1))
    return points, vectors[0] ** 2


def square_root(matrix):
    """Return the positive definite square root of a matrix."""
    eigenvalues, vectors = jnp.linalg.eigh(matrix)
    return (vectors * jnp.sqrt(eigenvalues)) @ vectors.T


class Source(Structured):
    """Record the operations of `Jax` as text."""

    xp = _Module()
    operations = _Operations()

    @staticmethod
    def size(value: Any) -> Any:
        """Return a size as it is."""
        return value

    @staticmethod
    def number(number: Expr) -> Any:
        """Write a fraction as a quotient."""
        if isinstance(number, sp.Rational) and not number.is_Integer and max(abs(number.p), number.q) < 1e6:
            return Text(f"{number.p} / {number.q}", (), _MULTIPLY if number.p > 0 else _ADD)
        if number == sp.pi:
            return Source.xp.pi
        return as_number(number)

    @staticmethod
    def function(row: ScalarFunction, node: Expr, at: At) -> Text:
        """Call a scalar function of JAX, or one whose code is pasted."""
        whole = row.whole_numbers(node)
        arguments = [int(each) if i in whole else at(each) for i, each in enumerate(node.args)]
        return _call(_name_of(row.jax))(*arguments)

    @staticmethod
    def piecewise(node: sp.Piecewise, at: At) -> Any:
        """Choose the first case that holds."""
        result: Any = Text("jnp.nan")
        for value, condition in reversed(node.args):
            result = at(value) if condition == True else at.xp.where(at(condition), at(value), result)  # noqa: E712
        return result

    @staticmethod
    def average(node: GaussianAverage, at: At) -> Text:
        """Average by Gauss-Hermite quadrature."""
        if node.is_adaptive or breaks(node) or at.outer is not None:
            raise NotImplementedError(
                f"the source of {node} is not written: the average is adaptive, has kinks or is in another function"
            )
        points, weights = Text(f"z_{node.nodes}"), Text(f"weights_{node.nodes}")
        integrand = at.function((node.variable,), node.integrand)(points)
        return Text("jnp.sum({0} * {1})", (weights, integrand), _ATOM, (_MULTIPLY, _NEGATE))


def _name_of(function: Callable) -> str:
    prefix = "jnp." if function.__module__ == "jax.numpy" else ""
    return prefix + function.__name__


class _Recording(At):
    """A point whose values are text, one piece per distinct text, named after the notation."""

    def __init__(self, values: Mapping[Any, Any], names: Mapping[Expr, str]):
        super().__init__(values, Source)
        self.names = names

    def __call__(self, node):
        value = super().__call__(node)
        if isinstance(value, Text) and node in self.names:
            value.hint = self.names[node]
        return value


def source_of(
    name: str, outputs: Mapping[str, Expr], arguments: Sequence[Expr], bindings: Sequence, names: Mapping[Expr, str]
) -> str:
    """Write a function of keyword arguments that returns a dictionary of the outputs.

    Args:
        name: name of the function.
        outputs: expressions by name.
        arguments: symbols of the arguments.
        bindings: sizes that follow from the shapes of the arguments (`SizeBinding`).
        names: names of subexpressions, such as the kernel.
    """
    written = _identifiers([name, *(each.name for each in arguments), *(size.name for size, _, _ in bindings)])
    texts = {original: Text(identifier) for original, identifier in written.items()}
    at = _Recording(texts, names)
    results = {output: at(expression) for output, expression in outputs.items()}
    writer = _Writer({*written.values(), "jnp"}, results.values())
    body = [line for binding in bindings for line in _size_line(binding, at, written)]
    returned = [f"    {_quoted(output)}: {writer.text(value, _COMPARE)}," for output, value in results.items()]
    whole = [*writer.lines, "return {", *returned, "}"]
    used = _names_in("\n".join(["def body():", *(f"    {line}" for line in whole)]))
    # A size may be needed by the line of a later size only.
    kept: list[str] = []
    for line in reversed(body):
        if line.split(" = ", 1)[0] in used:
            kept.insert(0, line)
            used |= _names_in(line)
    for count in sorted({int(each) for each in re.findall(r"\bweights_(\d+)\b", "\n".join(whole))}):
        kept.append(f"z_{count}, weights_{count} = gauss_hermite({count})")
        used.add("gauss_hermite")
    shapes = [
        f"{written[each.name]}: {' x '.join(_shape_text(side, written) for side in each.shape)}"
        for each in arguments
        if isinstance(each, MatrixSymbol)
    ]
    returns = ", ".join(re.sub(r"[^\w ]", "_", output) for output in outputs)
    docstring = [f'"""Return {returns}.', *(["", *shapes] if shapes else []), '"""']
    signature = ", ".join(["*", *(written[each.name] for each in arguments)] if arguments else [])
    helpers, imports = _pasted(used)
    definition = [f"def {written[name]}({signature}):", *_indented([*docstring, *kept, *whole])]
    return "\n".join(["import jax.numpy as jnp", *imports, *helpers, "", "", *definition]) + "\n"


def _quoted(text: str) -> str:
    return f'"{text}"' if text.isidentifier() else repr(text)


def _shape_text(side: Expr, written: Mapping[str, str]) -> str:
    return str(side.xreplace({each: sp.Symbol(written.get(each.name, "n")) for each in side.free_symbols}))


def _size_line(binding, at: At, written: Mapping[str, str]) -> list[str]:
    size, (argument, axis), divisor = binding
    line = f"{written[size.name]} = {written[argument]}.shape[{axis}]"
    if isinstance(divisor, tuple):
        return [f"{line} // {written[divisor[0]]}.shape[{divisor[1]}]"]
    return [line if divisor == 1 else f"{line} // {_Writer(set(), ()).text(at(divisor), _ATOM)}"]


def _names_in(code: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}


def _indented(lines: Sequence[str]) -> list[str]:
    found = []
    for line in lines:
        if len(line) <= _WIDTH or " = " not in line:
            found.append(f"    {line}".rstrip())
            continue
        # Inside parentheses, a line may end at any space.
        target, value = line.split(" = ", 1)
        parts = wrap(value, _WIDTH - 4, break_long_words=False, break_on_hyphens=False)
        found += [f"    {target} = (", *(f"        {part}" for part in parts), "    )"]
    return found


def _identifiers(names: Sequence[str]) -> dict[str, str]:
    """Return a Python identifier for every name, different for different names."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(names):
        # Python reads names in this normal form.
        identifier = re.sub(r"\W+", "_", unicodedata.normalize("NFKC", name)).strip("_") or "x"
        if identifier[0].isdigit() or keyword.iskeyword(identifier) or identifier in ("jnp", "cho_solve"):
            identifier = f"{identifier}_" if not identifier[0].isdigit() else f"x{identifier}"
        while identifier in found.values():
            identifier += "_"
        found[name] = identifier
    return found


class _Writer:
    """Write pieces of text: equal pieces once, by name, in lines before the result."""

    def __init__(self, taken: set[str], results: Iterable[Any]):
        self.taken, self.lines = taken, []
        # How often each piece is part of another.
        self.uses: Counter[int] = Counter()
        pending = [value for value in results if isinstance(value, Text)]
        while pending:
            for part in pending.pop().parts:
                if isinstance(part, Text):
                    self.uses[id(part)] += 1
                    pending += [part] if self.uses[id(part)] == 1 else []
        self.written: dict[int, str] = {}
        self.named: dict[str, str] = {}
        self.kept: list[Any] = []

    def text(self, value: Any, least: int) -> str:
        """Return a piece, in parentheses if its operator is weaker than `least`."""
        if not isinstance(value, Text):
            text = repr(value)
            return f"({text})" if text.startswith("-") and least > _NEGATE else text
        if id(value) not in self.written:
            self.kept.append(value)
            parts = [self.text(part, level) for part, level in zip(value.parts, value.least, strict=True)]
            text = value.template.format(*parts)
            is_shared = text in self.named
            if is_shared:
                text = self.named[text]
            elif value.parts and (self.is_long(value, text) or value.hint or value.template in _NAMED):
                text = self.name(text, value.hint or _NAMED.get(value.template, "part").format(*map(_word, parts)))
            self.written[id(value)] = text
        text = self.written[id(value)]
        is_weak = value.precedence < least and not text.isidentifier()
        return f"({text})" if is_weak else text

    def is_long(self, value: Text, text: str) -> bool:
        """Return whether a name is easier to read than the formula in its places."""
        return len(text) > (_SHORTEST if self.uses[id(value)] > 1 else _LONGEST)

    def name(self, text: str, hint: str) -> str:
        """Give a result a name, and write its line."""
        hint = hint.strip("_")
        name, number = hint, 1
        while name in self.taken:
            number += 1
            name = f"{hint}_{number}"
        self.taken.add(name)
        self.lines.append(f"{name} = {text}")
        self.named[text] = name
        return name


def _word(text: str) -> str:
    """Return a name as part of another name, without the letter of a Cholesky factor."""
    return text.removeprefix("L_") if text.isidentifier() and text != "L" else ""


def _pasted(used: set[str]) -> tuple[list[str], list[str]]:
    """Return the code of functions that JAX does not have, and the lines that import from JAX."""
    found: dict[str, str] = {}
    imports: set[str] = set()
    todo = sorted(used)
    while todo:
        name = todo.pop(0)
        of_jax = next((module for module in _JAX if hasattr(module, name)), None)
        code = next((getattr(module, name) for module in _OWN if hasattr(module, name)), None)
        if name == "jax":
            imports.add("import jax")
        elif isinstance(code, FunctionType) and code.__module__.startswith("theorykit") and name not in found:
            tree = ast.parse(inspect.getsource(code))
            for node in ast.walk(tree):
                if isinstance(node, ast.arg):
                    node.annotation = None
                elif isinstance(node, ast.FunctionDef):
                    node.returns = None
            found[name] = ast.unparse(tree)
            todo += sorted(_names_in(found[name]) - set(found))
        elif code is jax.scipy.special:
            imports.add(f"from jax.scipy import special as {name}")
        elif of_jax is not None:
            imports.add(f"from {of_jax.__name__} import {name}")
    return [line for text in found.values() for line in ("", "", *text.splitlines())], sorted(imports)


# Modules with the functions that the source may call.
_OWN: tuple[ModuleType, ...] = (sys.modules[__name__], primitives, functions)
_JAX: tuple[ModuleType, ...] = (jax.scipy.linalg, jax.scipy.special, jax.nn)
