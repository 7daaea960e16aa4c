"""Adapter of the frozen numbers: from instances as plain data to results as plain data, through theorykit.

`tests/data/frozen` holds instances and the results that theorykit gave for them before it was rebuilt. Only this file
may be edited when names or signatures of the package change. Instances, results and tolerances may not.

Each kind is a function of an instance, `spec` (JSON: numbers, texts, lists) and `arrays` (NumPy, by name), that returns
arrays, numbers and texts by name.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from scipy.interpolate import CubicSpline
from sympy.core.symbol import Str
from sympy.functions.elementary.piecewise import ExprCondPair

from theorykit import bpkr, saddle, symbolic
from theorykit.codegen import interpret
from theorykit.saddle.bound_action import bind
from theorykit.symbolic import atoms, averages, functions, matrix_functions
from theorykit.theories import empirical_risk, in_context, learned_attention

from .saddle.confirmation import claim_of, error_of_action, objection

Results = Mapping[str, Any]
KINDS: dict[str, Callable[[dict, dict[str, np.ndarray]], Results]] = {}


def kind(function: Callable) -> Callable:
    """Register a function under its name."""
    KINDS[function.__name__] = function
    return function


# ---- Theory 1 ----


# ---- Own actions and theories ----

# What names mean in the `srepr` of an expression.
NAMES = {
    **vars(sp),
    "ExprCondPair": ExprCondPair,
    "Str": Str,
    "AssumedPositiveDefinite": matrix_functions.AssumedPositiveDefinite,
    "GaussianAverage": averages.GaussianAverage,
    "LogCosh": functions.LogCosh,
    "LogDet": atoms.LogDet,
    "LogNormalCDF": functions.LogNormalCDF,
    "NormalVariable": atoms.NormalVariable,
    "PositiveDefiniteSymbol": atoms.PositiveDefiniteSymbol,
    "SymmetricSymbol": atoms.SymmetricSymbol,
    # functions of formulas
    "assume_positive_definite": symbolic.assume_positive_definite,
    "gaussian_average": symbolic.gaussian_average,
    "inverse": symbolic.inverse,
    "log_cosh": symbolic.log_cosh,
    "log_det": symbolic.log_det,
    "log_normal_cdf": symbolic.log_normal_cdf,
    "positive_definite": symbolic.positive_definite,
    "symmetric": symbolic.symmetric,
}
CONVERGED, NOT_CONVERGED, REFUSED = 0, 1, 2


def _parse(text: str, symbols: Mapping[str, str] = MappingProxyType({})) -> sp.Basic:
    """Return the expression of a text: the `srepr`, or a formula with these symbols, each given as a text, too."""
    names = dict(NAMES)
    for name, symbol in symbols.items():
        names[name] = eval(symbol, names)
    return eval(text, names)


def _action(spec: dict) -> saddle.Action:
    """Return the action with `expression`, `order_parameters` (symbols with domains), `parameters` and `scale`."""
    of = partial(_parse, symbols=spec.get("symbols", {}))
    domains = {
        of(symbol): getattr(saddle, domain)(*bounds) for symbol, (domain, *bounds) in spec["order_parameters"].items()
    }
    parameters = [of(symbol) for symbol in spec["parameters"]]
    return saddle.Action(of(spec["expression"]), domains, parameters, of(spec.get("scale", "Integer(1)")))


def _solve(action: saddle.Action, values: dict, index: int, initial: dict | None) -> saddle.Solution:
    """Solve at a start; matrices of the start may be lists."""
    if initial is not None:
        initial = {name: np.array(at) if isinstance(at, list) else at for name, at in initial.items()}
    if index:
        return saddle.stationary(action, values, index=index, initial=initial)
    return saddle.minimise(action, values, initial=initial)


def _numbers(values: Iterable) -> np.ndarray:
    """Return numbers and arrays as one array."""
    return np.concatenate([np.ravel(value) for value in values])


def _random(spec: dict, given: dict[str, np.ndarray], row: int) -> tuple[dict, dict | None]:
    """Return the values of the parameters and the start of one solve of a random action."""
    parameters = [_parse(symbol).name for symbol in spec["parameters"]]
    values = dict(zip(parameters, given["values"][row].tolist(), strict=True))
    if "starts" not in given:
        return values, None
    initial, start = {}, given["starts"][row]
    for symbol in map(_parse, spec["order_parameters"]):
        shape = tuple(map(int, getattr(symbol, "shape", ())))
        count = int(np.prod(shape))
        initial[symbol.name], start = start[:count].reshape(shape) if shape else float(start[0]), start[count:]
    return values, initial


@kind
def random_action(spec: dict, given: dict[str, np.ndarray]) -> Results:
    """Solve one action at several values and starts; also return why a solution is wrong, in 50 digits, if asked."""
    action = _action(spec)
    twin = _parse(spec["twin"]) if "twin" in spec else action.expression
    size = sum(int(np.prod(getattr(symbol, "shape", ()))) for symbol in action.order_parameters)
    outcomes, numbers, objections = [], [], []
    for row in range(len(given["values"])):
        values, initial = _random(spec, given, row)
        outcomes.append(REFUSED)
        numbers.append(np.full(2 + size, np.nan))
        objections.append("")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            try:
                found = _solve(action, values, spec["index"], initial)
            except ValueError:
                continue
        outcomes[-1] = CONVERGED if found.converged else NOT_CONVERGED
        numbers[-1] = _numbers([found.action, found.action_error, *(found[s] for s in action.order_parameters)])
        if spec.get("confirm", False) and found.converged:
            claim = claim_of(twin, values, found, bind(found.of, values, initial).units)
            off = 0.0 if claim.edges else error_of_action(claim)
            objections[-1] = objection(claim) or (f"S is off by {off:.3g} of its stated errors" if off > 1 else "")
    numbers = np.array(numbers)
    results = {"outcome": np.array(outcomes, np.int8), "S": numbers[:, 0], "S_error": numbers[:, 1]}
    results["order_parameters"] = numbers[:, 2:]
    return results | ({"objections": objections} if "confirm" in spec else {})


@kind
def stationary_points(spec: dict, given: dict[str, np.ndarray]) -> Results:
    """Solve an action at several values of its parameters, in one batch; `given` has one axis of points."""
    action = _action(spec)
    solve = lambda values: _solve(action, values, spec["index"], spec["initial"])  # noqa: E731
    found = jax.jit(jax.vmap(solve))(given)
    results = {"S": found.action, "S_error": found.action_error, "converged": found.converged}
    return results | dict(found.order_parameters)


def _solution(action: saddle.Action, values: dict, start: dict) -> saddle.Solution:
    return _solve(action, values, start["index"], start["initial"])


def _places(order_parameters: Iterable[Mapping]) -> np.ndarray:
    return np.array([_numbers(each.values()) for each in order_parameters])


@kind
def branch(spec: dict, given: dict[str, np.ndarray]) -> Results:
    """Follow a branch: its turns, the indices along it, and the solutions at one value of the parameter."""
    action, name, values = _action(spec), spec["parameter"], spec["values"]
    start = _solution(action, values, spec["start"])
    found = saddle.follow(
        action, values, start, name, spec["bounds"], direction=spec["direction"], progress=False, **spec["options"]
    )
    near = found.near(spec["at"])
    solved = [
        _solution(action, {**values, name: spec["at"]}, {"index": index, "initial": initial})
        for index, initial in zip(spec["indices"], near, strict=True)
    ]
    index = found.index
    return {
        "kinds": ", ".join(turn.kind for turn in found.turns),
        "turns": np.array([turn.parameter for turn in found.turns]),
        "turning_points": _places(turn.order_parameters for turn in found.turns),
        "indices": index[np.append(True, np.diff(index) != 0)],
        "S": np.array([each.action for each in solved]),
        "solutions": _places(each.order_parameters for each in solved),
    }


@kind
def transition(spec: dict, given: dict[str, np.ndarray]) -> Results:
    action, values = _action(spec), spec["values"]
    both = [_solution(action, values, start) for start in spec["starts"]]
    found = saddle.transition(*both, spec["parameter"], spec["bounds"])
    results = {"kind": found.kind, "value": found.value, "error": found.error}
    solutions = _places(each.order_parameters for each in found.solutions)
    return results | {"S": np.array([each.action for each in found.solutions]), "solutions": solutions}


@kind
def phase_diagram(spec: dict, given: dict[str, np.ndarray]) -> Results:
    """Return critical points, and the lines at one value of a parameter.

    `cuts` has kinds of lines, a parameter and a value: the other parameter there, and whether solutions are stable.
    """
    names = list(spec["ranges"])
    found = saddle.phase_diagram(_action(spec), spec["ranges"], progress=False, **spec["options"])
    points = sorted(found.critical_points, key=lambda each: [float(each.parameters[name][0]) for name in names])
    results = {
        "lines": ", ".join(sorted({line.kind for line in found.lines})),
        "critical_kinds": ", ".join(each.kind for each in points),
        "critical_points": np.array([[each.parameters[name][0] for name in names] for each in points]),
    }
    for number, (line_kind, name, value) in enumerate(spec["cuts"]):
        (other,) = set(names) - {name}
        lines = [line for line in found.lines if line.kind == line_kind]
        cuts = sorted(cut for line in lines for cut in _cuts(line, name, other, value))
        results[f"cut_{number}"] = np.array([at for at, _ in cuts])
        results[f"stable_{number}"] = np.array([stable for _, stable in cuts], bool)
    return results


def _cuts(line: saddle.PhaseBoundary, name: str, other: str, value: float) -> Iterable[tuple[float, bool]]:
    """Interpolate a line where it has this value of one parameter: the other parameter, and whether it is stable."""
    points = np.stack([np.asarray(line.parameters[each]) for each in (name, other)], axis=1)
    length = np.append(0.0, np.cumsum(np.hypot(*np.diff(points, axis=0).T)))
    keep = np.append(True, np.diff(length) > 0)
    points, length, stable = points[keep], length[keep], np.asarray(line.stable)[keep]
    spline = CubicSpline(length, points - [value, 0])
    for at in CubicSpline(length, points[:, 0] - value).roots(extrapolate=False):
        yield float(spline(at)[1]), bool(stable[np.argmin(np.abs(length - at))])


@kind
def search(spec: dict, given: dict[str, np.ndarray]) -> Results:
    """Search stationary points of an index, and sort them by S and then by their order parameters."""
    values = {**spec["values"], **given}
    found = saddle.search(_action(spec), values, index=spec["index"], **spec["options"])
    rows = [_numbers([each.action, *each.order_parameters.values()]) for each in found]
    return {"solutions": np.array(sorted(rows, key=lambda row: row.round(7).tolist()))}


@kind
def elimination(spec: dict, given: dict[str, np.ndarray]) -> Results:
    """Eliminate order parameters: the expressions that replace them, and S at the given values, entry by entry."""
    action = _action(spec).eliminate(*spec["eliminated"])
    definitions = {symbol.name: each for step in action.derivation.steps for symbol, each in step.definitions}
    S = [interpret(action.expression, dict(zip(given, point, strict=True))) for point in zip(*given.values())]
    results = {"S": np.array(S, float), "expression": sp.srepr(action.expression)}
    return results | {name: sp.srepr(each) for name, each in definitions.items()}


@kind
def fixed_point(spec: dict, given: dict[str, np.ndarray]) -> Results:
    """Evaluate the map of order parameters that solves the saddle-point equations, at the given values."""
    points = [dict(zip(given, point, strict=True)) for point in zip(*given.values(), strict=True)]
    updates = _action(spec).fixed_point
    return {symbol.name: np.array([interpret(each, at) for at in points]) for symbol, each in updates.items()}


@kind
def derivatives(spec: dict, given: dict[str, np.ndarray]) -> Results:
    """Differentiate S and the order parameters in the parameters, once and twice if `order` is two."""
    action = _action(spec)

    def solve(values: dict) -> jax.Array:
        found = _solution(action, values, spec["start"])
        return jnp.concatenate([jnp.ravel(each) for each in (found.action, *found.order_parameters.values())])

    def flat(tree: dict, rows: int) -> np.ndarray:
        return np.concatenate([np.reshape(each, (rows, -1)) for each in jax.tree.leaves(tree)], axis=1)

    slope = jax.jacfwd(solve)
    first = flat(jax.jit(slope)(given), len(solve(given)))
    if spec["order"] == 1:
        return {"first": first}
    return {"first": first, "second": flat(jax.jit(jax.jacfwd(slope))(given), len(first))}


@kind
def learned_attention_errors(spec: dict, given: dict[str, np.ndarray]) -> Results:
    found = []
    for alpha, rho, tokens in zip(*(given[key].tolist() for key in ("alpha", "rho", "tokens")), strict=True):
        solution = learned_attention.solve(alpha, rho, tokens, output=spec["output"])
        error = learned_attention.mmse(alpha, rho, tokens, output=spec["output"])
        found.append(_numbers([error, solution.action, *solution.order_parameters.values()]))
    found = np.array(found)
    return {"mmse": found[:, 0], "S": found[:, 1], "order_parameters": found[:, 2:]}


@kind
def in_context_errors(spec: dict, given: dict[str, np.ndarray]) -> Results:
    return in_context.errors(**given)._asdict()


@kind
def empirical_risk_students(spec: dict, given: dict[str, np.ndarray]) -> Results:
    labels, (x, y) = spec["labels"], sp.symbols("x y", real=True)
    action, results = empirical_risk.action(_parse(spec["loss"]), x, y, labels=labels), []
    for point in zip(*given.values(), strict=True):
        values = dict(zip(given, map(float, point), strict=True))
        student = empirical_risk.solve(action, values)
        error = empirical_risk.generalisation_error(student, labels=labels)
        loss = empirical_risk.training_loss(action, values, student)
        results.append(_numbers([error, loss, student.action, *(student[name] for name in ("m", "s", "V"))]))
    return dict(zip(("error", "loss", "S", "m", "s", "V"), np.transpose(results), strict=True))


@kind
def ill_conditioned(spec: dict, given: dict[str, np.ndarray]) -> Results:
    """Solve problems of one structure and size, whose features and labels are integers times scales."""
    layers = [getattr(bpkr, each[0])(*each[1:]) if isinstance(each, list) else each for each in spec["layers"]]
    outcomes, numbers = [], []
    for widths, variances, temperature, features, scale, labels, label_scale in zip(
        *(given[key] for key in ("widths", "variances", "temperature", "features", "scale", "labels", "label_scale")),
        strict=True,
    ):
        architecture = bpkr.Architecture(
            layers,
            widths.tolist(),
            variances.tolist(),
            temperature=float(temperature),
            outputs=spec["outputs"],
        )
        data = bpkr.Data(features * float(scale), labels * float(label_scale))
        outcomes.append(REFUSED)
        numbers.append(np.full(3, np.nan))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bpkr.ConvergenceWarning)
            try:
                found = bpkr.solve(architecture, data)
            except ValueError:
                continue
        outcomes[-1] = CONVERGED if found.converged else NOT_CONVERGED
        numbers[-1] = _numbers([found.action, found.action_error, found.gradient_norm])
    S, S_error, gradient_norm = np.transpose(numbers)
    return {"outcome": np.array(outcomes, np.int8), "S": S, "S_error": S_error, "gradient_norm": gradient_norm}


# ---- Dynamics ----
