"""Variables that an expression binds: of a Gaussian average, of a function of entries or of eigenvalues.

None is equal to a symbol that is made elsewhere, whatever its name, so that nothing that is put into an expression is
taken for its variable.
"""

from collections.abc import Iterator
from itertools import chain, count

from sympy import Basic, Dummy, Expr, Symbol

from ..checks import checked_text


class BoundVariable(Symbol):
    """A real variable that stands for nothing outside of the expression that binds it."""

    def __new__(cls, name, **assumptions):
        # SymPy hands its assumptions over again when it makes a copy
        return super().__new__(cls, checked_text("name", name), real=True)

    @classmethod
    def class_key(cls):
        """Written in the order of its name, as any symbol."""
        return Symbol.class_key()

    def __getnewargs_ex__(self):
        return ((self.name,), {})


class NormalVariable(BoundVariable):
    """The variable of a Gaussian average, of mean zero and variance one."""


class EntryVariable(BoundVariable):
    """The variable of a function of numbers: of a matrix's entries, or of its eigenvalues."""


def new_variable(kind: type[BoundVariable], name: str, expression: Expr) -> BoundVariable:
    """A variable of this name if it does not occur in `expression`, else of the name with a number."""
    taken = {symbol.name for symbol in expression.atoms(kind)}
    names = chain([name], (f"{name}_{number}" for number in count(1)))
    return kind(next(each for each in names if each not in taken))


def matrix_scalars(expression: Basic) -> Iterator[Expr]:
    """The numbers in a scalar expression that are made of matrices, such as traces, and stand in no other."""
    if any(getattr(argument, "is_Matrix", False) for argument in expression.args):
        yield expression
    else:
        for argument in expression.args:
            yield from matrix_scalars(argument)


def with_value(expression: Expr, variable: BoundVariable, value: Expr) -> Expr:
    """A scalar expression with a value for the variable, not for one of its name that a matrix in it binds."""
    held = {node: Dummy() for node in matrix_scalars(expression) if variable not in node.free_symbols}
    back = {number: node for node, number in held.items()}
    return expression.xreplace(held).xreplace({variable: value}).xreplace(back)


def check_matrices_are_fixed(expression: Expr) -> None:
    """Raise `NotImplementedError` where a matrix in a scalar expression depends on a variable that is bound outside."""
    for node in matrix_scalars(expression):
        for variable in bound_outside(node):
            raise NotImplementedError(
                f"{node} is made of a matrix that depends on {variable}, over which an average or a function is taken; "
                "only matrices that do not depend on it are supported there"
            )


def bound_outside(expression: Expr) -> list[BoundVariable]:
    """The variables in an expression that something around it binds, by name."""
    found = (symbol for symbol in expression.free_symbols if isinstance(symbol, BoundVariable))
    return sorted(found, key=lambda symbol: symbol.name)
