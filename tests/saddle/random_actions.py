"""Random actions: expressions over the vocabulary, smooth and not, over all domains and twelve orders of magnitude.

A structure is one expression whose coefficients and scales are parameters, so that it is compiled once and solved at
several random values and starts.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import sympy as sp
from sympy import Abs, Expr, Heaviside, Max, Min, Piecewise, Rational, Symbol, atan, cos, erf, exp, log, sin, sqrt, tanh

from theorykit.saddle import Action, Between, Positive, PositiveDefinite, Real, Symmetric
from theorykit.symbolic import log_cosh, log_det, positive_definite, symmetric

# coefficients at which derivatives cancel, ties meet and curvatures vanish exactly
_EXACT = (-2.0, -1.0, -0.5, 0.5, 1.0, 1.0, 2.0, 3.0)
# shares of structures with a matrix, without a confining term, and that are rescaled
_MATRIX, _OPEN, _SCALED = 0.05, 0.12, 0.6

_BOUNDED: tuple[Callable, ...] = (tanh, erf, sin, cos, atan, lambda u: exp(-(u**2)), lambda u: tanh(50 * u))
_GROWING: tuple[Callable, ...] = (
    log_cosh,
    Abs,
    lambda u: log(1 + u**2),
    lambda u: sqrt(1 + u**2),
    lambda u: Max(u, 0),
    lambda u: Max(u, -u / 2),
    lambda u: Min(u, 1),
    lambda u: Heaviside(u) * u**2,
    lambda u: sp.sign(u) * u**2,
    lambda u: Abs(u) ** Rational(3, 2),
    lambda u: Piecewise((u**2, u > 0), (u**3, True)),
    Heaviside,
    sp.sign,
)
_POWERS: tuple[Callable, ...] = (
    lambda u: u**3,
    lambda u: u**4 / 4,
    lambda u: u**2 / 2,
    lambda u: -(u**2) / 2,
    lambda u: (u + 1000) ** 2 - u**2 - 2000 * u,
    lambda u: u**4 / 4 - u**2 / 2,
    lambda u: u**6 / 6 - u**5 / 5,
    lambda u: 0.3 * u**2 - Rational(1, 3) * u**3,
)


class Structure(NamedTuple):
    """An action whose coefficients are parameters, and how it is solved.

    - `make`: makes the action, which may be refused. `twin`: its expression in numbers alone, with entries `U_i_j`.
    - `kinds`: `coefficient`, `offset` or `scale`, for each parameter. `sizes`: the scale of each order parameter.
    - `index`: the index of the wanted stationary point. `starts`: whether a start is given.
    """

    make: Callable[[], Action]
    twin: Expr
    kinds: Mapping[Symbol, str]
    sizes: Mapping[Expr, Symbol | None]
    index: int
    starts: bool


class Case(NamedTuple):
    """A structure at values of its parameters, and a start or None."""

    structure: Structure
    values: dict[str, float]
    initial: dict[str, Any] | None


def structure_of(seed: int) -> Structure:
    """The structure of a seed."""
    rng = np.random.default_rng([seed, 0])
    return _of_matrix(rng) if rng.random() < _MATRIX else _of_numbers(rng)


def cases_of(seed: int, count: int) -> list[Case]:
    """The structure of a seed at `count` values of its parameters and starts."""
    structure, rng = structure_of(seed), np.random.default_rng([seed, 1])
    return [_case(structure, rng) for _ in range(count)]


def _case(structure: Structure, rng: np.random.Generator) -> Case:
    values = {}
    for symbol, kind in structure.kinds.items():
        if kind == "scale":
            values[symbol.name] = float(10.0 ** rng.integers(-6, 7))
        elif rng.random() < 0.5:
            values[symbol.name] = float(rng.choice(_EXACT)) if kind == "coefficient" else 0.0
        else:
            values[symbol.name] = float(rng.normal())
        if symbol.is_positive:
            values[symbol.name] = abs(values[symbol.name])
    if not structure.starts:
        return Case(structure, values, None)
    initial = {}
    for symbol, size in structure.sizes.items():
        initial[symbol.name] = _start(symbol, rng, 1.0 if size is None else values.get(size.name, 1.0))
    return Case(structure, values, initial)


def _start(symbol: Expr, rng: np.random.Generator, size: float) -> Any:
    if hasattr(symbol, "shape"):
        factor = rng.normal(size=(2, 2))
        return factor @ factor.T + 0.1 * np.eye(2)
    if symbol.is_positive:
        return size * float(np.exp(rng.normal()))
    if symbol.name.startswith("b"):
        low, high = _EDGES[symbol.name[:2]]
        return low + (high - low) * float(rng.uniform(0.02, 0.98))
    return 0.0 if rng.random() < 0.3 else size * float(rng.normal())


_EDGES = {"ba": (0.0, 1.0), "bb": (-1.0, 1.0), "bc": (-2.0, 3.0), "bd": (0.0, 1e-6), "be": (-1e6, 1e6)}


class _Parameters:
    def __init__(self):
        self.kinds: dict[Symbol, str] = {}

    def __call__(self, kind: str, positive: bool = False) -> Symbol:
        symbol = Symbol(f"p{len(self.kinds)}", **({"positive": True} if positive else {"real": True}))
        self.kinds[symbol] = kind
        return symbol


def _of_numbers(rng: np.random.Generator) -> Structure:
    parameter, domains, sizes, free = _Parameters(), {}, {}, []
    expression = sp.S.Zero
    is_scaled, is_open = rng.random() < _SCALED, rng.random() < _OPEN
    for i in range(rng.choice([1, 2, 3, 4], p=[0.45, 0.3, 0.15, 0.1])):
        size = parameter("scale", positive=True) if is_scaled and rng.random() < 0.6 else None
        kind = rng.choice(["real", "positive", "between"], p=[0.65, 0.18, 0.17])
        if kind == "between":
            edges = rng.choice(list(_EDGES))
            low, high = _EDGES[edges]
            symbol, size = Symbol(f"{edges}{i}", real=True), None
            domains[symbol] = Between(low, high)
            u = (symbol - low) / (high - low)
        elif kind == "positive":
            symbol = Symbol(f"s{i}", positive=True)
            domains[symbol], u = Positive(), symbol / (size or 1)
        else:
            symbol = Symbol(f"m{i}", real=True)
            domains[symbol], u = Real(), symbol / (size or 1)
        sizes[symbol] = size
        free.append(u)
        if not (is_open and i == 0):
            expression += _confining(rng, kind, u, parameter)
    index = 0
    if len(free) > 1 and rng.random() < 0.25:
        # a min-max: the last one is maximised
        index, last = 1, free[-1]
        expression += -2 * last**2 + last * free[0]
    for _ in range(rng.integers(1, 4)):
        expression += _term(rng, free, parameter)
    # no order parameter is left out
    expression += sum(parameter("coefficient") * u for u in free if not expression.has(*u.free_symbols & set(domains)))
    scale = sp.S.One
    if is_scaled and rng.random() < 0.5:
        factor = parameter("scale", positive=True)
        expression, scale = factor * expression, factor if rng.random() < 0.5 else scale
    make = lambda: Action(expression, domains, list(parameter.kinds), scale)  # noqa: E731
    return Structure(make, expression, parameter.kinds, sizes, index, bool(rng.random() < 0.8))


def _confining(rng: np.random.Generator, kind: str, u: Expr, parameter: _Parameters) -> Expr:
    weight = parameter("coefficient", positive=True) if rng.random() < 0.5 else sp.S.One
    if kind == "positive":
        forms = [u - log(u), u**2 / 2 - log(u) / 2, u + 1 / u, log(u) ** 2, u * log(u), u**2 / 2]
    elif kind == "between":
        forms = [-log(u) - log(1 - u), u * log(u) + (1 - u) * log(1 - u), 4 * (u - Rational(1, 2)) ** 2, u**2 / 2]
    else:
        forms = [u**2 / 2, u**2 / 2, u**4 / 4, u**2 / 2 + u**4 / 4, log_cosh(u), sqrt(1 + u**2), u**6 / 6]
    return weight * forms[rng.integers(len(forms))]


def _linear(rng: np.random.Generator, free: list[Expr], parameter: _Parameters) -> Expr:
    chosen = rng.choice(len(free), size=min(len(free), int(rng.integers(1, 3))), replace=False)
    weights = [sp.Integer(1), sp.Integer(-2), Rational(1, 3), sp.Float(0.7), None]
    drawn = [weights[rng.integers(len(weights))] for _ in chosen]
    line = sum((parameter("coefficient") if w is None else w) * free[i] for w, i in zip(drawn, chosen, strict=True))
    return line + parameter("offset") if rng.random() < 0.5 else line


def _term(rng: np.random.Generator, free: list[Expr], parameter: _Parameters) -> Expr:
    def some(functions: tuple[Callable, ...]) -> Callable:
        return functions[rng.integers(len(functions))]

    line = _linear(rng, free, parameter)
    drawn = rng.random()
    if drawn < 0.2:
        shape = some(_POWERS)(line)
    elif drawn < 0.45:
        shape = some(_GROWING)(line)
    elif drawn < 0.6:
        shape = some(_BOUNDED)(line)
    elif drawn < 0.7:
        shape = some(_BOUNDED)(some(_GROWING)(line))
    elif drawn < 0.78:
        shape = some(_GROWING)(some(_BOUNDED)(line))
    elif drawn < 0.84:
        shape = some(_BOUNDED)(line) * some(_BOUNDED)(_linear(rng, free, parameter))
    elif drawn < 0.9:
        shape = Max(line, _linear(rng, free, parameter)) if rng.random() < 0.5 else exp(tanh(line))
    elif drawn < 0.95:
        shape = log(2 + some(_BOUNDED[:4])(line))
    else:
        shape = line * _linear(rng, free, parameter)
    return (parameter("coefficient") if rng.random() < 0.7 else sp.S.One) * shape


def _of_matrix(rng: np.random.Generator) -> Structure:
    parameter = _Parameters()
    weight, field = parameter("coefficient", positive=True), parameter("coefficient")
    is_definite = rng.random() < 0.6
    matrix = positive_definite("U", 2) if is_definite else symmetric("U", 2)
    a, b, c = (Symbol(f"U_{entry}", real=True) for entry in ("0_0", "1_0", "1_1"))
    traced, squared = a + c, a**2 + 2 * b**2 + c**2
    of_trace = [tanh, log_cosh, lambda u: u**2 / 4, lambda u: Max(u, 2), sin][rng.integers(5)]
    if is_definite:
        of_matrix = weight * sp.Trace(matrix) - log_det(matrix)
        twin = weight * traced - log(a * c - b**2)
    else:
        of_matrix = weight * sp.Trace(matrix * matrix) / 2
        twin = weight * squared / 2
    expression = of_matrix + field * of_trace(sp.Trace(matrix))
    sizes: dict[Expr, Symbol | None] = {matrix: None}
    domains = {matrix: PositiveDefinite() if is_definite else Symmetric()}
    make = lambda: Action(expression, domains, list(parameter.kinds))  # noqa: E731
    return Structure(make, twin + field * of_trace(traced), parameter.kinds, sizes, 0, True)
