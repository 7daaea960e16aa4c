"""Write Python source of a function, to be read, and to be pasted into other code.

The rules of `Jax` are applied to `Recorded` values. Each holds the syntax tree of its formula, which `ast.unparse`
writes.
"""

from __future__ import annotations

import ast
import inspect
import keyword
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from textwrap import indent, wrap
from typing import Any, ClassVar

import jax.numpy as jnp
import sympy as sp
from sympy import Expr, MatrixSymbol

from ..symbolic.averages import GaussianAverage
from .evaluate import At, as_number
from .functions import ScalarFunction, log_cosh, log_normal_cdf
from .jax_algebra import Jax, square_root
from .sizes import sizes_of

# Longest part of a formula that is written in place instead of by a name, and longest part that occurs several times.
_LONGEST, _LONGEST_SHARED = 60, 12
_WIDTH = 88
# What the source may import.
_IMPORTS = {
    "jax": "import jax",
    "jnp": "import jax.numpy as jnp",
    "special": "from jax.scipy import special",
    "cho_solve": "from jax.scipy.linalg import cho_solve",
}
# Functions that JAX lacks. Their code is pasted.
_HELPERS = {each.__name__: each for each in (square_root, log_cosh, log_normal_cdf)}


def _binary(operator: ast.operator) -> tuple[Callable, Callable]:
    """Return a binary operator of recorded values, and the same with its operands swapped."""

    def apply(one: Any, other: Any) -> Recorded:
        left, right = _tree(one), _tree(other)
        match operator, left, right:
            case (ast.Add(), ast.Constant(0), _) | (ast.Mult(), ast.Constant(1), _):
                return Recorded(right)
            case ast.FloorDiv(), _, ast.Constant(1):
                return Recorded(left)
            case ast.Mult(), ast.UnaryOp(ast.USub(), size), _:
                return -(Recorded(size) * Recorded(right))
            case ast.Add(), _, ast.UnaryOp(ast.USub(), size):
                return Recorded(left) - Recorded(size)
            case ast.Add(), ast.UnaryOp(ast.USub(), size), _:
                return Recorded(right) - Recorded(size)
            case ast.Pow(), _, ast.UnaryOp(ast.USub(), ast.Constant(1)):
                return 1 / Recorded(left)
        return Recorded(ast.BinOp(left, operator, right))

    return apply, lambda other, one: apply(one, other)


def _comparison(operator: ast.cmpop) -> Callable:
    return lambda left, right: Recorded(ast.Compare(_tree(left), [operator], [_tree(right)]))


class Recorded:
    """A value of which only the formula is known, as a syntax tree. Values share the trees of their parts.

    The attribute `label` of a tree is the name of its value in the source.
    """

    def __init__(self, tree: Any):
        self.tree = tree

    def labelled(self, label: str) -> Recorded:
        """Give the value a name in the source."""
        self.tree.label = label
        return self

    def __getattr__(self, name: str) -> Recorded:
        if name.startswith("_"):
            # NumPy and others look for special methods.
            raise AttributeError(name)
        return Recorded(ast.Attribute(self.tree, name))

    def __getitem__(self, index: Any) -> Recorded:
        return Recorded(ast.Subscript(self.tree, _tree(index)))

    def __call__(self, *arguments: Any, **options: Any) -> Recorded:
        keywords = [ast.keyword(name, _tree(value)) for name, value in options.items()]
        return Recorded(ast.Call(self.tree, list(map(_tree, arguments)), keywords))

    def __neg__(self) -> Recorded:
        return Recorded(ast.UnaryOp(ast.USub(), self.tree))

    __add__, __radd__ = _binary(ast.Add())
    __sub__, __rsub__ = _binary(ast.Sub())
    __mul__, __rmul__ = _binary(ast.Mult())
    __truediv__, __rtruediv__ = _binary(ast.Div())
    __floordiv__, __rfloordiv__ = _binary(ast.FloorDiv())
    __matmul__, __rmatmul__ = _binary(ast.MatMult())
    __pow__, __rpow__ = _binary(ast.Pow())
    __lt__, __le__ = _comparison(ast.Lt()), _comparison(ast.LtE())
    __gt__, __ge__ = _comparison(ast.Gt()), _comparison(ast.GtE())
    __eq__, __ne__ = _comparison(ast.Eq()), _comparison(ast.NotEq())
    __hash__ = object.__hash__


def _tree(value: Any) -> Any:
    if isinstance(value, Recorded):
        return value.tree
    if isinstance(value, (list, tuple)):
        return (ast.List if isinstance(value, list) else ast.Tuple)(list(map(_tree, value)))
    if isinstance(value, slice):
        return ast.Slice(*(None if end is None else _tree(end) for end in (value.start, value.stop)))
    is_negative = isinstance(value, (int, float)) and value < 0
    return ast.UnaryOp(ast.USub(), ast.Constant(-value)) if is_negative else ast.Constant(value)


def _named(name: str) -> Recorded:
    return Recorded(ast.Name(name))


def _piecewise(node: sp.Piecewise, at: At) -> Any:
    result: Any = at.xp.nan
    for value, condition in reversed(node.args):
        result = at(value) if condition is sp.true else at.xp.where(at(condition), at(value), result)
    return result


def _average(node: GaussianAverage, at: At) -> None:
    raise NotImplementedError(f"the source of {node} is not written, because it is an average by quadrature")


class Source(Jax):
    """Record the operations of `Jax` as syntax trees."""

    xp = _named("jnp")
    square_root_of = _named("square_root")
    rules: ClassVar = {**Jax.rules, sp.Piecewise: _piecewise, GaussianAverage: _average}

    @staticmethod
    def size(value):
        return value

    @staticmethod
    def stop_gradient(value):
        return _named("jax").lax.stop_gradient(value)

    @staticmethod
    def number(number):
        if isinstance(number, sp.Rational) and not number.is_Integer and max(abs(number.p), number.q) < 1e6:
            size = Recorded(_tree(abs(number.p))) / number.q
            return size if number.p > 0 else -size
        return Source.xp.pi if number == sp.pi else as_number(number)

    @staticmethod
    def function(row: ScalarFunction, node: Expr, at: At) -> Recorded:
        name, whole = row.jax.__name__, row.whole_numbers(node)
        module = Source.xp if hasattr(jnp, name) else _named("special")
        called = _named(name) if name in _HELPERS else getattr(module, name)
        return called(*(int(each) if i in whole else at(each) for i, each in enumerate(node.args)))

    @staticmethod
    def cholesky(matrix):
        name = f"_{matrix.tree.id}" if isinstance(matrix.tree, ast.Name) else ""
        return Source.xp.linalg.cholesky(matrix).labelled(f"L{name}")

    @staticmethod
    def log_det_of(lower):
        value = 2 * Source.xp.sum(Source.xp.log(Source.xp.diagonal(lower)))
        return value.labelled(f"log_det{lower.tree.label.removeprefix('L')}")

    @staticmethod
    def solve(lower, right):
        return _named("cho_solve")((lower, True), right)

    @staticmethod
    def entrywise(function, *matrices):
        return function(*matrices)


def source_of(name: str, outputs: Mapping[str, Expr], arguments: Sequence[Expr], names: Mapping[Expr, str]) -> str:
    """Write a function of keyword arguments that returns a dictionary of the outputs.

    `names` are names of subexpressions, such as the kernel.
    """
    matrices = [each for each in arguments if isinstance(each, MatrixSymbol)]
    dimensions = {size for matrix in matrices for side in matrix.shape for size in side.free_symbols}
    own = _identifiers([name, *(each.name for each in arguments), *sorted(size.name for size in dimensions)])
    values = {each.name: _named(own[each.name]) for each in arguments}
    sizes = {size: value.labelled(own[size]) for size, value in sizes_of(arguments, values, Source).items()}
    at, returned = At({**values, **sizes}, Source), _identifiers(outputs)
    trees = [_tree(at(expression)) for expression in outputs.values()]
    for expression, label in names.items():
        if isinstance(value := at.known.get(expression), Recorded):
            value.labelled(label)
    for tree, label in zip(trees, returned.values(), strict=True):
        tree.label = getattr(tree, "label", label)
    used = set(_parts_first(trees))
    first = [size.tree for size in sizes.values() if size.tree in used]
    taken = {*_IMPORTS, *_HELPERS, *own.values()} - {own[size] for size in sizes}
    lines, texts = _written([*first, *trees], taken)
    renamed = {size: sp.Symbol(own[size.name]) for size in dimensions}
    body = [f'"""Return {", ".join(returned.values())}.', *([""] if matrices else [])]
    for matrix in matrices:
        body.append(f"{own[matrix.name]}: {' x '.join(str(side.xreplace(renamed)) for side in matrix.shape)}")
    body += ['"""', *lines, "return {"]
    body += [f"    {output!r}: {text}," for output, text in zip(outputs, texts[len(first) :], strict=True)]
    signature = ", ".join(["*", *(own[each.name] for each in arguments)] if arguments else [])
    text = indent("\n".join([*body, "}"]), "    ")
    return _with_helpers(f"def {own[name]}({signature}):\n{text}\n")


def _identifiers(names: Iterable[str]) -> dict[str, str]:
    """Return a Python identifier for every name, different for different names."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(names):
        # Python reads names in this normal form.
        identifier = re.sub(r"\W+", "_", unicodedata.normalize("NFKC", name)).strip("_") or "x"
        if identifier[0].isdigit():
            identifier = f"x{identifier}"
        while keyword.iskeyword(identifier) or identifier in {*found.values(), *_IMPORTS, *_HELPERS}:
            identifier += "_"
        found[name] = identifier
    return found


def _parts_first(roots: Iterable[ast.AST]) -> list[ast.AST]:
    """Return the nodes of trees, each once and after its parts."""
    pending, found = list(roots)[::-1], {}
    while pending:
        node = pending[-1]
        missing = [part for part in ast.iter_child_nodes(node) if part not in found]
        pending += missing[::-1]
        if not missing:
            found[pending.pop()] = None
    return list(found)


def _written(roots: Sequence[ast.expr], taken: set[str]) -> tuple[list[str], list[str]]:
    """Return lines that name long, shared and labelled parts of trees, and the texts of the trees."""
    order, lines = _parts_first(roots), []
    uses = Counter(part for node in order for part in ast.iter_child_nodes(node))
    named: dict[str, ast.Name] = {}
    replaced: dict[ast.AST, ast.AST] = {}
    replacement = ast.NodeTransformer()
    replacement.visit = lambda node: replaced.get(node, node)  # type: ignore[method-assign]
    for node in order:
        replacement.generic_visit(node)
        text = ast.unparse(node)
        if not isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Call, ast.Compare, ast.Subscript)):
            continue
        label = getattr(node, "label", "")
        if text not in named and (label or len(text) > (_LONGEST_SHARED if uses[node] > 1 else _LONGEST)):
            name, number = label or "part", 1
            while name in taken:
                number += 1
                name = f"{label or 'part'}_{number}"
            taken.add(name)
            named[text] = ast.Name(name)
            lines += _assignment(name, text)
        replaced[node] = named.get(text, node)
    return lines, [ast.unparse(replaced.get(root, root)) for root in roots]


def _assignment(name: str, text: str) -> list[str]:
    if len(name) + len(text) <= _WIDTH - 7:
        return [f"{name} = {text}"]
    # Inside parentheses, a line may end at any space.
    parts = wrap(text, _WIDTH - 8, break_long_words=False, break_on_hyphens=False)
    return [f"{name} = (", *(f"    {part}" for part in parts), ")"]


def _with_helpers(code: str) -> str:
    """Put the imports of a function and the code of functions that JAX lacks before it."""
    # No helper uses another one.
    sources = [inspect.getsource(_HELPERS[name]) for name in sorted(_mentioned(_HELPERS, code))]
    parts = [*(source[source.index("def ") :] for source in sources), code]
    imports = [_IMPORTS[name] for name in _mentioned(_IMPORTS, "\n".join(parts))]
    return "\n\n\n".join([*(["\n".join(imports)] if imports else []), *(part.rstrip() for part in parts)]) + "\n"


def _mentioned(names: Iterable[str], code: str) -> list[str]:
    return [name for name in names if re.search(rf"(?<![.\w]){name}\b", code)]
