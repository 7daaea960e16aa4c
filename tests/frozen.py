"""Adapter of the frozen numbers: from instances as plain data to results as plain data, through theorykit.

`tests/data/frozen` holds instances and the results that theorykit gave for them before it was rebuilt, at commit
4f8690a8. Only this file may be edited when names or signatures of the package change; instances, results and tolerances
may not. A group is one JSON and one npz file. The JSON file maps names of cases to

- `kind`: a function below of `spec` and arrays by name, which returns arrays, numbers and texts by name.
- `tolerances`: how each result is compared (see `tests/test_frozen.py`).
- `texts`: results that are texts. `quick`: whether the fast suite has the case.

The npz file has arrays `CASE/given/NAME`, the other argument of the function, and `CASE/found/NAME`, its results.
"""

import json
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
import xarray as xr
from scipy.interpolate import CubicSpline
from scipy.stats import norm
from sympy.core.symbol import Str
from sympy.functions.elementary.piecewise import ExprCondPair
from sympy.matrices.expressions.applyfunc import ElementwiseApplyFunction

from theorykit import bpkr, dmft, dynamics, saddle, symbolic
from theorykit.bpkr import sweeps
from theorykit.bpkr.features.implicit import TokenFeatures
from theorykit.codegen import interpret
from theorykit.saddle import ConvergenceWarning
from theorykit.saddle.bound_action import bind
from theorykit.saddle.solve import distinct
from theorykit.symbolic import atoms, averages, functions, matrix_functions, normal
from theorykit.theories import nested_kernels, units_with_mean

from .bpkr.cases import CorrelatedHeads, Pooling, TiedHeads
from .saddle.confirmation import claim_of, error_of_action, objection

Results = Mapping[str, Any]
KINDS: dict[str, Callable[[dict, dict[str, np.ndarray]], Results]] = {}

FOLDER = Path(__file__).parent / "data" / "frozen"


@dataclass
class Case:
    """An instance, its results, and how they are compared."""

    name: str
    kind: str
    spec: dict
    tolerances: Mapping[str, float | str]
    quick: bool
    given: dict[str, np.ndarray]
    found: dict[str, Any]


def read(group: str) -> list[Case]:
    """Return the cases of a group."""
    entries, cases = json.loads((FOLDER / f"{group}.json").read_text()), []
    with np.load(FOLDER / f"{group}.npz") as archive:
        stored = dict(archive)
    for case, entry in entries.items():
        parts = {"given": {}, "found": entry.pop("texts")}
        for part, named in parts.items():
            start = f"{case}/{part}/"
            named |= {key.removeprefix(start): array for key, array in stored.items() if key.startswith(start)}
        cases.append(Case(case, **entry, **parts))
    return cases


# What names mean in the `srepr` of an expression, and in formulas.
NAMES = {
    **{name: each for module in (atoms, averages, functions, matrix_functions) for name, each in vars(module).items()},
    **vars(sp),
    **{each.__name__: each for each in (ElementwiseApplyFunction, ExprCondPair, Str)},
    **{name: getattr(symbolic, name) for name in symbolic.__all__},
}


def kind(function: Callable) -> Callable:
    """Register a function under its name."""
    KINDS[function.__name__] = function
    return function


# ---- Theory 1 ----

# Layers that the tests define themselves, by name.
_OWN_LAYERS = {each.__name__: each for each in (CorrelatedHeads, Pooling, TiedHeads)}
# Functions of hidden units that the package knows by name; others are expressions in h.
_NAMED_FUNCTIONS = ("identity", "erf", "relu", "quadratic")


def are_equal_expressions(expected: str, found: str) -> bool:
    """Return whether two `srepr` are of expressions whose difference expands to zero."""
    first, second = (eval(text, dict(NAMES)) for text in (expected, found))
    if first.is_Matrix != second.is_Matrix or getattr(first, "shape", None) != getattr(second, "shape", None):
        return False
    if first.is_Matrix:
        # Compare traces of products with any other matrix, because traces are numbers, which `normal` expands.
        other = sp.MatrixSymbol("other", *reversed(first.shape))
        first, second = (sp.Trace(matrix * other) for matrix in (first, second))
    return normal(sp.expand(first) - sp.expand(second)) == 0


def _function(text: str):
    return text if text in _NAMED_FUNCTIONS else sp.sympify(text, {"h": sp.Symbol("h", real=True)})


def _layer(spec):
    """Return a layer: a whole number of attention heads, or a list of the name of a kind and its arguments."""
    if isinstance(spec, int):
        return spec
    name, *arguments = spec
    if name == "Dense":
        return bpkr.Dense(activation=_function(*arguments)) if arguments else bpkr.Dense()
    if name == "Skip":
        inside, gain = arguments
        return bpkr.Skip(_layer(inside), gain)
    return _OWN_LAYERS[name](*(np.array(each) if isinstance(each, list) else each for each in arguments))


def _architecture(spec) -> bpkr.Architecture:
    options = {name: spec[name] for name in ("outputs", "read_tokens", "richness", "width_ratios") if name in spec}
    if "embedding" in spec:
        options["embedding"] = _function(spec["embedding"])
    widths = math.inf if isinstance(spec["widths"], str) else spec["widths"]
    layers = [_layer(each) for each in spec["layers"]]
    return bpkr.Architecture(layers, widths, spec["variances"], temperature=spec["temperature"], **options)


def _attention(spec, arrays, part: str = ""):
    """Return the attention maps of inputs. Layers have the heads `key_query_1`, ... and `lengths` count real tokens."""
    key_query = [arrays[name] for name in sorted(arrays) if name.startswith("key_query")]
    masks = {"mask": spec.get("mask"), "real_tokens": arrays.get(f"{part}lengths")}
    return bpkr.attention(arrays[f"{part}inputs"], key_query=key_query, **masks)


def _features(spec, arrays, part: str = ""):
    """Return path features, as given or of inputs."""
    if f"{part}features" in arrays:
        return arrays[f"{part}features"]
    attention, lengths = _attention(spec, arrays, part), arrays.get(f"{part}lengths")
    inputs, readout = arrays[f"{part}inputs"], spec.get("readout")
    return bpkr.path_features(inputs, attention, _architecture(spec), readout, real_tokens=lengths)


def _data(spec, arrays) -> bpkr.Data:
    features, tested = _features(spec, arrays), _features(spec, arrays, "test_")
    labels, test_labels = arrays["labels"], arrays.get("test_labels")
    if "coding" in spec:
        data = bpkr.Data.of_classes(features, labels, tested, test_labels)
        # Labels 1 and -1 of more than two classes are like other numbers now.
        is_signs = spec["coding"] == "signs" and data.classes.outputs > 1
        return eqx.tree_at(lambda data: data.labels, data, replace_fn=lambda y: 2 * y - 1) if is_signs else data
    return bpkr.Data(features, labels, tested, test_labels)


def _problem(spec, arrays) -> bpkr.Problem:
    return bpkr.Problem(_architecture(spec), _data(spec, arrays))


def _named(point: bpkr.OrderParameters, prefix: str = "") -> dict[str, Any]:
    """Return order parameters by name: U_1, ..., U_L, u."""
    return {f"{prefix}U_{layer}": each for layer, each in enumerate(point.matrices, 1)} | {f"{prefix}u": point.readout}


def _joined(layers) -> np.ndarray:
    """Return one array of what there is per layer."""
    return np.concatenate([np.asarray(each) for each in layers])


@kind
def expressions(spec, arrays):
    """The derived action of an architecture."""
    action = bpkr.derive(_architecture(spec))
    found = {"energy": action.energy, "mean": action.predictor.mean, "covariance": action.predictor.covariance}
    found |= {f"entropy_{layer}": each for layer, each in enumerate(action.entropies, 1)}
    return {name: sp.srepr(each) for name, each in found.items()}


@kind
def values(spec, arrays):
    """Values and derivatives of the action at given points, of which `point_U_1`, ... are the free order parameters.

    Derivatives are with respect to the free order parameters, as symmetric matrices. Second derivatives are products
    of the Hessian with `direction_U_1`, ...
    """
    problem, architecture = _problem(spec, arrays), _architecture(spec)
    names = [*(f"U_{layer}" for layer in range(1, architecture.depth + 1)), "u"]
    points, directions = (
        {name: jnp.asarray(arrays[f"{part}_{name}"]) for name in names if f"{part}_{name}" in arrays}
        for part in ("point", "direction")
    )

    def order_parameters(free):
        """Return all order parameters: above a skip connection of strength s, U_{l+1} is a block of U_l over s^2."""
        found = []
        for i, (name, size) in enumerate(zip(names, architecture.overlap_sizes, strict=True)):
            if name in free:
                found.append((free[name] + free[name].T) / 2)
            else:
                found.append(found[-1][:size, :size] / spec["layers"][i - 1][-1] ** 2)
        *matrices, readout = found
        return bpkr.OrderParameters(tuple(matrices), readout.reshape(()) if readout.size == 1 else readout)

    def total(free):
        return bpkr.evaluate(problem, order_parameters(free)).total

    def product(free, direction):
        return jax.jvp(jax.grad(total), (free,), (direction,))[1]

    def at_point(free):
        point = order_parameters(free)
        terms, prediction = bpkr.evaluate(problem, point), bpkr.predict(problem, point)
        products = jax.lax.map(lambda direction: product(free, direction), directions)
        return {
            "entropies": jnp.stack(terms.entropies),
            "energy": terms.energy,
            "total": terms.total,
            "mean": prediction.mean,
            "variance": prediction.variance,
            **{f"gradient_{name}": each for name, each in jax.grad(total)(free).items()},
            **{f"product_{name}": each for name, each in products.items()},
        }

    first = order_parameters({name: each[0] for name, each in points.items()})
    at_first = {
        "kernel": bpkr.kernel(problem, first),
        "gradient_norm": problem.at(problem.coordinates(first)).gradient_norm,
    }
    return jax.jit(lambda points: jax.lax.map(at_point, points))(points) | at_first


@kind
def problem(spec, arrays):
    """A solved problem, and what `results` of the specification names."""
    problem = _problem(spec, arrays)
    saddle = bpkr.solve(problem, tolerance=spec["tolerance"])
    found = {}
    for name in spec["results"]:
        found |= _RESULTS[name](spec, arrays, problem, saddle)
    return found


def _saddle(spec, arrays, problem, saddle):
    numbers = ("action", "entropy", "energy", "log_evidence", "action_error", "converged", "min_hessian_eigenvalue")
    return _named(saddle.order_parameters) | {name: getattr(saddle, name) for name in numbers}


def _prediction(spec, arrays, problem, saddle):
    prediction = bpkr.predict(problem, saddle)
    return {"mean": prediction.mean, "variance": prediction.variance}


def _limit(spec, arrays, problem, saddle):
    """Values at the order parameters of infinite width."""
    limit = bpkr.gp_limit(problem.architecture)
    terms, prediction = bpkr.evaluate(problem, limit), bpkr.predict(problem, limit)
    found = {"limit_entropy": terms.entropy, "limit_energy": terms.energy}
    return _named(limit, "limit_") | found | {"limit_mean": prediction.mean, "limit_variance": prediction.variance}


def _probabilities(spec, arrays, problem, saddle):
    classes, prediction = problem.data.classes, bpkr.predict(problem, saddle)
    variance = prediction.variance + problem.architecture.label_noise
    return {
        "probabilities": classes.probabilities(prediction.mean, variance),
        "log_probability": classes.log_probability(arrays["test_labels"], prediction.mean, variance),
        "decoded": classes.decode(prediction.mean),
        "encoded": problem.data.labels,
    }


def _fluctuations(spec, arrays, problem, saddle):
    found = bpkr.fluctuations(problem, saddle)
    return {
        **_named(found.mean, "fluctuating_"),
        **_named(found.deviation, "deviation_"),
        "fluctuating_mean": found.prediction.mean,
        "fluctuating_variance": found.prediction.variance,
        "fluctuating_evidence": found.log_evidence,
    }


def _first_order(spec, arrays, problem, saddle):
    return _named(bpkr.first_order(problem), "first_order_")


def _quality(problem, point):
    """Return the expected accuracy of each test example, or minus the expected squared error."""
    found, truth = bpkr.predict(problem, point), np.asarray(problem.data.test_labels)
    variance = found.variance * (not problem.architecture.has_sharp_outputs)
    if truth.ndim == 1 and set(truth) <= {-1.0, 1.0}:
        return norm.cdf(truth * found.mean / np.sqrt(variance + 1e-120))
    return -np.mean(((found.mean - truth) ** 2 + variance).reshape(len(truth), -1), axis=1)


def _restricted(features, stays):
    if isinstance(features, TokenFeatures):
        return eqx.tree_at(lambda of: of.readings, features, features.readings * stays)
    return features * stays[:, None]


def _heads(spec, arrays, problem, saddle):
    """Scores, the order in which pruning removes heads, and the costs of leaving them out."""
    architecture, data = problem.architecture, problem.data
    scores, prior = (bpkr.head_scores(architecture, each) for each in (saddle, bpkr.gp_limit(architecture)))
    order = sorted((score, layer, head) for layer, of in enumerate(scores, 1) for head, score in enumerate(of, 1))
    branches, errors, lost = np.array(architecture.path_branches()).T - 1, [], []
    for layer in range(architecture.depth):
        for passes in architecture.branch_heads(layer + 1).T:
            own, tested = (_restricted(x, ~passes[branches[layer]]) for x in (data.features, data.test_features))
            without = bpkr.Problem(architecture, bpkr.Data(own, data.labels, tested, data.test_labels))
            solved = bpkr.solve(without, initial=saddle)
            errors.append((saddle.action_error + solved.action_error) / 2)
            lost.append(_quality(problem, saddle) - _quality(without, solved))
    return {
        "scores": _joined(scores),
        "scores_at_infinite_width": _joined(prior),
        "rank": np.array([head for _, *head in order]),
        "removable": np.array(bpkr.removable_heads(scores)),
        "cost": _joined(bpkr.head_costs(problem, saddle, progress=False)),
        "cost_error": np.array(errors),
        "cost_of_prediction": np.mean(lost, axis=1),
        "cost_of_prediction_error": np.std(lost, axis=1) / len(lost[0]) ** 0.5,
    }


def _alignment(spec, arrays, problem, saddle):
    found = bpkr.kernel_task_alignment(bpkr.kernel(problem, saddle), problem.data.labels)
    return {"eigenvalues": found.eigenvalues, "cosines": found.cosines}


def _derivatives(spec, arrays, problem, saddle):
    """Derivatives of the action at the saddle point, and of a sum of predictions, in all numbers and arrays."""
    names = ["temperature", "variances", *(() if isinstance(spec["widths"], str) else ("widths",))]
    numbers = {name: jnp.asarray(spec[name], dtype=float) for name in names}
    varied = {name: jnp.asarray(each) for name, each in arrays.items() if each.dtype.kind == "f"}

    def results(numbers, varied):
        numbers = {name: each if each.ndim == 0 else tuple(each) for name, each in numbers.items()}
        problem = _problem(spec | numbers, arrays | varied)
        saddle = bpkr.solve(problem, tolerance=spec["tolerance"])
        mean = bpkr.predict(problem, saddle).mean.ravel()
        return jnp.stack([saddle.action, jnp.arange(1.0, 1 + len(mean)) @ mean])

    of_numbers, of_arrays = jax.jacrev(results, (0, 1))(numbers, varied)
    return {f"slope_{name}": each for name, each in (of_numbers | of_arrays).items() if not name.startswith("test_l")}


def _minima(spec, arrays, problem, saddle):
    starts = jax.random.normal(jax.random.key(0), (4, problem.dimension))
    solved = [bpkr.solve(problem, initial=point) for point in (None, *map(problem.order_parameters, starts))]
    solved = [each for each in solved if each.converged]
    ends = [np.asarray(problem.coordinates(each.order_parameters)) for each in solved]
    groups = distinct([float(each.action) for each in solved], ends, 1e-4)
    return {"minima": np.array([solved[group[0]].action for group in groups]), "failures": 5 - len(solved)}


_RESULTS = {
    "saddle": _saddle,
    "prediction": _prediction,
    "limit": _limit,
    "probabilities": _probabilities,
    "fluctuations": _fluctuations,
    "first order": _first_order,
    "heads": _heads,
    "alignment": _alignment,
    "derivatives": _derivatives,
    "minima": _minima,
}


@kind
def other_theories(spec, arrays):
    """The solution of a theory of nonlinear units with other order parameters."""
    theory = {"mean": units_with_mean, "nested": nested_kernels}[spec["theory"]]
    problem = _problem(spec, arrays)
    solution = theory.solve(problem)
    prediction = theory.predict(problem, solution)
    found = {"action": solution.action, "mean": prediction.mean, "variance": prediction.variance}
    return dict(solution.order_parameters) | found


@kind
def sweep(spec, arrays):
    """A table of solves at several widths and temperatures."""
    grid = {"temperature": spec["temperatures"], "richness": spec.get("richnesses")}
    width = [math.inf if isinstance(each, str) else each for each in spec["all_widths"]]
    found = sweeps.sweep(_problem(spec, arrays), width=width, progress=False, **grid)
    return {name: found[name].values for name in spec["results"]}


# ---- Own actions and theories ----

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
    found = saddle.follow(action, values, start, name, spec["bounds"], direction=spec["direction"], **spec["options"])
    solved = [
        _solution(action, {**values, name: spec["at"]}, {"index": index, "initial": initial})
        for index, initial in zip(spec["indices"], saddle.near(found, spec["at"]), strict=True)
    ]
    index, turns = found["index"].values, found.isel(point=found["event"] != "")
    at_turns = [turns[name].values for name in sorted(symbol.name for symbol in action.order_parameters)]
    return {
        "kinds": ", ".join(turns["event"].values),
        "turns": turns[name].values,
        "turning_points": np.array([_numbers(each) for each in zip(*at_turns, strict=True)]),
        "indices": index[np.append(True, np.diff(index) != 0)],
        "S": np.array([each.action for each in solved]),
        "solutions": _places(each.order_parameters for each in solved),
    }


@kind
def transition(spec: dict, given: dict[str, np.ndarray]) -> Results:
    action, values = _action(spec), spec["values"]
    both = [_solution(action, values, start) for start in spec["starts"]]
    found = saddle.transition(*both, spec["parameter"], spec["bounds"])
    results = {"kind": found["kind"].item(), "value": found[spec["parameter"]].values, "error": found["error"].values}
    names = sorted(symbol.name for symbol in action.order_parameters)
    solutions = np.array([_numbers(found[name].values[at] for name in names) for at in (0, 1)])
    return results | {"S": found["action"].values, "solutions": solutions}


@kind
def phase_diagram(spec: dict, given: dict[str, np.ndarray]) -> Results:
    """Return critical points, and the lines at one value of a parameter.

    `cuts` has kinds of lines, a parameter and a value: the other parameter there, and whether solutions are stable.
    """
    names = list(spec["ranges"])
    found = saddle.phase_diagram(_action(spec), spec["ranges"], progress=False, **spec["options"])
    points = found.isel(point=found["kind"].isin(["critical point", "tricritical point"]))
    points = points.isel(point=np.lexsort([points[name] for name in names[::-1]]))
    parts = [found.isel(point=found["line"].values == line) for line in np.unique(found["line"])]
    lines = [part for part in parts if not part["kind"].values[0].endswith("point")]
    results = {
        "lines": ", ".join(sorted({part["kind"].values[0] for part in lines})),
        "critical_kinds": ", ".join(points["kind"].values),
        "critical_points": np.stack([points[name].values for name in names], axis=1),
    }
    for number, (line_kind, name, value) in enumerate(spec["cuts"]):
        (other,) = set(names) - {name}
        of_kind = [part for part in lines if part["kind"].values[0] == line_kind]
        cuts = sorted(cut for line in of_kind for cut in _cuts(line, name, other, value))
        results[f"cut_{number}"] = np.array([at for at, _ in cuts])
        results[f"stable_{number}"] = np.array([stable for _, stable in cuts], bool)
    return results


def _cuts(line: xr.Dataset, name: str, other: str, value: float) -> Iterable[tuple[float, bool]]:
    """Interpolate a line where it has this value of one parameter: the other parameter, and whether it is stable."""
    points = np.stack([line[each].values for each in (name, other)], axis=1)
    length = np.append(0.0, np.cumsum(np.hypot(*np.diff(points, axis=0).T)))
    keep = np.append(True, np.diff(length) > 0)
    points, length, stable = points[keep], length[keep], line["stability"].values[keep] == "stable"
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
def fixed_point(spec: dict, given: dict[str, np.ndarray]) -> Results:
    """Evaluate the map of order parameters that solves the saddle-point equations, at the given values."""
    points = [dict(zip(given, point, strict=True)) for point in zip(*given.values(), strict=True)]
    updates = _action(spec).fixed_point
    return {symbol.name: np.array([interpret(each, at) for at in points]) for symbol, each in updates.items()}


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
            layers, widths.tolist(), variances.tolist(), temperature=float(temperature), outputs=spec["outputs"]
        )
        data = bpkr.Data(features * float(scale), labels * float(label_scale))
        outcomes.append(REFUSED)
        numbers.append(np.full(3, np.nan))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
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
    signs = np.concatenate([arrays["semantic"], arrays["positional"]], axis=-1)
    weights = dmft.Weights(signs, arrays["positional"].shape[-1])
    return weights, dmft.SelfAttention.from_weights(weights, spec["context"])


def parameters_of(spec: dict) -> dmft.Parameters:
    return dmft.Parameters(*(np.array(spec[name], dtype=float) for name in ("beta", "gamma", "epsilon")))


@kind
def mean_field_equations(spec, arrays):
    """Return the derived map and its responses as `srepr`, and their values at values of their symbols."""
    theory = dmft.derive()
    expressions = {name: getattr(theory, name) for name in spec["names"]}
    values = {name: array[()] for name, array in arrays.items()}
    return {name: sp.srepr(expression) for name, expression in expressions.items()} | {
        f"{name}_value": interpret(expression, values) for name, expression in expressions.items()
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
    return dmft.stroboscope(model, parameters_of(spec), spec["scanned"], spec["tokens"])


def leading(cycle: xr.Dataset, count: int) -> np.ndarray:
    """Return the largest multipliers by modulus, with the upper one of a conjugate pair first."""
    multipliers = (cycle["multiplier_modulus"] * np.exp(1j * cycle["multiplier_angle"])).values
    return multipliers[np.lexsort((-multipliers.imag, -np.abs(multipliers).round(7)))][:count]


def angles_of(events: xr.Dataset) -> list[float]:
    """Return the angles of the multipliers that cross the unit circle at events, of which several may coincide."""
    known, found, seen = {"period doubling": np.pi, "fold": 0.0, "branch point": 0.0}, [], []
    for number in range(events.sizes["point"]):
        event = events.isel(point=number)
        angles = np.sort(event["multiplier_angle"].values[np.abs(event["multiplier_modulus"] - 1) < 1e-6])
        twins = seen.count(place := (event["event"].item(), event["parameter"].item().__round__(7)))
        seen.append(place)
        found.append(known[place[0]] if place[0] in known else angles[angles > 0][twins:][0])
    return found


@kind
def cycle(spec, arrays):
    """Find a cycle from a guess, or with `max_period` the cycle on which an orbit settles."""
    step = step_of(spec, arrays)
    if "max_period" in spec:
        call = {"transient": spec["transient"]}
        found = dynamics.cycle_near(step, arrays["start"], spec["parameter"], spec["max_period"], **call)
    else:
        found = dynamics.find_cycle(step, arrays["guess"], spec["parameter"], spec["period"])
    points = found["points"].values
    return {
        # The first point of a cycle is arbitrary.
        "points": np.roll(points, -np.argmin(points[:, 0]), axis=0),
        "multipliers": leading(found, spec["leading"]),
        "is_stable": bool(found["stable"]),
    }


@kind
def cycle_branch(spec, arrays):
    """Follow a branch of cycles, and with several `bounds` the branches of doubled cycles from its first doubling."""
    step, results, found = step_of(spec, arrays), {}, None
    at = dynamics.find_cycle(step, arrays["guess"], spec["parameter"], spec["period"])
    for number, bounds in enumerate(spec["bounds"]):
        if number:
            doubling = found.isel(point=found["event"] == "period doubling").isel(point=0)
            at = dynamics.double_period(step, doubling, amplitude=spec["amplitude"])
        found = dynamics.follow(step, at, tuple(bounds), direction=spec["direction"])
        # Two events may coincide, so their order is that of parameters and angles.
        events = found.isel(point=found["event"] != "")
        events = events.assign(angle=("point", angles_of(events)))
        events = events.isel(point=np.lexsort((events["angle"], events["parameter"].round(7))))
        results |= {
            f"kinds_{number}": ", ".join(events["event"].values),
            f"parameters_{number}": events["parameter"].values,
            # Tolerances are relative, so results that may vanish are moved away from zero.
            f"cosines_{number}": np.cos(events["angle"].values),
            f"states_{number}": np.array([1 + np.sort(points, axis=0)[0] for points in events["points"].values]),
            f"stable_ends_{number}": found["stable"].values[[0, -1]],
            f"end_{number}": 1 + found["parameter"].values[-1],
        }
    # Cycles of the last branch at given parameters, from the closest ones of the branch.
    for number, parameter in enumerate(spec["at"]):
        close = found.isel(point=int(np.argmin(np.abs(found["parameter"].values - parameter))))
        there = dynamics.find_cycle(step, close["points"].values, parameter, found.sizes["time"])
        results[f"points_{number}"] = 1 + np.sort(there["points"].values, axis=0)
        results[f"multipliers_{number}"] = leading(there, spec["leading"])
    return results
