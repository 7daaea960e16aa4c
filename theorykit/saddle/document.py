"""An action of the user's own as a person reads it, rendered from its expression."""

from collections.abc import Iterator, Mapping

from sympy import Expr, MatrixSymbol

from ..checks import checked_arguments
from ..symbolic import Block, Equation, GaussianAverage, Heading, Items, Text, as_markdown, latex
from ..symbolic.documents.document import align_environment
from .action import Action


@checked_arguments
def render_latex(action: Action, symbol_names: Mapping[Expr, str] | None = None) -> str:
    """The action and its saddle-point equations as one LaTeX `align*` environment."""
    names = symbol_names or {}
    return align_environment([_definition(action, names), *_equations(action, names)])


@checked_arguments
def render_markdown(action: Action, symbol_names: Mapping[Expr, str] | None = None) -> str:
    """The same as Markdown, with the domains of the order parameters and the symbols that S depends on.

    `symbol_names` are LaTeX names of symbols whose own do not print as they are to be read.
    """
    return as_markdown(action_blocks(action, symbol_names))


def action_blocks(action: Action, symbol_names: Mapping[Expr, str] | None = None) -> Iterator[Block]:
    """The parts of a document about an action."""
    names = symbol_names or {}
    yield Heading("Action", 1)
    yield _definition(action, names)
    yield Items(tuple(_order_parameters(action, names)))
    if action.parameters:
        listed = ", ".join(f"${latex(symbol, names)}$" for symbol in action.parameters)
        yield Text(f"Parameters: {listed}.")
    if action.has_averages:
        averages = action.expression.atoms(GaussianAverage)
        nodes = sorted({average.nodes for average in averages if not average.is_adaptive})
        rules = [f"with {' and '.join(map(str, nodes))} nodes"] if nodes else []
        rules += ["by an adaptive rule"] if any(average.is_adaptive for average in averages) else []
        yield Text(f"Angle brackets are averages over a standard normal variable, taken {' and '.join(rules)}.")
    yield Heading("Saddle-point equations")
    yield from _equations(action, names)


def _definition(action: Action, names: Mapping[Expr, str]) -> Equation:
    return Equation("S", action.latex(names))


def _order_parameters(action: Action, names: Mapping[Expr, str]) -> Iterator[str]:
    for symbol, domain in action.order_parameters.items():
        shape = ""
        if isinstance(symbol, MatrixSymbol):
            shape = f", {' x '.join(f'${latex(side, names)}$' for side in symbol.shape)}"
        yield f"order parameter ${domain.latex(latex(symbol, names))}${shape}"


def _equations(action: Action, names: Mapping[Expr, str]) -> Iterator[Equation]:
    for symbol, slope in action.equations.items():
        variable = latex(symbol, names)
        yield Equation(rf"\frac{{\partial S}}{{\partial {variable}}}", f"{latex(slope, names)} = 0")
