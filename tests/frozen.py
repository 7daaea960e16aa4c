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
from sympy import srepr
from sympy.core.symbol import Str
from sympy.functions.elementary.piecewise import ExprCondPair

from theorykit import bpkr, dmft, dynamics, saddle, symbolic
from theorykit.codegen import interpret
from theorykit.dynamics.regimes import kaplan_yorke_lower_bound
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
    S = [
        interpret(action.expression, dict(zip(given, point, strict=True)))
        for point in zip(*given.values(), strict=True)
    ]
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


def network_of(spec: dict, arrays: dict) -> tuple[dmft.Weights, dmft.SelfAttention]:
    weights = dmft.Weights(arrays["semantic"], arrays["positional"])
    return weights, dmft.self_attention_limit(weights, spec["context"])


def parameters_of(spec: dict) -> dmft.Parameters:
    return dmft.Parameters(*(np.array(spec[name], dtype=float) for name in ("beta", "gamma", "epsilon")))


def start_of(spec: dict, arrays: dict, weights: dmft.Weights, model: dmft.SelfAttention) -> dmft.State:
    """Return the state after a prompt, in either convention, or with the attentions of a window, newest first."""
    parameters = parameters_of(spec)
    if "window" in arrays:
        return dmft.state_from_window(model, parameters, dmft.Window(arrays["window"], spec["position"]))
    start = {"token": dmft.token_start, "window": dmft.window_start}[spec["convention"]]
    return start(model, parameters, dmft.prompt(weights, arrays["prompt"]))


@kind
def trajectory(spec, arrays):
    """Run a network from a prompt or a window. Batch axes are last."""
    weights, model = network_of(spec, arrays)
    parameters = parameters_of(spec)
    path = dmft.run(model, parameters, start_of(spec, arrays, weights, model), steps=spec["steps"])
    return {
        "attention": path.attention,
        "overlaps": path.overlaps(model, parameters),
        "positions": path.positions,
        "later": jnp.stack(dmft.advance(model, parameters, path.end, spec["later"]).attention),
    }


@kind
def column_law(spec, arrays):
    """Return the law of the columns of weights in a canonical order, and the means that depend on it."""
    weights, model = network_of(spec, arrays)
    law = dmft.column_law(weights)
    order = np.lexsort(law.directions.T[::-1])
    parameters = parameters_of(spec)
    averages = [dmft.semantic_overlap(model, family, parameters, arrays["attention"]) for family in range(4)]
    return {
        "directions": law.directions[order],
        "moments": law.moments[:, order],
        "positional": model.positional,
        "prompt": dmft.prompt(weights, arrays["prompt"]),
        "semantic_overlaps": jnp.stack(averages),
    }


@kind
def published_weights(spec, arrays):
    weights = dmft.published_weights(**spec)
    return {"semantic": weights.semantic, "positional": weights.positional}


@kind
def attention_gain(spec, arrays):
    return {"gamma": dmft.attention_gain(arrays["inverse_temperature"], spec["scale"], spec["patterns"])}


@kind
def mean_field_equations(spec, arrays):
    """Return the derived map and its responses as `srepr`, and their values at values of their symbols."""
    theory = dmft.derive()
    expressions = {name: getattr(theory, name) for name in spec["names"]}
    values = {name: array[()] for name, array in arrays.items()}
    return {name: srepr(expression) for name, expression in expressions.items()} | {
        f"{name}_value": interpret(expression, values) for name, expression in expressions.items()
    }


@kind
def tangent_growth(spec, arrays):
    """Return log R_jj of every token, for perturbations (vectors, context, patterns) of a window."""
    _, model = network_of(spec, arrays)
    window = dmft.Window(arrays["window"], spec["position"])
    call = {"steps": spec["steps"], "every": 1, "blocks": spec["steps"], "exponents": arrays["perturbations"]}
    return {"growth": dmft.lyapunov_spectrum(model, parameters_of(spec), window, **call).blocks}


@kind
def lyapunov_spectrum(spec, arrays):
    """Return exponents along the last axis, largest first, with errors, the regime and the Kaplan-Yorke dimension."""
    _, model = network_of(spec, arrays)
    window = dmft.Window(arrays["window"], spec["position"])
    options = {"orthonormalise": dynamics.gram_schmidt, "every": 1} if spec["leading"] else {}
    found = dmft.lyapunov_spectrum(
        model, parameters_of(spec), window, steps=spec["steps"], exponents=spec["leading"], **options
    )
    exponents = np.moveaxis(np.asarray(found.exponents), 0, -1)
    return {
        "exponents": exponents,
        "exponents_error": np.moveaxis(np.asarray(found.errors), 0, -1),
        "regime": np.atleast_1d(dynamics.classify(found)),
        "dimension": kaplan_yorke_lower_bound(exponents),
    }


@kind
def settled_orbits(spec, arrays):
    """Return the regime of orbits after a transient, and the range of the attention of those that are periodic."""
    weights, model = network_of(spec, arrays)
    parameters = parameters_of(spec)
    window = dmft.discard_transient(model, parameters, start_of(spec, arrays, weights, model), spec["transient"])
    call = {"steps": spec["steps"], "exponents": 2, "every": 1, "orthonormalise": dynamics.gram_schmidt}
    regimes = dynamics.classify(dmft.lyapunov_spectrum(model, parameters, window, **call))
    state = dmft.state_from_window(model, parameters, window)
    attention = np.asarray(dmft.run(model, parameters, state, steps=spec["recorded"]).attention)
    is_periodic = regimes == "periodic"
    return {
        "regimes": regimes,
        "lowest": np.where(is_periodic, attention.min(axis=0), np.nan),
        "highest": np.where(is_periodic, attention.max(axis=0), np.nan),
    }


@kind
def regimes(spec, arrays):
    """Classify exponents (orbits, exponents) with and without error bars, and return their dimensions."""
    exponents = arrays["exponents"]
    contracting = exponents.sum(axis=-1) < 0
    return {
        "published": dynamics.classify(exponents, threshold=spec["threshold"]),
        "decided": dynamics.classify(exponents, arrays["errors"], spec["threshold"]),
        "dimension": dynamics.kaplan_yorke_dimension(exponents[contracting]),
        "bound": kaplan_yorke_lower_bound(exponents),
    }


def logistic(state, growth):
    return growth * state * (1 - state)


def delayed_logistic(state, growth):
    return jnp.stack([growth * state[0] * (1 - state[1]), state[0]])


def henon(state, height):
    return jnp.stack([1 - height * state[0] ** 2 + state[1], 0.3 * state[0]])


def pitchfork(state, parameter):
    return parameter * state - state**3


def imperfect_pitchfork(state, parameter):
    return pitchfork(state, parameter) + 1e-3


def circle(state, parameter):
    """Fixed points where state and parameter are on the unit circle."""
    return state + 0.3 * (1 - state**2 - parameter**2)


MAPS = {each.__name__: each for each in (logistic, delayed_logistic, henon, pitchfork, imperfect_pitchfork, circle)}


def step_of(spec: dict, arrays: dict) -> Callable:
    """Return a map, or the map of a window of attentions over some tokens as a function of one parameter."""
    if spec["map"] != "network":
        return MAPS[spec["map"]]
    _, model = network_of(spec, arrays)
    return dmft.Stroboscope(model, parameters_of(spec), spec["scanned"], spec["tokens"])


def leading(multipliers: np.ndarray, count: int) -> np.ndarray:
    """Return the largest multipliers by modulus, with the upper one of a conjugate pair first."""
    multipliers = np.asarray(multipliers)
    return multipliers[np.lexsort((-multipliers.imag, -np.abs(multipliers).round(7)))][:count]


@kind
def cycle(spec, arrays):
    """Find a cycle from a guess, or with `max_period` the cycle on which an orbit settles."""
    step = step_of(spec, arrays)
    if "max_period" in spec:
        call = {"transient": spec["transient"]}
        found = dynamics.cycle_near(step, arrays["start"], spec["parameter"], spec["max_period"], **call)
    else:
        found = dynamics.find_cycle(step, arrays["guess"], spec["parameter"], spec["period"])
    points = np.asarray(found.points)
    return {
        # The first point of a cycle is arbitrary.
        "points": np.roll(points, -np.argmin(points[:, 0]), axis=0),
        "multipliers": leading(found.multipliers, spec["leading"]),
        "is_stable": found.is_stable,
    }


@kind
def cycle_branch(spec, arrays):
    """Follow a branch of cycles, and with several `bounds` the branches of doubled cycles from its first doubling."""
    step, results, found = step_of(spec, arrays), {}, None
    at = dynamics.find_cycle(step, arrays["guess"], spec["parameter"], spec["period"])
    for number, bounds in enumerate(spec["bounds"]):
        if number:
            doubling = next(event for event in found.events if event.kind == "period doubling")
            at = dynamics.double_period(step, doubling, amplitude=spec["amplitude"])
        found = dynamics.follow(step, at, tuple(bounds), direction=spec["direction"])
        # Two events may coincide, so their order is that of parameters and angles.
        events = sorted(found.events, key=lambda event: (round(float(event.parameter), 7), event.angle))
        results |= {
            f"kinds_{number}": ", ".join(event.kind for event in events),
            f"parameters_{number}": np.array([float(event.parameter) for event in events]),
            # Tolerances are relative, so results that may vanish are moved away from zero.
            f"cosines_{number}": np.cos([event.angle for event in events]),
            f"states_{number}": np.array([1 + np.sort(event.points, axis=0)[0] for event in events]),
            f"stable_ends_{number}": found.stable[[0, -1]],
            f"end_{number}": 1 + found.parameters[-1],
        }
    # Cycles of the last branch at given parameters, from the closest ones of the branch.
    for number, parameter in enumerate(spec["at"]):
        close = int(np.argmin(np.abs(np.asarray(found.parameters) - parameter)))
        there = dynamics.find_cycle(step, found.points[close], parameter, found.points.shape[1])
        results[f"points_{number}"] = 1 + np.sort(there.points, axis=0)
        results[f"multipliers_{number}"] = leading(there.multipliers, spec["leading"])
    return results


@kind
def fluctuations(spec, arrays):
    """Return covariances over networks in which every neuron is repeated, to first order in 1/N."""
    weights, model = network_of(spec, arrays)
    network = dmft.network.class_sum_network(weights, spec["context"], spec["repeats"])
    start = start_of(spec, arrays, weights, model)
    found = dmft.network.fluctuations(network, parameters_of(spec), start, steps=spec["steps"])
    names = ("mean", "attention", "overlaps", "attention_deviation", "overlap_deviation", "rms", "neurons")
    return {name: getattr(found, name) for name in names}


@kind
def sampled_networks(spec, arrays):
    """Return means and variances of the attention over sampled networks, with standard errors."""
    weights, model = network_of(spec, arrays)
    network = dmft.network.class_sum_network(weights, spec["context"], spec["repeats"])
    start = start_of(spec, arrays, weights, model)
    call = {"steps": spec["steps"], "samples": spec["samples"], "key": jax.random.key(0)}
    attention = np.asarray(dmft.network.run(network, parameters_of(spec), start, **call).attention)[1:]
    mean = attention.mean(axis=2, keepdims=True)
    squares = (attention - mean) ** 2
    error = lambda values: values.std(axis=2, ddof=1) / np.sqrt(spec["samples"])  # noqa: E731
    return {
        "mean": mean[:, :, 0],
        "mean_error": error(attention),
        "variance": squares.mean(axis=2),
        "variance_error": error(squares),
    }
