r"""Moreau envelopes and proximal points: the inner minimum of a convex loss next to a Gaussian field.

By the envelope theorem, the envelope M has dM/domega = l'(x*) and dM/dV = -l'(x*)^2 / 2 at the proximal point x*. By
the implicit function theorem, dx*/domega = 1 / (1 + V l''(x*)). Neither form loses digits by cancellation.

A loss is split at its kinks. On a piece of degree up to two both functions are elementary. The envelope of the hinge,
the absolute value or the Huber loss is then an ordinary `Piecewise`. On other pieces it is an atom.
"""

from functools import lru_cache
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

import sympy as sp
from sympy import Expr, S, Symbol, oo
from sympy.core.function import ArgumentIndexError
from sympy.core.relational import Relational

from ..checks import checked_instance
from .atoms import EntryVariable, checked_scalar, new_variable
from .averages import coefficients, line_of
from .differential import gradient
from .functions import JUMPING
from .notation import enclosed, power, unused, value_at


class FunctionOfLoss(sp.Function):
    """Function of omega, V, a convex loss, and the parameters of the loss, which is a `Lambda` of x and these."""

    loss = property(lambda self: self.args[2])
    numbers = property(lambda self: (*self.args[:2], *self.args[3:]))

    def fdiff(self, argindex=1):
        if not 1 <= argindex <= len(self.args) or argindex == 3:
            raise ArgumentIndexError(self, argindex)
        values = dict(zip(self.loss.variables, (ProximalPoint(*self.args), *self.args[3:]), strict=True))
        return self._slope(argindex, lambda *orders: derivative(self.loss, *orders).xreplace(values))

    def _eval_is_real(self):
        return True if all(number.is_real for number in self.numbers) else None

    def _latex(self, printer, exp=None):
        name = unused(printer, "x", self)
        omega, variance, *parameters = (
            printer._print(number) if number.is_Atom else enclosed(printer._print(number)) for number in self.numbers
        )
        square = rf"\frac{{\left({name} - {omega}\right)^{{2}}}}{{2 {variance}}}"
        loss = value_at(printer, self.loss, name, *parameters)
        return power(rf"{self.notation}_{{{name}}}\left[{square} + {loss}\right]", exp)


class ProximalPoint(FunctionOfLoss):
    """Minimiser of (x - omega)^2 / (2 V) + loss(x) over x, for a smooth loss."""

    notation = r"\operatorname{argmin}"

    def _slope(self, index, of_loss):
        # The second-order condition makes the stiffness positive.
        stiffness = 1 + self.args[1] * of_loss(2)
        if index == 1:
            return 1 / stiffness
        return -(of_loss(1) if index == 2 else self.args[1] * of_loss(1, index - 3)) / stiffness


class MoreauEnvelope(FunctionOfLoss):
    """Minimum of (x - omega)^2 / (2 V) + loss(x) over x, for a smooth loss."""

    notation = r"\min"

    def _slope(self, index, of_loss):
        return {1: lambda: of_loss(1), 2: lambda: -(of_loss(1) ** 2) / 2}.get(index, lambda: of_loss(0, index - 3))()


@lru_cache(maxsize=256)
def derivative(loss: sp.Lambda, order: int, parameter: int = 0) -> Expr:
    """Differentiate a loss `order` times by x, and once by the parameter of this number, counted from 1."""
    expression = loss.expr if parameter == 0 else gradient(loss.expr, loss.variables[parameter])
    for _ in range(order):
        expression = gradient(expression, loss.variables[0])
    # Terms of a sum of ratios of exponential functions may cancel.
    return sp.factor(expression) if expression.has(sp.exp) and order else expression


def moreau(loss: Expr, x: Symbol, omega: Expr | float | int, V: Expr | float | int) -> Expr:
    r"""Return the Moreau envelope $\min_x [(x - \omega)^2 / (2 V) + \ell(x)]$ of a convex loss.

    The slope of the loss must rise at every kink. Its smooth parts must be real, finite and convex for all real x, and
    are checked at some.

    Args:
        loss: The loss, an expression in `x` and in other symbols, such as labels and margins. It may have kinks.
        x: The symbol that is minimised over.
        omega: The centre of the square.
        V: The width of the square, a positive number.

    Returns:
        An expression with derivatives of any order. It is elementary if all parts have degrees of at most two.

    Raises:
        ValueError: If the loss is not convex and finite, if it jumps, if the order of its kinks or its slopes there do
            not follow from assumptions on its symbols, or if V is not positive.
        NotImplementedError: If a kink is not at the root of a linear function, or if the formula on one side of it is
            not known to be convex everywhere.

    Example:
        >>> from sympy import Max, symbols
        >>> from theorykit.symbolic import moreau
        >>> x, omega = symbols("x omega", real=True)
        >>> moreau(Max(0, 1 - x), x, omega, 2)
        Piecewise((-omega, omega < -1), ((1 - omega)**2/4, omega <= 1), (0, True))
    """
    return _minimum(loss, x, omega, V)[0]


def proximal(loss: Expr, x: Symbol, omega: Expr | float | int, V: Expr | float | int) -> Expr:
    r"""Return the proximal point of a convex loss, the minimiser of $(x - \omega)^2 / (2 V) + \ell(x)$ over x.

    Arguments and errors are described in `moreau`.
    """
    return _minimum(loss, x, omega, V)[1]


class _Piece(NamedTuple):
    """Smooth part of a loss, between two kinks."""

    left: Expr
    right: Expr
    loss: Expr


def _minimum(loss: Expr, x: Symbol, omega: Expr | float | int, variance: Expr | float | int) -> tuple[Expr, Expr]:
    loss, omega, variance = map(checked_scalar, ("loss", "omega", "V"), (loss, omega, variance))
    checked_instance("x", x, Symbol)
    if variance.is_nonpositive:
        raise ValueError(f"V must be positive, got {variance}")
    own = new_variable(EntryVariable, "x", loss)
    parameters = tuple(sorted(loss.free_symbols - {x}, key=lambda symbol: symbol.name))
    pieces = _pieces(loss.xreplace({x: own}), own)

    def slope(piece: _Piece, order: int = 1) -> Expr:
        return derivative(sp.Lambda((own, *parameters), piece.loss), order)

    for left, right in pairwise(pieces):
        rise = (slope(right) - slope(left)).xreplace({own: right.left})
        if not _is_known(rise, "is_nonnegative"):
            change = f"its slope changes by {rise} at x = {right.left}"
            raise ValueError(f"the loss {loss} is not known to be convex: {change}{_to_declare(rise)}")
    for piece in pieces:
        curvature = slope(piece, 2)
        # The atom of a piece is the minimum over all x.
        if len(pieces) > 1 and not _is_known(curvature, "is_nonnegative"):
            raise NotImplementedError(f"{loss} has kinks and a side that is not known to be convex: {piece.loss}")
        _check_at_numbers(loss, x, *(each.xreplace({own: x}) for each in (piece.loss, curvature)))

    cases: list[tuple[tuple[Expr, Expr], Any]] = []
    for piece in pieces:
        if cases:
            # A kink holds the proximal point for an interval of omega, unless the slope is continuous there.
            bound = piece.left + variance * slope(piece).xreplace({own: piece.left})
            if sp.simplify(cases[-1][1].rhs - bound) != 0:
                envelope = (piece.left - omega) ** 2 / (2 * variance) + piece.loss.xreplace({own: piece.left})
                cases.append(((envelope, piece.left), sp.Le(omega, bound, evaluate=False)))
        condition: Any = True
        if piece.right != oo:
            bound = piece.right + variance * slope(piece).xreplace({own: piece.right})
            condition = sp.Lt(omega, bound, evaluate=False)
        cases.append((_of_smooth(piece.loss, own, parameters, omega, variance), condition))
    envelope, point = (sp.Piecewise(*((each[k], condition) for each, condition in cases)) for k in (0, 1))
    return envelope, point


def _check_at_numbers(loss: Expr, x: Symbol, part: Expr, curvature: Expr) -> None:
    """Raise unless a smooth part of the loss is real, finite and convex at some numbers."""
    drawn, parameters = Random(0), sorted(part.free_symbols - {x}, key=str)
    expressions = [each.rewrite(sp.log) for each in (part, curvature)]
    for twice in (*range(-7, 8), -16, 16):
        at = {x: S(twice) / 2}
        for symbol in parameters:
            sign = 1 if symbol.is_nonnegative else -1 if symbol.is_nonpositive else drawn.choice((1, -1))
            at[symbol] = sign * (S.One if symbol.is_integer else sp.Rational(drawn.randint(3, 15), 10))
        value, second = (each.xreplace(at).evalf(maxn=400) for each in expressions)
        is_finite = all(each.is_comparable and each.is_finite for each in (value, second) if each.is_number)
        if not is_finite or (second.is_number and second < -1e-12):
            raise ValueError(
                f"the loss {loss} is not convex or not defined: it must be real, finite and convex for all {x}, but "
                f"its value is {value} and its second derivative {second} at {at}{_to_declare(*parameters)}"
            )


def _pieces(loss: Expr, x: Symbol) -> list[_Piece]:
    """Split a loss into smooth pieces between its kinks, in ascending order."""
    if jumping := [node for node in loss.atoms(*JUMPING) if node.has_free(x)]:
        raise ValueError(f"the loss {loss} jumps, because it contains {jumping[0]}")
    todo, done = [_Piece(-oo, oo, _in_cases(loss, x))], []
    while todo:
        piece = todo.pop(0)
        kinked = [node for node in piece.loss.atoms(sp.Piecewise) if node.has_free(x)]
        if not kinked:
            if done and sp.expand(piece.loss - done[-1].loss) == 0:
                piece = done.pop()._replace(right=piece.right)
            elif done and not _is_known((piece.loss - done[-1].loss).xreplace({x: piece.left}), "is_zero"):
                raise ValueError(f"the loss {loss} jumps at x = {piece.left}")
            done.append(piece)
            continue
        # Other cases may contain this node, but it contains no others.
        node = min(kinked, key=lambda node: (node.count_ops(), node.sort_key()))
        relations = [each for _, condition in node.args for each in condition.atoms(Relational)]
        lines = [line_of(each.lhs - each.rhs, x) for each in relations if each.has_free(x)]
        if any(line is None for line in lines):
            raise NotImplementedError(f"{loss} has a kink that is not at the root of a linear function: {node}")
        ends = [piece.left, piece.right]
        for root in dict.fromkeys(sp.cancel(line.root) for line in lines):
            if _is_above(root, piece.left) and _is_above(piece.right, root):
                ends.insert(sum(_is_above(root, each) for each in ends), root)
        parts = []
        for left, right in pairwise(ends):
            middle = (left + right) / 2 if oo not in (right, -left) else left + 1 if right == oo else right - 1
            at = {x: S.Zero if (left, right) == (-oo, oo) else middle}
            above = {each: _is_above(each.lhs.xreplace(at), each.rhs.xreplace(at)) for each in relations}
            holds = {each: each.func(1 if is_above else -1, 0) for each, is_above in above.items()}
            values = [value for value, condition in node.args if condition.xreplace(holds) == True]  # noqa: E712
            parts.append(_Piece(left, right, piece.loss.xreplace({node: values[0] if values else S.NaN})))
        todo = parts + todo
    return done


def _in_cases(loss: Expr, x: Symbol) -> Expr:
    """Write absolute values, maxima and minima as cases."""

    def cases(node: Expr) -> Expr:
        relation = sp.Lt if isinstance(node, sp.Min) else sp.Gt
        found, *others = node.args if len(node.args) > 1 else (node.args[0], -node.args[0])
        for each in others:
            found = sp.Piecewise((each, relation(each - found, 0)), (found, True), evaluate=False)
        return found

    return loss.replace(lambda node: isinstance(node, (sp.Abs, sp.Max, sp.Min)) and node.has_free(x), cases)


def _is_known(expression: Expr, name: str) -> bool:
    return bool(getattr(expression, name) or getattr(sp.simplify(expression), name))


def _is_above(one: Expr, other: Expr) -> bool:
    """Return whether `one` exceeds `other`. Numbers that may be equal for some parameters count as different."""
    if oo in (one, -other) or -oo in (one, -other):
        return one == oo or other == -oo
    difference = sp.expand(one - other)
    if difference.is_nonnegative or difference.is_nonpositive:
        return bool(difference.is_nonnegative) and difference != 0
    order = f"{one} may be above or below {other}{_to_declare(difference)}"
    raise ValueError(f"the kinks of a loss must have a known order, but {order}")


def _to_declare(*expressions: Expr) -> str:
    symbols = sorted(set().union(*(each.free_symbols for each in expressions)), key=str)
    names = ", ".join(str(each) for each in symbols if each.is_nonnegative is None and each.is_nonpositive is None)
    return f"; insert values, or {f'declare {names} with positive=True' if names else 'write another loss'}"


def _of_smooth(loss: Expr, x: Symbol, parameters: tuple[Symbol, ...], omega: Expr, variance: Expr) -> tuple[Expr, Expr]:
    """Return envelope and proximal point of a smooth loss."""
    quadratic = coefficients(loss, x)
    if quadratic is None:
        variables = (x, *(EntryVariable(f"p_{i + 1}") for i in range(len(parameters))))
        generic = loss.xreplace(dict(zip(parameters, variables[1:], strict=True)))
        arguments = (omega, variance, sp.Lambda(variables, generic), *parameters)
        return MoreauEnvelope(*arguments), ProximalPoint(*arguments)
    a, b, c = quadratic
    stiffness = 1 + 2 * c * variance
    point = (omega - variance * b) / stiffness
    if c.is_nonzero:
        # The square around the vertex has no cancellation there.
        vertex = -b / (2 * c)
        return sp.expand(a + b * vertex / 2) + c * (omega - vertex) ** 2 / stiffness, point
    return a + (b * omega + c * omega**2 - variance * b**2 / 2) / stiffness, point
