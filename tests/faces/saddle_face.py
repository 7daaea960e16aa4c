"""What the parameters of the public callables on actions of the user's own are."""

from functools import cache

from sympy import Symbol, cosh, log

from theorykit import saddle

from .engine import Face
from .values import Kind, flag, instance, number, whole_number

m, beta = Symbol("m", real=True), Symbol("beta", positive=True)
WRONG_VALUES = {
    "of a symbol that is not declared": {Symbol("g"): 1.0},
    "not a number": {beta: "1"},
    "with a NaN": {beta: float("nan")},
    "of a matrix": {beta: [[1.0]]},
    "infinite": {beta: float("inf")},
    "complex": {beta: 1.5 + 0j},
    "not what its symbol is declared to be": {beta: -1.5},
    "given twice": {beta: 1.5, "beta": 1.5},
}
WRONG_STARTS = {
    "of a symbol that is not declared": {Symbol("g"): 1.0},
    "not a number": {m: "1"},
    "with a NaN": {m: float("nan")},
    "of a matrix": {m: [[1.0]]},
    "of none": {},
    "infinite": {m: float("inf")},
    "out of its domain": {m: 1.5},
    "at the edge of its domain": {m: -1.0},
    "given twice": {m: 1.0, "m": 0.5},
}
DOMAINS = ("Between", "Positive", "PositiveDefinite", "Real", "Symmetric")
METHODS = (
    "check_symbol",
    "size",
    "value",
    "coordinates",
    "moved",
    "edge",
    "misfit",
    "towards",
    "requirements",
    "all_requirements",
    "latex",
)


@cache
def action():
    return saddle.Action(m**2 / 2 - log(2 * cosh(beta * m)) / beta, {m: saddle.Between(-1, 1)}, [beta])


@cache
def solution():
    return saddle.minimise(action(), {beta: 1.5}, initial={m: 0.9})


@cache
def branch():
    return saddle.follow(action(), {beta: 1.5}, solution(), beta, (1.4, 1.6))


def names():
    return Kind(lambda: {m: "m"}, {"None": "no names"}, also=lambda: {"of numbers": {m: 1}})


FACE = Face(
    saddle,
    {
        "expression": Kind(
            lambda: m**2 * beta,
            also=lambda: {"with a symbol that is not declared": m * Symbol("g"), "without the order parameter": beta},
            called=("m", "g", "beta"),
        ),
        "order_parameters": Kind(
            lambda: {m: saddle.Real()},
            also=lambda: {"of numbers": {m: 1}, "of text": {"m": saddle.Real()}, "of none": {}},
            called=("domain",),
        ),
        "parameters": Kind(
            lambda: [beta],
            also=lambda: {"of text": ["beta"], "the order parameter": [beta, m], "none": []},
            called=("beta", "m"),
        ),
        "scale": Kind(
            lambda: beta,
            {name: "a number" for name in ("1", "1.5", "-0.5", "-1", "0", "2**64", "10**400")},
        ),
        "derivation": Kind(lambda: None, {"None": "no steps"}),
        "nodes": whole_number(32, least=2),
        "symbol_names": names(),
        "low": number(-1.0, most=1.9),
        "high": number(2.0, above=-1.0),
        "action": instance(action, also=lambda: {"its expression": action().expression}),
        "values": Kind(lambda: {beta: 1.5}, also=lambda: WRONG_VALUES),
        "initial": Kind(lambda: {m: 0.9}, {"None": "random starts"}, also=lambda: WRONG_STARTS),
        "tolerance": number(1e-9, above=0.0),
        "max_steps": whole_number(100, least=1),
        "throw": flag(),
        "index": whole_number(0, least=0),
        "starts": whole_number(4, least=1),
        "seed": whole_number(0, least=0),
        "solution": instance(solution),
        "parameter": Kind(lambda: beta, also=lambda: {"an order parameter": m, "its name": "m"}),
        "bounds": Kind(
            lambda: (1.4, 1.6),
            also=lambda: {
                "the higher first": (1.6, 1.4),
                "one": (1.5,),
                "of text": ("1", "2"),
                "not around": (2.0, 3.0),
            },
        ),
        "direction": Kind(lambda: 1, {"1": "towards larger", "-1": "towards smaller"}),
        "largest_step": number(0.05, above=0.0),
        "most_points": whole_number(3, least=1),
        "SolutionBranch.near.value": number(1.5),
    },
    given={name: ("values",) for name in ("minimise", "stationary", "search")}
    | {"Action": ("parameters",), "follow": ("values", "most_points")},
    instances={"Action": action, "Solution": solution, "SolutionBranch": branch},
    records={
        "Solution": "minimise and stationary make it",
        "SolutionBranch": "follow makes it",
    },
    untried={
        f"{domain}.{method}": "called by the room, with what it has checked" for domain in DOMAINS for method in METHODS
    },
)
