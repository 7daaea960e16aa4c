"""The parameters of actions that users write."""

import math

import matplotlib.pyplot as plt
from sympy import MatrixSymbol, Symbol, cosh, log

from theorykit import saddle

from .engine import Face
from .values import NONE, Kind, number, of, whole_number

m, beta, g = Symbol("m", real=True), Symbol("beta", positive=True), Symbol("g")
ACTION = saddle.Action(m**2 / 2 - log(2 * cosh(beta * m)) / beta, {m: saddle.Between(-1, 1)}, [beta])
FIELD = Symbol("h", real=True)
IN_A_FIELD = saddle.Action(m**4 / 4 - beta * m**2 / 2 - FIELD * m, {m: saddle.Real()}, [beta, FIELD])
SOLUTION = saddle.minimise(ACTION, {beta: 1.5}, initial={m: 0.9})


def values(right, symbol, **wrong):
    """Numbers by symbol."""
    return of(
        {symbol: right},
        of_another_symbol={g: 1.0},
        with_nan={symbol: math.nan},
        of_a_matrix={symbol: [[1.0]]},
        infinite={symbol: math.inf},
        given_twice={symbol: right, symbol.name: right},
        **wrong,
    )


INITIAL = values(0.9, m, of_none={}, out_of_its_domain={m: 1.5}, at_the_edge_of_its_domain={m: -1.0})
FACE = Face(
    saddle,
    {
        "expression": of(m**2 * beta, "m", "g", "beta", undeclared_symbol=m * g, without_order_parameter=beta),
        "order_parameters": of(
            {m: saddle.Real()}, "domain", of_numbers={m: 1}, of_text={"m": saddle.Real()}, of_none={}
        ),
        "parameters": of([beta], "beta", "m", order_parameter=[beta, m]),
        "scale": Kind(lambda: beta, ("1", "1.5", "-0.5", "-1", "0", "2**64", "10**400")),
        "derivation": of(None),
        "nodes": whole_number(32, least=2),
        "symbol_names": of({m: "m"}, admits=NONE),
        "low": number(-1.0, most=1.9),
        "high": number(2.0, above=-1.0),
        "action": of(ACTION, expression=ACTION.expression),
        "values": values(1.5, beta, complex={beta: 1.5 + 0j}, not_as_declared={beta: -1.5}),
        "initial": of(INITIAL, admits=NONE),
        "index": whole_number(0, least=0),
        "solution": SOLUTION,
        "transition.solution transition.other": SOLUTION,
        "phase_diagram.action": IN_A_FIELD,
        "phase_diagram.values": of({}, of_another_symbol={g: 1.0}),
        "ranges": of(
            {FIELD: (-1.0, 1.0), beta: (0.1, 1.0)},
            one={beta: (0.1, 1.0)},
            higher_first={FIELD: (1.0, -1.0), beta: (0.1, 1.0)},
        ),
        "scans": 1,
        "landscape.values": of(
            {m: (-0.9, 0.9), beta: 1.5}, without_range={m: 0.1, beta: 1.5}, of_another_symbol={g: 1.0}
        ),
        "Action.__call__.values": of({m: 0.5, beta: 1.5}, "m", without_m={beta: 1.5}, of_another_symbol={g: 1.0}),
        "Action.__call__.by_name": {},
        "symbols": of(m, parameter=beta, another_symbol=g, of_a_matrix=MatrixSymbol("X", 2, 2)),
        "Action.plot_landscape.values": of({m: (-0.9, 0.9), beta: 1.5}, without_range={m: 0.1, beta: 1.5}),
        "Solution.plot_landscape.values": of({m: (-0.9, 0.9)}, without_range={m: 0.1}),
        "points": 11,
        "axes": Kind(lambda: plt.figure().subplots()),
        "parameter": of(beta, order_parameter=m, name="m"),
        "bounds": of((1.4, 1.6), higher_first=(1.6, 1.4), one=(1.5,), not_around=(2.0, 3.0)),
        "direction": of(1, admits=("-1",)),
        "most_points": 3,
        "progress": False,
        "value": number(1.5),
    },
    given={
        "minimise stationary": ("values",),
        "search": ("values", "progress"),
        "Action": ("parameters",),
        "Action.eliminate": ("symbols",),
        "follow": ("values", "most_points", "progress"),
    },
    instances={
        "Action": ACTION,
        "Solution": SOLUTION,
        "PhaseDiagram": lambda: saddle.PhaseDiagram((), (), {"h": (-1.0, 1.0), "beta": (0.1, 1.0)}),
        "SolutionBranch": lambda: saddle.follow(ACTION, {beta: 1.5}, SOLUTION, beta, (1.4, 1.6), progress=False),
    },
    made="Solution SolutionBranch PhaseBoundary PhaseDiagram Transition",
    examples={
        "transition phase_diagram": "tests.saddle.test_boundaries follows them",
        "Action.eliminate": "tests.saddle.test_elimination eliminates them",
    },
    untried={"Between.* Positive.* PositiveDefinite.* Real.* Symmetric.*": "called by the saddle package"},
)
