"""Averages over standard normal variables, as atoms: their integrals are left to quadrature.

Stage 1 of `expressions -> lower -> Program -> emit`. `gaussian_average` takes what has a closed form out of them.
"""

from collections.abc import Mapping

from sympy import Expr, Integer, S, Symbol

from ..arguments import checked_instance, checked_whole_number
from .arguments import checked_expression, checked_scalar
from .bound_variables import NormalVariable, matrix_scalars, new_variable

NODES = 64
# beyond it the rule costs more than it gains
MOST_NODES = 10_000


class GaussianAverage(Expr):
    r"""The mean of `integrand` over a standard normal `variable`, by Gauss-Hermite quadrature with `nodes` nodes.

    The variable is bound: it is a variable of its own, equal to no symbol elsewhere, and no free symbol of the average.
    An average over two variables is an average of an average. Its error falls exponentially with the number of nodes
    where the integrand is smooth, and as their inverse where it has a kink; see `theorykit.codegen.quadrature_error`.
    """

    is_commutative = True

    def __new__(cls, integrand, variable, nodes=NODES):
        integrand = checked_scalar("integrand", integrand)
        checked_instance("variable", variable, Symbol)
        nodes = Integer(checked_whole_number("nodes", nodes, least=1, most=MOST_NODES))
        bound_inside = {average.variable for average in integrand.atoms(GaussianAverage)}
        if not isinstance(variable, NormalVariable) or variable in bound_inside:
            own = new_variable(NormalVariable, variable.name, integrand)
            integrand, variable = integrand.xreplace({variable: own}), own
        return super().__new__(cls, integrand, variable, nodes)

    @property
    def integrand(self):
        """The expression whose mean it is."""
        return self.args[0]

    @property
    def variable(self):
        """The standard normal variable."""
        return self.args[1]

    @property
    def nodes(self) -> int:
        """The number of nodes of the quadrature."""
        return int(self.args[2])

    @property
    def free_symbols(self):
        """The symbols of the integrand without the variable."""
        return self.integrand.free_symbols - {self.variable}

    @property
    def bound_symbols(self):
        """The variable."""
        return [self.variable]

    def _renamed(self):
        """Itself with another variable, where what is put into it has this one."""
        own = new_variable(NormalVariable, self.variable.name, self.integrand)
        return self.func(self.integrand.xreplace({self.variable: own}), own, self.nodes)

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
        if symbol == self.variable:
            return S.Zero
        for node in matrix_scalars(self.integrand):
            if symbol in node.free_symbols:
                raise NotImplementedError(f"SymPy cannot differentiate {node}: use theorykit.symbolic.gradient")
        return average_like(self, self.integrand.diff(symbol))

    def _eval_is_real(self):
        return self.integrand.is_real or None

    def _eval_is_positive(self):
        return self.integrand.is_positive or None

    def _eval_is_negative(self):
        return self.integrand.is_negative or None


def average_over(integrand: Expr, variable: Symbol, nodes: int) -> Expr:
    """The average by quadrature, what is constant in front."""
    constant, rest = integrand.as_independent(variable, as_Add=False)
    return constant * GaussianAverage(rest, variable, nodes) if rest.has_free(variable) else integrand


def average_like(average: GaussianAverage, integrand: Expr) -> Expr:
    """The average of another function of the variable of `average`, by its quadrature."""
    return average_over(integrand, average.variable, average.nodes)


def with_nodes(expression: Expr, nodes: int) -> Expr:
    """`expression` with all its Gaussian averages by quadrature with `nodes` nodes."""
    expression = checked_expression("expression", expression)
    nodes = checked_whole_number("nodes", nodes, least=1, most=MOST_NODES)
    return _with_nodes(expression, lambda average: nodes)


def with_more_nodes(expression: Expr) -> tuple[Expr, Expr]:
    """`expression` with 2n nodes in every Gaussian average that has n, and with 2n + 1.

    What they differ by from `expression` tells the error of its quadratures. With a kink in an integrand that error
    goes up and down with where the nodes lie, which is otherwise for odd numbers of them; so both are needed.
    """
    expression = checked_expression("expression", expression)
    return tuple(_with_nodes(expression, lambda average, odd=odd: 2 * average.nodes + odd) for odd in (0, 1))


def _with_nodes(expression, nodes_of):
    averages = expression.atoms(GaussianAverage)
    return expression.xreplace(
        {
            average: GaussianAverage(_with_nodes(average.integrand, nodes_of), average.variable, nodes_of(average))
            for average in averages
        }
    )
