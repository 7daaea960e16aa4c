r"""Moreau envelopes and proximal points: the inner minimum of a loss next to a Gaussian field.

The envelope of a loss l is M(omega, V) = min_x [(x - omega)^2 / (2 V) + l(x)], and the proximal point x* is its
minimiser. By the envelope theorem, dM/domega = l'(x*) and dM/dV = -l'(x*)^2 / 2. By the implicit function theorem,
dx*/domega = 1 / (1 + V l''(x*)). Neither form loses digits by cancellation.

A loss is split at its kinks. On a piece of degree up to two both functions are elementary. The envelope of
the hinge, the absolute value or the Huber loss is then an ordinary `Piecewise`, and averages are integrated between its
kinks. On other pieces it is an atom.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import mpmath
import numpy as np
import sympy as sp
from sympy import Expr, Symbol, oo
from sympy.core.function import ArgumentIndexError
from sympy.core.relational import Relational

from ..checks import Scalar, checked_arguments
from .atoms import EntryVariable
from .averages import coefficients, line_of
from .differential import gradient
from .functions import JUMPING, Logistic, many_digits
from .notation import enclosed, power, unused, value_at

# Points at which a loss is tried, from -300 to 300. They are not round, because kinks often are.
_TRIED = 0.013 + np.sinh(np.linspace(-6.4, 6.4, 33))
# Number of sets of values at which the parameters of a loss are tried.
_SETS = 5
# Size, relative to other terms, of a number that may be negative by rounding.
_ROUNDING = 1e-9
# A loss falls faster than the square rises if its ratio to the square falls to below -1 between these distances.
_NEAR, _FAR = 1e3, 1e6
_KINKED = (sp.Abs, sp.Max, sp.Min, sp.Piecewise)


class FunctionOfLoss(sp.Function):
    """Function of omega, V, a loss, whether to take the least of several minima, and the parameters of the loss.

    The loss is a `Lambda` of x and its parameters.
    """

    loss = property(lambda self: self.args[2])
    takes_least = property(lambda self: self.args[3] != 0)
    numbers = property(lambda self: (*self.args[:2], *self.args[4:]))

    def fdiff(self, argindex=1):
        """Differentiate with respect to omega (1), V (2) or a parameter of the loss (5, 6, ...)."""
        if not 1 <= argindex <= len(self.args) or argindex in (3, 4):
            raise ArgumentIndexError(self, argindex)
        values = dict(zip(self.loss.variables, (ProximalPoint(*self.args), *self.args[4:]), strict=True))
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
        if self.takes_least:
            objective = self._objective(omega, variance, *parameters)
            points = sorted({omega + mpmath.mpf(x) for x in np.linspace(-60, 60, 4001)})
            best = min(range(1, len(points) - 1), key=lambda i: objective(points[i]))
            low, high = points[best - 1], points[best + 1]
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
        return -(of_loss(1) if index == 2 else self.args[1] * of_loss(1, index - 4)) / stiffness

    _value = FunctionOfLoss._point


class MoreauEnvelope(FunctionOfLoss):
    """Minimum of (x - omega)^2 / (2 V) + loss(x) over x, for a smooth loss."""

    notation = r"\min"

    def _slope(self, index, of_loss):
        return {1: lambda: of_loss(1), 2: lambda: -(of_loss(1) ** 2) / 2}.get(index, lambda: of_loss(0, index - 4))()

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
def moreau(loss: "Scalar", x: Symbol, omega: "Scalar", V: "Scalar", *, least: bool = False) -> Expr:
    r"""Return the Moreau envelope $\min_x [(x - \omega)^2 / (2 V) + \ell(x)]$ of a loss.

    Args:
        loss: The loss, an expression in `x` and in other symbols, such as labels and margins. It may have kinks.
        x: The symbol that is minimised over.
        omega: The centre of the square.
        V: The width of the square, a positive number.
        least: Whether the loss may have several local minima, of which the least is taken.

    Returns:
        An expression with derivatives of any order. If the loss consists of parts of degree at most two, the expression
        is elementary. It is NaN if there is no minimum.

    Raises:
        ValueError: If the loss is not convex, jumps, or falls faster than the square rises, or if V is not positive.
        NotImplementedError: If a kink of the loss is not at the root of a linear function, or if a loss that is not
            convex has both kinks and curvature.

    Example:
        >>> from sympy import Max, symbols
        >>> from theorykit.symbolic import moreau
        >>> x, omega = symbols("x omega", real=True)
        >>> moreau(Max(0, 1 - x), x, omega, 2)
        Piecewise((-omega, omega < -1), ((1 - omega)**2/4, omega <= 1), (0, True))
    """
    return _minimum(loss, x, omega, V, least)[0]


@checked_arguments
def proximal(loss: "Scalar", x: Symbol, omega: "Scalar", V: "Scalar", *, least: bool = False) -> Expr:
    r"""Return the proximal point of a loss, the minimiser of $(x - \omega)^2 / (2 V) + \ell(x)$ over x.

    The arguments are described in `moreau`. If two minima are equal, the result is one of them.

    Example:
        >>> from sympy import Abs, symbols
        >>> from theorykit.symbolic import proximal
        >>> x, omega = symbols("x omega", real=True)
        >>> proximal(Abs(x), x, omega, 2)
        Piecewise((omega + 2, omega < -2), (0, omega <= 2), (omega - 2, True))
    """
    return _minimum(loss, x, omega, V, least)[1]


Minimum = tuple[Expr, Expr]
"""An envelope and a proximal point."""


class _Piece(NamedTuple):
    """Smooth part of a loss, between two kinks."""

    left: Expr
    right: Expr
    loss: Expr


class _Trial(NamedTuple):
    """The variable of a loss, its parameters, and values at which they are tried."""

    x: Symbol
    parameters: tuple[Symbol, ...]
    sets: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, loss: Expr, x: Symbol) -> "_Trial":
        parameters = tuple(sorted(loss.free_symbols - {x}, key=lambda symbol: symbol.name))
        drawn = np.random.default_rng(0).normal(size=(_SETS, len(parameters)))
        signs = [1 if each.is_nonnegative else -1 if each.is_nonpositive else 0 for each in parameters]
        sets = [
            tuple(float(sign * np.exp(z) if sign else 1.5 * z) for z, sign in zip(row, signs, strict=True))
            for row in drawn
        ]
        return cls(x, parameters, tuple(sets if parameters else sets[:1]))

    def values(self, expression: Expr, at: np.ndarray | float = 0.0) -> np.ndarray:
        """Evaluate an expression for every set of parameters, at one x for all or one per set."""
        if expression in (-oo, oo):
            return np.full(len(self.sets), float(expression))
        function, found = many_digits((self.x, *self.parameters), expression), []
        for x, values in zip(np.broadcast_to(at, len(self.sets)), self.sets, strict=True):
            value = mpmath.mpmathify(function(*map(mpmath.mpf, map(float, (x, *values)))))
            found.append(float(value.real) if abs(value.imag) <= _ROUNDING * abs(value) else np.nan)
        return np.array(found)

    def derivative(self, piece: _Piece, order: int) -> Expr:
        """Differentiate the loss of a piece by x."""
        return derivative(sp.Lambda((self.x, *self.parameters), piece.loss), order)

    def shown(self, number: int) -> str:
        """Name a set of values in a message."""
        named = (f"{s.name}={value:.3g}" for s, value in zip(self.parameters, self.sets[number], strict=True))
        return "".join(f", {each}" for each in named)


def _minimum(loss: Expr, x: Symbol, omega: Expr, variance: Expr, least: bool) -> Minimum:
    if variance.is_nonpositive:
        raise ValueError(f"V must be positive, got {variance}")
    own = EntryVariable("x")
    trial = _Trial.of(loss.xreplace({x: own}), own)
    pieces = _pieces(loss.xreplace({x: own}), trial)
    for piece, side in ((pieces[0], -1), (pieces[-1], 1)):
        near, far = (trial.values(piece.loss, side * at) / at**2 for at in (_NEAR, _FAR))
        if np.any((far < -1) & ~(far > 10 * near)):
            raise ValueError(
                f"the loss falls faster than the square rises: it is {piece.loss} as x goes to {side * oo}"
            )
    curved = [message for piece in pieces if (message := _concavity(piece, trial))]
    bends = [_bend(*both, trial) for both in pairwise(pieces)]
    if (curved or any(each < 0 for each, _ in bends)) and not least:
        message = next(iter(curved), None) or next(text for bend, text in bends if bend < 0)
        raise ValueError(f"the loss {loss} is not convex: {message}; to take the least of its minima, pass least=True")
    # The atom of a piece is the minimum over all x, which needs a formula that is convex beyond the piece, too.
    wide = [_concavity(piece._replace(left=-oo, right=oo), trial) for piece in pieces] if len(pieces) > 1 else []
    if found := next(filter(None, wide), None):
        raise NotImplementedError(f"{loss} has kinks, and the formula on one side of a kink is not convex: {found}")
    # Split the loss at kinks that bend down, where no minimum is. Each part is convex.
    parts = [[pieces[0]]]
    for piece, (bend, _) in zip(pieces[1:], bends, strict=True):
        parts.extend([[piece]] if bend < 0 else [])
        parts[-1].extend([] if bend < 0 else [piece])
    minima = [_of_convex_part(part, trial, omega, variance, bool(curved)) for part in parts]
    found = minima[0]
    for envelope, point in minima[1:]:
        # A Piecewise with conditions on another Piecewise would have all combinations of their cases.
        nearer = sp.Heaviside(envelope - found[0], 1)
        found = sp.Min(found[0], envelope), nearer * found[1] + (1 - nearer) * point
    return found


def _pieces(loss: Expr, trial: _Trial) -> list[_Piece]:
    """Split a loss into smooth pieces between its kinks, in ascending order."""
    x, todo, done = trial.x, [_Piece(-oo, oo, loss)], []
    while todo:
        piece = todo.pop(0)
        kinked = [node for node in piece.loss.atoms(*_KINKED, *JUMPING) if node.has_free(x)]
        if not kinked:
            done.append(piece)
            continue
        node = min(kinked, key=lambda node: (node.count_ops(), node.sort_key()))
        if isinstance(node, JUMPING):
            raise ValueError(f"the loss {loss} jumps, because it contains {node}")
        # The node equals the branch of the largest rank. Its kinks are at the roots of `at_kinks`.
        if isinstance(node, sp.Piecewise):
            branches = [value for value, _ in node.args]
            ranks = [sp.Piecewise((1, condition), (0, True)) for _, condition in node.args]
            at_kinks = [each.lhs - each.rhs for _, condition in node.args for each in condition.atoms(Relational)]
        elif isinstance(node, sp.Abs):
            branches = ranks = [-node.args[0], node.args[0]]
            at_kinks = [node.args[0]]
        else:
            branches = list(node.args)
            ranks = [-branch for branch in branches] if isinstance(node, sp.Min) else branches
            at_kinks = [a - b for i, a in enumerate(branches) for b in branches[:i]]
        lines = [line_of(each, x) for each in at_kinks if each.has_free(x)]
        if any(line is None for line in lines):
            raise NotImplementedError(f"{loss} has a kink that is not at the root of a linear function: {node}")
        roots = list(dict.fromkeys(sp.cancel(line.root) for line in lines))
        # The roots inside the piece, in ascending order, which must be the same for all parameters.
        low, high = trial.values(piece.left), trial.values(piece.right)
        places = {root: trial.values(root) for root in roots}
        is_inside = {root: (at > low + _ROUNDING) & (at < high - _ROUNDING) for root, at in places.items()}
        ends = sorted((root for root in roots if np.any(is_inside[root])), key=lambda root: places[root][0])
        is_decided = all(np.all(places[a] < places[b]) for a, b in pairwise(ends))
        is_decided = is_decided and all(np.all(is_inside[root]) for root in ends)
        parts = []
        for left, right in pairwise([piece.left, *ends, piece.right]):
            low, high = trial.values(left), trial.values(right)
            middle = low + 1 if right == oo else high - 1 if left == -oo else (low + high) / 2
            middle = np.zeros_like(low) if left == -oo and right == oo else middle
            chosen = set(np.argmax([trial.values(rank, middle) for rank in ranks], axis=0).tolist())
            if not is_decided or len(chosen) > 1:
                names = ", ".join(symbol.name for symbol in trial.parameters)
                raise ValueError(
                    f"the order of the kinks of the loss {loss} depends on {names}; insert values, such as a label of "
                    "1 or -1, or declare the sign of the symbols"
                )
            parts.append(_Piece(left, right, piece.loss.xreplace({node: branches[chosen.pop()]})))
        todo = parts + todo
    merged = done[:1]
    for piece in done[1:]:
        if sp.expand(piece.loss - merged[-1].loss) == 0:
            merged[-1] = merged[-1]._replace(right=piece.right)
        else:
            merged.append(piece)
    for left, right in pairwise(merged):
        values = [trial.values(piece.loss, trial.values(right.left)) for piece in (left, right)]
        if np.any(np.abs(values[1] - values[0]) > _ROUNDING * (1 + np.abs(values[0]))):
            raise ValueError(f"the loss {loss} jumps at x = {right.left}")
    return merged


def _concavity(piece: _Piece, trial: _Trial) -> str | None:
    """Say where a piece has a negative second derivative, or return None."""
    curvature, low, high = trial.derivative(piece, 2), trial.values(piece.left), trial.values(piece.right)
    # The points are relative to a finite end.
    origin = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high, 0.0))
    for shift in _TRIED if curvature.has_free(trial.x) else (0.013, -0.013, 0.0):
        at = origin + shift
        values = trial.values(curvature, at)
        wrong = (values < -_ROUNDING * (1 + np.abs(values))) & (at >= low) & (at <= high)
        if np.any(wrong):
            number = int(np.argmax(wrong))
            return f"its second derivative is {values[number]:.3g} at x={at[number]:.3g}{trial.shown(number)}"
    return None


def _bend(left: _Piece, right: _Piece, trial: _Trial) -> tuple[int, str]:
    """Return whether the slope rises (1), falls (-1) or is the same at a kink, and say by how much."""
    change = trial.values(trial.derivative(right, 1) - trial.derivative(left, 1), trial.values(right.left))
    signs = np.sign(np.where(np.abs(change) > _ROUNDING, change, 0.0))
    if np.any(signs > 0) and np.any(signs < 0):
        raise ValueError(f"whether the loss is convex at x = {right.left} depends on its parameters")
    worst = int(np.argmin(change))
    return int(signs[worst] if signs[worst] else np.max(signs)), (
        f"its slope changes by {change[worst]:.3g} at the kink x = {right.left}{trial.shown(worst)}"
    )


def _of_convex_part(part: Sequence[_Piece], trial: _Trial, omega: Expr, variance: Expr, curved: bool) -> Minimum:
    """Return envelope and proximal point of adjacent pieces whose slope rises, with walls at both ends."""
    cases: list[tuple[Minimum, Any]] = []
    for i, piece in enumerate(part):
        slope, before, after = trial.derivative(piece, 1), {trial.x: piece.left}, {trial.x: piece.right}
        if piece.left != -oo:
            bound = piece.left + variance * slope.xreplace(before)
            # A kink holds the proximal point for an interval of omega, unless the slope is continuous there.
            previous = cases[-1][1] if cases else None
            if previous is None or sp.simplify(previous.rhs - bound) != 0:
                at_kink = (piece.left - omega) ** 2 / (2 * variance) + piece.loss.xreplace(before)
                cases.append(((at_kink, piece.left), sp.Le(omega, bound, evaluate=False)))
        bound = True if piece.right == oo else piece.right + variance * slope.xreplace(after)
        condition = bound is True or sp.Lt(omega, bound, evaluate=False)
        cases.append((_of_smooth(piece.loss, trial, omega, variance, curved), condition))
        if i == len(part) - 1 and piece.right != oo:
            at_wall = (piece.right - omega) ** 2 / (2 * variance) + piece.loss.xreplace(after)
            cases.append(((at_wall, piece.right), True))
    return tuple(sp.Piecewise(*((minimum[k], condition) for minimum, condition in cases)) for k in (0, 1))


def _of_smooth(loss: Expr, trial: _Trial, omega: Expr, variance: Expr, curved: bool) -> Minimum:
    quadratic = coefficients(loss, trial.x)
    if quadratic is None:
        variables = (trial.x, *(EntryVariable(f"p_{i + 1}") for i in range(len(trial.parameters))))
        generic = loss.xreplace(dict(zip(trial.parameters, variables[1:], strict=True)))
        arguments = (omega, variance, sp.Lambda(variables, generic), sp.Integer(curved), *trial.parameters)
        return MoreauEnvelope(*arguments), ProximalPoint(*arguments)
    a, b, c = quadratic
    stiffness = 1 + 2 * c * variance
    if c.is_nonzero:
        # The square around the vertex has no cancellation there.
        vertex = -b / (2 * c)
        envelope = sp.expand(a + b * vertex / 2) + c * (omega - vertex) ** 2 / stiffness
    else:
        envelope = a + (b * omega + c * omega**2 - variance * b**2 / 2) / stiffness
    point = (omega - variance * b) / stiffness
    if not curved:
        return envelope, point
    # There is no minimum if the loss falls as fast as the square rises. Without a case, the value is NaN.
    return tuple(sp.Piecewise((each, stiffness > 0)) for each in (envelope, point))
