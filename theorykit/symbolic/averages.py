"""Averages over standard normal variables, as atoms that are evaluated by quadrature.

The functions `breaks`, `singularities` and `features` tell a quadrature rule about an integrand.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import sympy as sp
from sympy.core.relational import Relational

from ..checks import checked_instance, checked_whole_number, shown
from .atoms import NormalVariable, checked_expression, checked_scalar, hold, matrix_scalars, new_variable
from .functions import SmoothedKink
from .notation import unused, with_names

NODES = 64
# Largest number of nodes that is accepted.
MOST_NODES = 10_000
ADAPTIVE = "adaptive"
# Maximum number of places at which the composite rule has short panels. Each place costs six panels.
_MOST_FEATURES = 6


class GaussianAverage(sp.Expr):
    r"""Mean of `integrand` over a standard normal `variable`, by quadrature.

    The variable is bound: it differs from all symbols elsewhere. An average over two variables is an average of an
    average.

    With a number of `nodes`, the rule is Gauss-Hermite, from 256 nodes trapezoidal, or Gauss-Legendre on the pieces
    between kinks and jumps. The error falls exponentially with the number of nodes, but steep or oscillating integrands
    need many. With `nodes="adaptive"`, or infinity, the rule has about 2,000 nodes on panels that are short near
    singularities and near the roots of steep functions. It states its error (`theorykit.codegen.average_errors`), but
    does not refine itself. All rules may miss a bump that is narrower than the distance of their nodes.

    Args:
        integrand: Scalar expression.
        variable: Symbol for the standard normal number in the integrand.
        nodes: Number of nodes, or "adaptive".
        side: Number of error bounds to add to the value: 1, -1 or a symbol. By default, none.

    Raises:
        ValueError: If the integrand is known to have no finite mean.
    """

    is_commutative = True

    def __new__(cls, integrand, variable, nodes=NODES, side=0):
        integrand = checked_scalar("integrand", integrand)
        checked_instance("variable", variable, sp.Symbol)
        nodes = checked_nodes(nodes)
        side = side if isinstance(side, sp.Symbol) else sp.Integer(checked_whole_number("side", side, least=-1, most=1))
        bound_inside = {average.variable for average in integrand.atoms(GaussianAverage)}
        if not isinstance(variable, NormalVariable) or variable in bound_inside:
            own = new_variable(NormalVariable, variable.name, integrand)
            integrand, variable = integrand.xreplace({variable: own}), own
        if any(delta.has_free(variable) for delta in integrand.atoms(sp.DiracDelta)):
            raise ValueError(f"integrand has a DiracDelta of {variable}, which quadrature cannot average")
        _check_is_finite(integrand, variable)
        return super().__new__(cls, integrand, variable, nodes, *([] if side == 0 else [side]))

    integrand = property(lambda self: self.args[0])
    variable = property(lambda self: self.args[1])
    is_adaptive = property(lambda self: self.args[2] is sp.oo)
    nodes = property(lambda self: sp.oo if self.is_adaptive else int(self.args[2]))
    side = property(lambda self: self.args[3] if len(self.args) > 3 else sp.S.Zero)
    bound_symbols = property(lambda self: [self.variable])

    def _latex(self, printer):
        name = unused(printer, printer._print(self.variable), self)
        mean = with_names(printer, self.integrand, {self.variable: name})
        return rf"\left\langle {mean} \right\rangle_{{{name} \sim \mathcal{{N}}(0, 1)}}"

    @property
    def free_symbols(self):
        return super().free_symbols - {self.variable}

    def _renamed(self):
        # A substituted expression contains the variable.
        own = new_variable(NormalVariable, self.variable.name, self.integrand)
        return self.func(self.integrand.xreplace({self.variable: own}), own, *self.args[2:])

    def _xreplace(self, rule):
        if self in rule or not isinstance(rule, Mapping):
            return super()._xreplace(rule)
        rule = {old: new for old, new in rule.items() if old != self.variable}
        if any(self.variable in getattr(new, "free_symbols", ()) for new in rule.values()):
            return self._renamed()._xreplace(rule)
        return super()._xreplace(rule)

    def _eval_subs(self, old, new):
        if old == self.variable:
            return self
        if self.variable in new.free_symbols:
            return self._renamed()._subs(old, new)
        return None

    def _eval_derivative(self, symbol):
        for node in matrix_scalars(self.integrand):
            if symbol in node.free_symbols:
                raise NotImplementedError(f"SymPy cannot differentiate {node}: use theorykit.symbolic.gradient")
        return mean_slope(self, self.integrand, symbol)

    def _eval_is_real(self):
        return self.integrand.is_real or None

    def _eval_is_positive(self):
        return self.integrand.is_positive or None

    def _eval_is_negative(self):
        return self.integrand.is_negative or None


def checked_nodes(nodes: Any) -> sp.Expr:
    """Return a number of nodes, or SymPy's infinity for "adaptive"."""
    if isinstance(nodes, str) and nodes != ADAPTIVE:
        raise ValueError(f'nodes must be a whole number or "{ADAPTIVE}", got {shown(nodes)}')
    if isinstance(nodes, str) or nodes is sp.oo:
        return sp.oo
    return sp.Integer(checked_whole_number("nodes", nodes, least=1, most=MOST_NODES))


def average_over(integrand: sp.Expr, variable: sp.Symbol, nodes: int | sp.Expr, side: int | sp.Expr = 0) -> sp.Expr:
    """Average by quadrature, with constants moved to the front."""
    constant, rest = integrand.as_independent(variable, as_Add=False)
    return constant * GaussianAverage(rest, variable, nodes, side) if rest.has_free(variable) else integrand


def average_like(average: GaussianAverage, integrand: sp.Expr) -> sp.Expr:
    """Average another integrand over the variable of `average`, with the same quadrature."""
    return average_over(integrand, average.variable, average.nodes, average.side)


def with_nodes(expression: sp.Expr, nodes: int | str | sp.Expr) -> sp.Expr:
    """Set the number of quadrature `nodes`, or "adaptive" quadrature, in all Gaussian averages of `expression`."""
    nodes = checked_nodes(nodes)
    return checked_expression("expression", expression).replace(
        GaussianAverage, lambda integrand, variable, *_: GaussianAverage(integrand, variable, nodes)
    )


Quadratic = tuple[sp.Expr, sp.Expr, sp.Expr]


class Line(NamedTuple):
    """Linear function a + b z."""

    offset: sp.Expr
    slope: sp.Expr

    @property
    def root(self) -> sp.Expr:
        return -self.offset / self.slope

    def has_root_of(self, other: "Line") -> bool:
        return sp.expand(self.offset * other.slope - other.offset * self.slope) == 0


def coefficients(expression: sp.Expr, variable: sp.Symbol) -> Quadratic | None:
    """Return (a, b, c) if the expression has the form a + b z + c z^2."""
    if not expression.is_polynomial(variable):
        return None
    slope = expression.diff(variable)
    curvature = sp.expand(slope.diff(variable))
    if curvature.has_free(variable):
        return None
    at_zero = {variable: sp.S.Zero}
    return expression.xreplace(at_zero), slope.xreplace(at_zero), curvature / 2


def line_of(expression: sp.Expr, variable: sp.Symbol) -> Line | None:
    """Return `expression` as a + b z if it is linear with non-zero b."""
    found = coefficients(expression, variable)
    return Line(*found[:2]) if found and found[2] == 0 and found[1] != 0 else None


def nodes_around(expression: sp.Basic, variable: sp.Symbol) -> Iterator[sp.Basic]:
    """Yield the nodes of an expression that contain the variable, except nodes inside which a variable is bound."""
    if expression.has_free(variable):
        yield expression
        for argument in expression.args:
            inside = {expression.variable} if isinstance(expression, GaussianAverage) else set()
            yield from (node for node in nodes_around(argument, variable) if not node.free_symbols & inside)


@lru_cache(maxsize=1024)
def breaks(average: GaussianAverage) -> list[sp.Expr]:
    """Return functions of the variable whose roots are the kinks and jumps of the integrand."""
    z, found = average.variable, []
    for node in nodes_around(average.integrand, z):
        if isinstance(node, (sp.Abs, sp.Heaviside, sp.sign, Relational)):
            found.append(_argument(node))
        elif isinstance(node, (sp.Max, sp.Min)):
            found += [a - b for i, a in enumerate(node.args) for b in node.args[:i]]
    return _distinct(found, z)


@lru_cache(maxsize=1024)
def singularities(average: GaussianAverage) -> list[sp.Expr]:
    """Return linear and quadratic functions at whose roots the integrand may be infinite or not differentiable."""
    z, found = average.variable, []
    for node in nodes_around(average.integrand, z):
        if isinstance(node, sp.log):
            found.append(node.args[0])
        elif isinstance(node, sp.Pow) and not (node.exp.is_integer and node.exp.is_nonnegative):
            found.append(node.base)
    return _distinct((each for each in found if coefficients(each, z) and not each.is_positive), z)


def _argument(node: sp.Basic) -> sp.Expr:
    return node.lhs - node.rhs if isinstance(node, Relational) else node.args[0]


def _distinct(functions, z):
    """Return the functions of z with different roots."""
    found: dict[sp.Expr, Line | None] = {}
    for each in functions:
        if each.has_free(z) and each not in found and -each not in found:
            line = line_of(each, z)
            if not any(line and other and line.has_root_of(other) for other in found.values()):
                found[each] = line
    return list(found)


@lru_cache(maxsize=1024)
def features(average: GaussianAverage) -> list[Quadratic]:
    """Return (a, b, c) for each a + b z + c z^2 in the integrand that may be too steep for a fixed grid.

    A kink counts with one of its branches, and an average inside as its integrand at zero.
    """
    integrand, variable, found = average.integrand, average.variable, {}
    inside = {average.variable: sp.S.Zero for average in integrand.atoms(GaussianAverage)}
    kinked = integrand.atoms(sp.Abs, sp.Heaviside, sp.Max, sp.Min, sp.Piecewise, sp.sign)
    # An average inside smooths a kink.
    kinked = {each for each in kinked if each.free_symbols.isdisjoint(inside)}
    # Sort, so that every process takes the same ones.
    for node in sorted(integrand.atoms(sp.Function, sp.Pow) - kinked, key=sp.default_sort_key):
        is_smooth_power = isinstance(node, sp.Pow) and node.exp.is_integer and node.exp.is_nonnegative
        if not node.has_free(variable) or is_smooth_power:
            continue
        argument = node.args[0].replace(GaussianAverage, lambda each, *_: each).xreplace(inside)
        kinks = [each for each in argument.atoms(sp.Abs, sp.Max, sp.Min) if each.has_free(variable)]
        branches = {each: next(part for part in each.args if part.has_free(variable)) for each in kinks}
        quadratic = coefficients(argument.xreplace(branches), variable)
        if quadratic and not all(each.is_number and bool(abs(each) <= 2) for each in quadratic[1:]):
            found[quadratic] = None
    return list(found)[:_MOST_FEATURES]


@lru_cache(maxsize=1024)
def without_exponential(average: GaussianAverage) -> tuple[sp.Expr, GaussianAverage] | None:
    """Write the mean of exp(E) g, with E = a + b z + c z^2 and c < 1/2, as a number times a mean of g.

    This factor times the normal density is another normal density. A factor of a ratio, such as exp(z) / (1 + exp(z)),
    stays in the integrand, because the other factor cancels its growth.
    """
    z, factors = average.variable, sp.Mul.make_args(average.integrand)
    growing = (sp.exp, sp.cosh, sp.sinh)
    if any(each.is_Pow and each.exp.is_negative and each.has_free(z) and each.has(*growing) for each in factors):
        return None
    for i, factor in enumerate(factors):
        if isinstance(factor, sp.exp) and factor.has_free(z):
            exponent = factor.exp
            if coefficients(exponent, z) is None:
                # Other terms may make the mean finite for any c, so only linear terms are split off.
                terms = [(term, coefficients(term, z)) for term in sp.Add.make_args(exponent)]
                exponent = sp.Add(*(term for term, found in terms if found and found[2] == 0))
            _, slope, curvature = coefficients(exponent, z)
            narrowing = 1 - 2 * curvature
            if exponent.has_free(z) and not narrowing.is_nonpositive:
                rest = sp.Mul(*factors[:i], sp.exp(factor.exp - exponent), *factors[i + 1 :])
                mean, deviation = slope / narrowing, 1 / sp.sqrt(narrowing)
                # The exponent is most accurate as it is written, at the mean.
                number = deviation * sp.exp(exponent.xreplace({z: mean}) - mean**2 / 2)
                return number, GaussianAverage(rest.xreplace({z: mean + deviation * z}), z, *average.args[2:])
    return None


def _check_is_finite(integrand: sp.Expr, z: sp.Symbol) -> None:
    """Reject a product that grows faster than the density decays, or that has a non-integrable pole."""
    factors = [factor for factor in sp.Mul.make_args(integrand) if factor.has_free(z)]
    for factor in factors:
        others = sp.Mul(*(other for other in factors if other is not factor))
        base, power = factor.as_base_exp()
        infinite = False
        if isinstance(factor, sp.exp) and others.is_polynomial(z):
            quadratic = coefficients(factor.exp, z)
            infinite = quadratic is not None and (1 - 2 * quadratic[2]).is_nonpositive
        elif (1 + power).is_nonpositive:
            pole = line_of(base.args[0] if isinstance(base, sp.Abs) else base, z)
            is_pole = pole is not None and pole.root.is_real and pole.slope.is_nonzero
            infinite = is_pole and others.xreplace({z: pole.root}).is_zero is False
        if infinite:
            raise ValueError(f"the average of {integrand} over {z} is infinite")


def mean_slope(
    average: GaussianAverage,
    integrand: sp.Expr,
    symbol: sp.Symbol,
    derivative: Callable[[sp.Expr, sp.Symbol], sp.Expr] = sp.Expr.diff,
) -> sp.Expr:
    """Differentiate the mean of `integrand` over the variable of `average` with respect to `symbol`.

    By Leibniz' rule, the result is the mean of the `derivative` between jumps, plus one term per jump: its height times
    its speed times the density at the jump. SymPy's derivative of sign is wrong for products of several signs.
    """
    z = average.variable
    # Declare all symbols real, because SymPy differentiates Abs only for real arguments.
    real = {
        s: sp.Dummy(s.name, real=True) for s in integrand.free_symbols if s.is_real is None and type(s) is sp.Symbol
    }
    symbol, back = real.get(symbol, symbol), {new: old for old, new in real.items()}
    integrand = integrand.xreplace(real)
    jumps: list[Line] = []
    for node in nodes_around(integrand, symbol):
        if isinstance(node, (sp.Heaviside, Relational, sp.sign)):
            if (line := line_of(_argument(node), z)) is None:
                raise NotImplementedError(
                    f"the derivative by {symbol} has no rule for {type(node).__name__} (in {node})"
                )
            if not any(line.has_root_of(other) for other in jumps):
                jumps.append(line)
    steps = (node for node in nodes_around(integrand, symbol) if isinstance(node, (sp.Heaviside, sp.sign)))
    held, held_back = hold(steps, real=True)
    slope = derivative(integrand.xreplace(held), symbol).xreplace(held_back)
    if slope.has(sp.Derivative, sp.DiracDelta):
        raise NotImplementedError(f"SymPy finds no derivative of {integrand} by {symbol}: {slope}")
    total = average_like(average, slope)
    for line in jumps:
        a, b = line
        height = limit(integrand, z, line, 1) - limit(integrand, z, line, -1)
        # Density of a + b z at zero, and its derivative in a, which is -a / b^2 times the density.
        density, steeper = SmoothedKink(a, b, 2, 0), SmoothedKink(a, b, 3, 0)
        total += height * sp.sign(b) * (a.diff(symbol) * density + b.diff(symbol) * b * steeper)
    return total.xreplace(back)


def limit(integrand: sp.Expr, z: sp.Symbol, line: Line, side: int) -> sp.Expr:
    """Return the limit of the integrand just above or below the root of a linear function of z."""
    sides = {}
    for node in nodes_around(integrand, z):
        if isinstance(node, (sp.Heaviside, Relational, sp.sign)):
            own = line_of(_argument(node), z)
            if own is not None and own.has_root_of(line):
                rest = (sp.S.Zero,) if isinstance(node, Relational) else node.args[1:]
                sides[node] = node.func(side * own.slope, *rest)
    return integrand.xreplace(sides).xreplace({z: line.root})
