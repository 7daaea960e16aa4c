"""How far off the quadrature of Gaussian averages is, from the same expression with more nodes."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from sympy import Expr, MatrixSymbol

from ..arguments import by_name, checked_instance
from ..precision import require_float64
from ..symbolic.averages import with_more_nodes
from .emission import compile_expressions
from .names import symbols_of
from .sizes import bound_sizes


def quadrature_error(expression: Expr, values: Mapping[str | Expr, Any]) -> np.ndarray | float:
    """An estimate of the error that the quadrature of its Gaussian averages makes in the value of `expression`.

    It is the larger one of the differences to the value with 2n and with 2n + 1 nodes in every average that has n, of
    the shape of the value; zero without averages. `values` gives numbers and arrays by symbol or by name. The true
    error was at most twice the estimate for integrands that are smooth, have a kink, or jump.

        >>> from sympy import symbols
        >>> from theorykit.codegen import quadrature_error
        >>> from theorykit.symbolic import GaussianAverage
        >>> z = symbols("z")
        >>> float(quadrature_error(GaussianAverage(z**2, z), {})) < 1e-12
        True
    """
    require_float64()
    checked_instance("expression", expression, Expr, "a SymPy expression")
    named = by_name("values", values, "numbers and arrays by name")
    given = {name: jnp.asarray(value) for name, value in named.items()}
    symbols = sorted(symbols_of(expression), key=lambda symbol: symbol.name)
    arguments = [symbol for symbol in symbols if isinstance(symbol, MatrixSymbol) or symbol.name in given]
    if missing := [symbol.name for symbol in symbols if symbol not in {*arguments, *bound_sizes(arguments)}]:
        raise ValueError(f"values has none for {', '.join(missing)}, which the expression has")
    finer = dict(zip(("fine", "finer"), with_more_nodes(expression), strict=True))
    found = compile_expressions("value", {"coarse": expression, **finer}, arguments).call_from(given)
    coarse = np.asarray(found["coarse"])
    return np.maximum(*(np.abs(np.asarray(found[name]) - coarse) for name in finer))
