r"""Moreau envelopes and proximal points: the inner minimum of a convex loss next to a Gaussian field.

The envelope of a loss l is M(omega, V) = min_x [(x - omega)^2 / (2 V) + l(x)], and the proximal point x* is its
minimiser. By the envelope theorem, dM/domega = l'(x*) and dM/dV = -l'(x*)^2 / 2. By the implicit function theorem,
dx*/domega = 1 / (1 + V l''(x*)). Neither form loses digits by cancellation.

A loss is split at its kinks, in an order that follows from the assumptions on its symbols. On a piece of degree up to
two both functions are elementary. The envelope of the hinge, the absolute value or the Huber loss is then an ordinary
`Piecewise`, and averages are integrated between its kinks. On other pieces it is an atom.

Losses must be convex. We show this by assumptions of SymPy if possible, and look for a counterexample otherwise.
"""

from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import mpmath
import numpy as np
import sympy as sp
from sympy import Expr, S, Symbol, oo
from sympy.core.function import ArgumentIndexError
from sympy.core.relational import Relational

from ..checks import Scalar, checked_arguments
from .atoms import EntryVariable
from .averages import coefficients, line_of
from .differential import gradient
from .functions import JUMPING, Logistic, many_digits
from .notation import enclosed, power, unused, value_at

# Points at which the curvature of a loss is tried, from -300 to 300. They are not round, because kinks often are.
_TRIED = 0.013 + np.sinh(np.linspace(-6.4, 6.4, 33))
# Number of sets of values at which the parameters of a loss are tried.
_SETS = 5
# Size of a negative number that may be caused by rounding.
_ROUNDING = 1e-9


class FunctionOfLoss(sp.Function):
    """Function of omega, V, a convex loss, and the parameters of the loss, which is a `Lambda` of x and these."""

    loss = property(lambda self: self.args[2])
    numbers = property(lambda self: (*self.args[:2], *self.args[3:]))

    def fdiff(self, argindex=1):
        """Differentiate with respect to omega (1), V (2) or a parameter of the loss (4, 5, ...)."""
        if not 1 <= argindex <= len(self.args) or argindex == 3:
            raise ArgumentIndexError(self, argindex)
        values = dict(zip(self.loss.variables, (ProximalPoint(*self.args), *self.args[3:]), strict=True))
        return self._slope(argindex, lambda *orders: derivative(self.loss, *orders).xreplace(values))

    def _eval_is_real(self):
        return True if all(number.is_real for number in self.numbers) else None

    def _eval_evalf(self, prec):
        if not all(number.is_number for number in self.numbers):
            return None
        with mpmath.workprec(prec + 30):
            digits = mpmath.mp.dps
            value = self._value(*(mpmath.mpmathify(sp.sympify(number).evalf(digits)) for number in self.numbers))
            return sp.Float(value, precision=prec)

    def _point(self, omega, variance, *parameters):
        """Find the proximal point in many digits, by bisection and then by secants."""
        slope = many_digits(self.loss.variables, derivative(self.loss, 1))
        residual = lambda x: x - omega + variance * slope(x, *parameters)  # noqa: E731
        low, high = sorted((omega, omega - variance * slope(omega, *parameters)))
        while high - low > 1e-3:
            middle = (low + high) / 2
            low, high = (low, middle) if residual(middle) > 0 else (middle, high)
        return low if low == high else mpmath.findroot(residual, (low, high), tol=mpmath.mp.eps**1.5)

    def _latex(self, printer, exp=None):
        name = unused(printer, "x", self)
        omega, variance, *parameters = (
            printer._print(number) if number.is_Atom else enclosed(printer._print(number)) for number in self.numbers
        )
        square = rf"\frac{{\left({name} - {omega}\right)^{{2}}}}{{2 {variance}}}"
        loss = value_at(printer, self.loss, name, *parameters)
        return power(rf"{self.notation}_{{{name}}}\left[{square} + {loss}\right]", exp)

    def _objective(self, omega, variance, *parameters):
        loss = many_digits(self.loss.variables, self.loss.expr)
        return lambda x: (x - omega) ** 2 / (2 * variance) + loss(x, *parameters)


class ProximalPoint(FunctionOfLoss):
    """Minimiser of (x - omega)^2 / (2 V) + loss(x) over x, for a smooth loss."""

    notation = r"\operatorname{argmin}"

    def _slope(self, index, of_loss):
        # The second-order condition makes the stiffness positive.
        stiffness = 1 + self.args[1] * of_loss(2)
        if index == 1:
            return 1 / stiffness
        return -(of_loss(1) if index == 2 else self.args[1] * of_loss(1, index - 3)) / stiffness

    _value = FunctionOfLoss._point


class MoreauEnvelope(FunctionOfLoss):
    """Minimum of (x - omega)^2 / (2 V) + loss(x) over x, for a smooth loss."""

    notation = r"\min"

    def _slope(self, index, of_loss):
        return {1: lambda: of_loss(1), 2: lambda: -(of_loss(1) ** 2) / 2}.get(index, lambda: of_loss(0, index - 3))()

    def _value(self, *numbers):
        return self._objective(*numbers)(self._point(*numbers))


@lru_cache(maxsize=256)
def derivative(loss: sp.Lambda, order: int, parameter: int = 0) -> Expr:
    """Differentiate a loss `order` times by x, and once by the parameter of this number, counted from 1."""
    expression = loss.expr if parameter == 0 else gradient(loss.expr, loss.variables[parameter])
    for _ in range(order):
        expression = gradient(expression, loss.variables[0])
    # Write ratios of exponentials with functions that stay finite, because they may be infinity over infinity. Code for
    # the logistic function takes half the time of code for general ratios.
    exponents = [node.exp for node in expression.atoms(sp.exp)]
    ratios = [sp.cancel(exponent / exponents[0]) for exponent in exponents]
    if not exponents or not all(ratio.is_Rational for ratio in ratios):
        return expression
    unit, t = exponents[0] / sp.ilcm(1, *(ratio.q for ratio in ratios)), sp.Dummy("t", real=True)
    powers = {sp.exp(each): ((1 + t) / (1 - t)) ** sp.cancel(each / unit) for each in exponents}
    numerator, denominator = sp.fraction(sp.cancel(expression.xreplace(powers)))
    if any(node.has(t) for node in numerator.atoms(sp.Function)) or denominator.has(t):
        return expression
    ends = {sign * (1 + side * t): 2 * sign * Logistic(side * unit) for sign in (1, -1) for side in (1, -1)}
    return (sp.factor(numerator) / denominator).xreplace(ends).xreplace({t: sp.tanh(unit / 2)})


@checked_arguments
def moreau(loss: "Scalar", x: Symbol, omega: "Scalar", V: "Scalar") -> Expr:
    r"""Return the Moreau envelope $\min_x [(x - \omega)^2 / (2 V) + \ell(x)]$ of a convex loss.

    The slope of the loss must rise at every kink. Its second derivative must be non-negative between kinks; if this
    does not follow from assumptions on symbols, it is tried at 33 points and five sets of values of the parameters. A
    loss that is concave only elsewhere is not noticed.

    Args:
        loss: The loss, an expression in `x` and in other symbols, such as labels and margins. It may have kinks.
        x: The symbol that is minimised over.
        omega: The centre of the square.
        V: The width of the square, a positive number.

    Returns:
        An expression with derivatives of any order. If the loss consists of parts of degree at most two, the expression
        is elementary.

    Raises:
        ValueError: If the loss is found not to be convex, if it jumps, if the order of its kinks or its slopes there do
            not follow from assumptions on its symbols, or if V is not positive.
        NotImplementedError: If a kink of the loss is not at the root of a linear function, or if the formula on one
            side of a kink is not convex beyond it.

    Example:
        >>> from sympy import Max, symbols
        >>> from theorykit.symbolic import moreau
        >>> x, omega = symbols("x omega", real=True)
        >>> moreau(Max(0, 1 - x), x, omega, 2)
        Piecewise((-omega, omega < -1), ((1 - omega)**2/4, omega <= 1), (0, True))
    """
    return _minimum(loss, x, omega, V)[0]


@checked_arguments
def proximal(loss: "Scalar", x: Symbol, omega: "Scalar", V: "Scalar") -> Expr:
    r"""Return the proximal point of a convex loss, the minimiser of $(x - \omega)^2 / (2 V) + \ell(x)$ over x.

    The arguments are described in `moreau`.

    Example:
        >>> from sympy import Abs, symbols
        >>> from theorykit.symbolic import proximal
        >>> x, omega = symbols("x omega", real=True)
        >>> proximal(Abs(x), x, omega, 2)
        Piecewise((omega + 2, omega < -2), (0, omega <= 2), (omega - 2, True))
    """
    return _minimum(loss, x, omega, V)[1]


class _Piece(NamedTuple):
    """Smooth part of a loss, between two kinks."""

    left: Expr
    right: Expr
    loss: Expr


def _minimum(loss: Expr, x: Symbol, omega: Expr, variance: Expr) -> tuple[Expr, Expr]:
    """Return the envelope and the proximal point."""
    if variance.is_nonpositive:
        raise ValueError(f"V must be positive, got {variance}")
    own = EntryVariable("x")
    parameters = tuple(sorted(loss.free_symbols - {x}, key=lambda symbol: symbol.name))
    pieces = _pieces(loss.xreplace({x: own}), own)

    def slope(piece: _Piece, order: int = 1) -> Expr:
        return derivative(sp.Lambda((own, *parameters), piece.loss), order)

    for left, right in pairwise(pieces):
        at_kink = {own: right.left}
        rise = (slope(right) - slope(left)).xreplace(at_kink)
        if not _is_known(rise, "is_nonnegative"):
            verdict = "not convex" if _is_known(rise, "is_negative") else "not known to be convex"
            raise ValueError(f"the loss {loss} is {verdict}: its slope changes by {rise} at the kink x = {right.left}")
    for piece in pieces:
        if text := _concavity(slope(piece, 2), own, piece.left, piece.right):
            raise ValueError(f"the loss {loss} is not convex: {text}")
        # The atom of a piece is the minimum over all x.
        if text := _concavity(slope(piece, 2), own, -oo, oo):
            raise NotImplementedError(f"{loss} has kinks, and the formula on one side of a kink is not convex: {text}")

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
    if len(cases) == 1:
        return cases[0][0]
    envelope, point = (sp.Piecewise(*((each[k], condition) for each, condition in cases)) for k in (0, 1))
    return envelope, point


def _pieces(loss: Expr, x: Symbol) -> list[_Piece]:
    """Split a loss into smooth pieces between its kinks, in ascending order."""
    todo, done = [_Piece(-oo, oo, loss)], []
    while todo:
        piece = todo.pop(0)
        kinked = [node for node in piece.loss.atoms(sp.Abs, sp.Max, sp.Min, sp.Piecewise, *JUMPING) if node.has_free(x)]
        if not kinked:
            done.append(piece)
            continue
        node = min(kinked, key=lambda node: (node.count_ops(), node.sort_key()))
        if isinstance(node, JUMPING):
            raise ValueError(f"the loss {loss} jumps, because it contains {node}")
        if isinstance(node, sp.Piecewise):
            at_kinks = [each.lhs - each.rhs for _, condition in node.args for each in condition.atoms(Relational)]
        elif isinstance(node, sp.Abs):
            at_kinks = [node.args[0]]
        else:
            at_kinks = [a - b for i, a in enumerate(node.args) for b in node.args[:i]]
        lines = [line_of(each, x) for each in at_kinks if each.has_free(x)]
        if any(line is None for line in lines):
            raise NotImplementedError(f"{loss} has a kink that is not at the root of a linear function: {node}")
        try:
            ends = [piece.left]
            for root in dict.fromkeys(sp.cancel(line.root) for line in lines):
                if _is_above(root, piece.left) and _is_above(piece.right, root):
                    ends.insert(sum(_is_above(root, each) for each in ends), root)
            ends.append(piece.right)
            parts = [
                _Piece(left, right, piece.loss.xreplace({node: _branch(node, x, _between(left, right))}))
                for left, right in pairwise(ends)
            ]
        except _UndecidedError:
            names = ", ".join(sorted(symbol.name for symbol in loss.free_symbols - {x}))
            raise ValueError(
                f"the order of the kinks of the loss {loss} depends on {names}; insert values, such as a label of "
                "1 or -1, or declare the sign of the symbols"
            ) from None
        todo = parts + todo
    merged = done[:1]
    for piece in done[1:]:
        last = merged[-1]
        if sp.expand(piece.loss - last.loss) == 0:
            merged[-1] = last._replace(right=piece.right)
            continue
        if not _is_known((piece.loss - last.loss).xreplace({x: piece.left}), "is_zero"):
            raise ValueError(f"the loss {loss} jumps at x = {piece.left}")
        merged.append(piece)
    return merged


class _UndecidedError(Exception):
    """The sign of an expression does not follow from assumptions on its symbols."""


def _is_known(expression: Expr, name: str) -> bool:
    return any(bool(getattr(each, name)) for each in (expression, sp.simplify(expression)))


def _is_above(one: Expr, other: Expr) -> bool:
    """Return whether `one` exceeds `other`. Numbers that may be equal for some parameters count as different."""
    if oo in (one, -other) or -oo in (one, -other):
        return one == oo or other == -oo
    difference = sp.expand(one - other)
    if difference.is_nonnegative or difference.is_nonpositive:
        return bool(difference.is_nonnegative) and difference != 0
    raise _UndecidedError


def _between(left: Expr, right: Expr) -> Expr:
    if left == -oo:
        return S.Zero if right == oo else right - 1
    return left + 1 if right == oo else (left + right) / 2


def _branch(node: Expr, x: Symbol, at: Expr) -> Expr:
    """Return the argument or the case that the value of a node with kinks has at a point."""
    if isinstance(node, sp.Abs):
        return node.args[0] if _is_above(node.args[0].xreplace({x: at}), S.Zero) else -node.args[0]
    if not isinstance(node, sp.Piecewise):
        found, *others = node.args
        for each in others:
            is_larger = _is_above(each.xreplace({x: at}), found.xreplace({x: at}))
            found = each if is_larger == isinstance(node, sp.Max) else found
        return found
    for value, condition in node.args:
        signs = {
            each: each.func(1 if _is_above(each.lhs.xreplace({x: at}), each.rhs.xreplace({x: at})) else -1, 0)
            for each in condition.atoms(Relational)
        }
        if condition.xreplace(signs) == True:  # noqa: E712
            return value
    return S.NaN


def _concavity(curvature: Expr, x: Symbol, left: Expr, right: Expr) -> str | None:
    """Say where a second derivative is negative, or return None if it is known or tried to be non-negative."""
    if _is_known(curvature, "is_nonnegative"):
        return None
    parameters = sorted((curvature.free_symbols | left.free_symbols | right.free_symbols) - {x}, key=lambda s: s.name)
    function = many_digits((x, *parameters), sp.Tuple(curvature, left, right))
    for row in np.random.default_rng(0).normal(size=(_SETS if parameters else 1, len(parameters))):
        values = [
            float(np.exp(z) if s.is_nonnegative else -np.exp(z) if s.is_nonpositive else 1.5 * z)
            for s, z in zip(parameters, row, strict=True)
        ]
        low, high = map(float, function(mpmath.mpf(0), *values)[1:])
        for at in _TRIED + (low if np.isfinite(low) else high if np.isfinite(high) else 0.0):
            value = function(mpmath.mpf(at), *values)[0]
            if low <= at <= high and value < -_ROUNDING * (1 + abs(value)):
                named = "".join(f", {s.name}={number:.3g}" for s, number in zip(parameters, values, strict=True))
                return f"its second derivative is {float(value):.3g} at x={at:.3g}{named}"
    return None


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
