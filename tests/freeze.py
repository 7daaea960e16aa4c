"""Write `tests/data/frozen`: instances and the results of the package for them, each with its tolerance.

    python -m tests.freeze GROUP ...

A group is one JSON and one npz file. The JSON file maps names of cases to

- `kind`: a function of `tests/frozen.py`, which computes the results. `spec`: its JSON argument.
- `tolerances`: how each result is compared (see `tests/test_frozen.py`).
- `texts`: results that are texts. `quick`: whether the fast suite has the case.

The npz file has arrays `CASE/given/NAME`, the other argument of the function, and `CASE/found/NAME`, its results.
Instances are drawn here by NumPy alone. The files are written once: a later package must reproduce them.
"""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "data" / "frozen"


@dataclass
class Case:
    """An instance, and how its results are compared."""

    name: str
    kind: str
    spec: dict
    tolerances: Mapping[str, float | str]
    given: dict[str, np.ndarray] = field(default_factory=dict)
    quick: bool = False
    found: dict[str, Any] = field(default_factory=dict)


GROUPS: dict[str, Callable[[], Iterator[Case]]] = {}


def group(function: Callable[[], Iterator[Case]]) -> Callable[[], Iterator[Case]]:
    """Register the cases of a group under the name of the function."""
    GROUPS[function.__name__] = function
    return function


def read(name: str) -> list[Case]:
    """Return the cases of a group as they are stored."""
    entries = json.loads((FOLDER / f"{name}.json").read_text())
    with np.load(FOLDER / f"{name}.npz") as archive:
        stored = dict(archive)
    cases = []
    for case, entry in entries.items():
        of = lambda part, case=case: {  # noqa: E731
            key.removeprefix(f"{case}/{part}/"): array
            for key, array in stored.items()
            if key.startswith(f"{case}/{part}/")
        }
        texts = entry.pop("texts")
        cases.append(Case(case, **entry, given=of("given"), found=of("found") | texts))
    return cases


def write(name: str, cases: list[Case]) -> None:
    entries, arrays = {}, {}
    for case in cases:
        texts = {key: value for key, value in case.found.items() if isinstance(value, str)}
        entries[case.name] = {
            "kind": case.kind,
            "spec": case.spec,
            "tolerances": dict(case.tolerances),
            "texts": texts,
            "quick": case.quick,
        }
        arrays |= {f"{case.name}/given/{key}": value for key, value in case.given.items()}
        arrays |= {
            f"{case.name}/found/{key}": np.asarray(value) for key, value in case.found.items() if key not in texts
        }
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(entries, indent=1) + "\n")
    np.savez_compressed(FOLDER / f"{name}.npz", **arrays)


# ---- Theory 1 ----

_INPUTS, _EXAMPLES, _TESTED, _POINTS, _DIRECTIONS = 5, 12, 4, 5, 3
_CORRELATED = [[1.4, 0.3], [0.3, 0.6]]


def _network(layers: list, widths: Any, variances: Any = 1.0, temperature: float = 0.3, **options: Any) -> dict:
    """Return the specification of an architecture."""
    return {"layers": layers, "widths": widths, "variances": variances, "temperature": temperature, **options}


_ARCHITECTURES = {
    "one head": _network([1, 1], [7.0, 12.0, 9.0], [1.3, 0.8, 1.7, 0.6]),
    "one layer": _network([3], [30.0, 20.0], [1.2, 0.7, 1.5]),
    "two layers": _network([3, 2], [40.0, 25.0, 60.0], [0.9, 1.3, 0.6, 1.7]),
    "three layers": _network([2, 1, 2], [50.0, 20.0, 30.0, 45.0], [1.1, 0.7, 1.4, 0.9, 1.2]),
    "dense between": _network([2, ["Dense"], 2], [30.0, 20.0, 25.0, 40.0], [1.1, 0.8, 1.4, 0.9, 0.7]),
    "skip first": _network([["Skip", 2, 0.7], 3], [30.0, 30.0, 20.0], [0.8, 1.2, 0.9, 1.3]),
    "skip last": _network([2, ["Skip", ["Dense"], 1.3]], [20.0, 30.0, 30.0], [0.9, 1.4, 0.7, 1.2]),
    "all skips": _network([["Skip", 2, 0.6], ["Skip", 1, 1.2]], [40.0] * 3, [1.3, 0.7, 1.1, 0.8], outputs=2),
    "two outputs": _network([3, 2], [40.0, 25.0, 30.0], [0.9, 1.3, 0.6, 1.7], outputs=2),
    "deep linear": _network([["Dense"], ["Dense"]], [12.0, 20.0, 15.0], [0.8, 1.2, 0.9, 1.3], outputs=3),
    "own layers": _network(
        [["CorrelatedHeads", _CORRELATED, 2], ["Pooling", 0.8], ["TiedHeads", 3]],
        [30.0, 25.0, 25.0, 20.0],
        [1.1, 1.0, 0.8, 1.3, 0.9],
    ),
    "skip around own": _network(
        [["Skip", ["CorrelatedHeads", [[1.5, 0.0], [0.0, 0.5]], 2], 0.9]], [25.0, 25.0], [1.2, 1.0, 0.8]
    ),
    "no layers": _network([], [15.0], [1.2, 0.8], outputs=2),
    "every token": _network([["Skip", 2, 0.7]], [25.0, 25.0], [0.9, 1.3, 0.7], read_tokens=2),
    "every token alone": _network([], [20.0], [1.1, 0.7], read_tokens=3),
    "rich": _network([2, 2], [20.0, 15.0, 30.0], [1.1, 0.8, 1.3, 0.9], richness=1.4),
    "rich outputs": _network([["Skip", 2, 0.7]], [20.0, 20.0], [1.1, 0.8, 1.3], richness=0.6, outputs=2),
    "infinite": _network([2, 2], "inf", [1.1, 0.8, 1.3, 0.9], richness=1.4, width_ratios=[1.0, 0.7, 1.5]),
    "infinite outputs": _network([["Dense"], 2], "inf", 1.2, richness=0.8, outputs=2),
}
_NONLINEAR = {
    "erf": _network([], [15.0], [1.2, 0.8], embedding="erf"),
    "relu": _network([2], [15.0, 10.0], [1.2, 0.7, 1.5], outputs=2, embedding="relu"),
    "quadratic": _network([["Dense"], 2], [15.0, 10.0, 12.0], [1.2, 0.7, 1.5, 0.8], embedding="quadratic"),
    "every token erf": _network([2], [15.0, 15.0], [1.2, 0.7, 1.5], read_tokens=3, embedding="erf"),
    "erf after relu": _network([["Dense", "erf"], 2], [15.0, 10.0, 12.0], [1.2, 0.7, 1.5, 0.8], embedding="relu"),
    "cubic": _network([], [15.0], [1.2, 0.8], embedding="h**3/3 - h"),
    "tanh": _network([2], [15.0, 10.0], [1.2, 0.7, 1.5], embedding="tanh(h)"),
    "deep relu": _network([["Dense", "relu"], ["Dense", "relu"]], [20.0, 15.0, 20.0], embedding="relu"),
}


def _blocks(layer: Any) -> int:
    """Return the number of branches of a layer."""
    if isinstance(layer, int):
        return layer
    name, *arguments = layer
    if name == "Skip":
        return 1 + _blocks(arguments[0])
    return {"Dense": 1, "Pooling": 2, "TiedHeads": 1, "CorrelatedHeads": arguments[-1] if arguments else 0}[name]


def _heads(layer: Any) -> int:
    if isinstance(layer, int):
        return layer
    name, *arguments = layer
    if name == "Skip":
        return _heads(arguments[0])
    return arguments[-1] if name in ("TiedHeads", "CorrelatedHeads") else 0


def _paths(spec: dict) -> int:
    return math.prod(map(_blocks, spec["layers"])) * spec.get("read_tokens", 1)


def _labels(spec: dict, features: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return numbers that depend on all features of the first path, and on noise."""
    shape = (len(features), spec["outputs"]) if spec.get("outputs", 1) > 1 else len(features)
    signal = features[:, 0].sum(axis=1) * np.sqrt(features.shape[1])
    return (signal[:, None] if np.ndim(shape) else signal) + 0.5 * rng.normal(size=shape)


def _linear(spec: dict, seed: int, examples: int = _EXAMPLES, inputs: int = _INPUTS, scale: float = 1.0) -> dict:
    """Draw path features with labels."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(examples + _TESTED, _paths(spec), inputs)) / np.sqrt(_paths(spec))
    labels = scale * _labels(spec, features, rng)
    train, test = slice(examples), slice(examples, None)
    return {
        "features": features[train],
        "labels": labels[train],
        "test_features": features[test],
        "test_labels": labels[test],
    }


def _sequences(spec: dict, seed: int, examples: int = _EXAMPLES, inputs: int = _INPUTS, padded: bool = False) -> dict:
    """Draw sequences of three tokens with labels, heads, and lengths if they are padded."""
    rng = np.random.default_rng(seed)
    every = rng.normal(size=(examples + _TESTED, 3, inputs))
    labels = _labels(spec, every[:, :1] / np.sqrt(inputs), rng)
    train, test = slice(examples), slice(examples, None)
    drawn = {"inputs": every[train], "labels": labels[train], "test_inputs": every[test], "test_labels": labels[test]}
    for place, layer in enumerate(spec["layers"], 1):
        if count := _heads(layer):
            drawn[f"key_query_{place}"] = rng.normal(size=(count, inputs, inputs)) / inputs
    if padded:
        lengths = rng.integers(1, 4, size=len(every))
        drawn |= {"lengths": lengths[train], "test_lengths": lengths[test]}
    return drawn


def _positive_definite(rng: np.random.Generator, size: int) -> np.ndarray:
    factor = rng.normal(size=(size, size + 2))
    return rng.uniform(0.3, 3) * (factor @ factor.T / (size + 2) + 0.1 * np.eye(size))


def _points(spec: dict, seed: int) -> dict:
    """Draw points and directions of the free order parameters, those that are no block of the one below."""
    rng, blocks = np.random.default_rng(seed), list(map(_blocks, spec["layers"]))
    read = spec.get("outputs", 1) * spec.get("read_tokens", 1)
    drawn = {}
    for place in range(len(blocks) + 1):
        below = spec["layers"][place - 1] if place else None
        if isinstance(below, list) and below[0] in ("Skip", "Pooling"):
            continue
        name, size = f"U_{place + 1}" if place < len(blocks) else "u", read * math.prod(blocks[place:])
        points = np.stack([_positive_definite(rng, size) for _ in range(_POINTS)])
        directions = rng.normal(size=(_DIRECTIONS, size, size))
        drawn |= {f"point_{name}": points, f"direction_{name}": (directions + directions.swapaxes(1, 2)) / 2}
    return drawn


@group
def expressions() -> Iterator[Case]:
    """The derived action of every architecture."""
    for name, spec in (_ARCHITECTURES | _NONLINEAR).items():
        entropies = [f"entropy_{layer}" for layer in range(1, len(spec["layers"]) + 2)]
        tolerances = dict.fromkeys((*entropies, "energy", "mean", "covariance"), "expression")
        yield Case(name, "expressions", spec, tolerances, quick=name in ("one layer", "own layers", "infinite"))


@group
def values() -> Iterator[Case]:
    """Values and derivatives of every action at given points."""
    for seed, (name, spec) in enumerate((_ARCHITECTURES | _NONLINEAR).items()):
        drawn = (_linear if name in _ARCHITECTURES else _sequences)(spec, seed) | _points(spec, seed)
        free = [key.removeprefix("point_") for key in drawn if key.startswith("point_")]
        slopes = [f"{part}_{each}" for part in ("gradient", "product") for each in free]
        numbers = ("entropies", "energy", "total", "mean", "variance", "kernel", "gradient_norm")
        yield Case(name, "values", spec, dict.fromkeys((*numbers, *slopes), 1e-12), drawn, quick=name == "one layer")


# Tolerances of what `problem` of `tests/frozen.py` returns. `U` stands for all order parameters.
_SADDLE = {
    "U": 1e-9,
    "action": 1e-12,
    "entropy": 1e-9,
    "energy": 1e-9,
    "log_evidence": 1e-11,
    "action_error": "error",
    "converged": "equal",
    "min_hessian_eigenvalue": 1e-7,
}
_TOLERANCES = {
    "saddle": _SADDLE,
    "prediction": {"mean": 1e-9, "variance": 1e-9},
    "limit": {"limit_U": 1e-14, "limit_entropy": 1e-12, "limit_energy": 1e-12, "limit_mean": 1e-12}
    | {"limit_variance": 1e-12},
    "probabilities": {"probabilities": 1e-8, "log_probability": 1e-8, "decoded": "equal", "encoded": "equal"},
    "fluctuations": {"fluctuating_U": 1e-8, "deviation_U": 1e-8, "fluctuating_mean": 1e-8}
    | {"fluctuating_variance": 1e-8, "fluctuating_evidence": 1e-9},
    "first order": {"first_order_U": 1e-9},
    "heads": {"scores": 1e-9, "scores_at_infinite_width": 1e-12, "rank": "equal", "removable": "equal"}
    | {"cost": 1e-9, "cost_error": "error", "cost_of_prediction": 1e-8, "cost_of_prediction_error": 1e-8},
    "alignment": {"eigenvalues": 1e-9, "cosines": 1e-8},
    "derivatives": {f"slope_{name}": 1e-8 for name in ("temperature", "variances", "widths", "features", "labels")}
    | {"slope_test_features": 1e-8},
    "minima": {"minima": 1e-11, "failures": "equal"},
}
_COMMON = ["saddle", "prediction"]


def _problem(name: str, spec: dict, drawn: dict, *results: str, quick: bool = False, loosened: float = 1.0, **options):
    """Return a problem to solve. Its tolerances that are not of rounding alone are `loosened` by a factor."""
    spec = {**spec, "tolerance": 1e-11, **options, "results": [*_COMMON, *results]}
    tolerances = {}
    for result in spec["results"]:
        for key, tolerance in _TOLERANCES[result].items():
            names = [key]
            if key.endswith("U"):
                names = [f"{key}_{layer}" for layer in range(1, len(spec["layers"]) + 1)] + [f"{key[:-1]}u"]
            loose = isinstance(tolerance, float) and tolerance > 1e-12
            tolerances |= dict.fromkeys(names, tolerance * loosened if loose else tolerance)
    if isinstance(spec["widths"], str):
        tolerances.pop("slope_widths", None)
    if "inputs" in drawn:
        tolerances = {key.replace("features", "inputs"): each for key, each in tolerances.items()}
        if "derivatives" in results:
            tolerances |= {f"slope_{key}": 1e-8 * loosened for key in drawn if key.startswith("key_query")}
    return Case(name, "problem", spec, tolerances, drawn, quick=quick)


def _as_classes(drawn: dict, names: tuple[str, ...]) -> dict:
    """Replace labels by classes of their size."""
    edges = np.quantile(drawn["labels"], np.linspace(0, 1, len(names) + 1)[1:-1])
    coded = {key: np.array(names)[np.digitize(drawn[key], edges)] for key in ("labels", "test_labels")}
    return drawn | coded


@group
def problems() -> Iterator[Case]:
    """Solved problems of every kind."""
    results = {
        "one head": ["limit"],
        "one layer": ["limit", "fluctuations", "first order", "heads", "alignment", "derivatives", "minima"],
        "two layers": ["heads", "minima"],
        "three layers": ["first order"],
        "dense between": ["fluctuations"],
        "skip first": ["limit", "fluctuations", "first order", "derivatives"],
        "skip last": ["first order"],
        "all skips": ["limit"],
        "two outputs": ["fluctuations", "heads"],
        "deep linear": ["fluctuations"],
        "own layers": ["first order", "derivatives"],
        "skip around own": ["fluctuations"],
        "no layers": ["first order"],
        "every token": ["fluctuations", "first order"],
        "every token alone": ["limit"],
        "rich": ["fluctuations", "first order", "heads"],
        "rich outputs": [],
        "infinite": ["limit", "fluctuations", "heads", "derivatives", "minima"],
        "infinite outputs": ["heads"],
    }
    for seed, (name, spec) in enumerate(_ARCHITECTURES.items(), 100):
        yield _problem(name, spec, _linear(spec, seed), *results[name])

    one, two = _ARCHITECTURES["one layer"], _ARCHITECTURES["two outputs"]
    few = _network([2], 10.0, [1.1, 0.8, 1.3], 0.2)
    yield _problem("few paths", few, _linear(few, 130), "limit", quick=True)
    yield _problem("narrow", few | {"widths": 1.0}, _linear(few, 131))
    yield _problem("wide", few | {"widths": 1e5}, _linear(few, 132), "first order")
    yield _problem("large labels", few, _linear(few, 133, scale=30.0))
    yield _problem("cold", few | {"temperature": 1e-8}, _linear(few, 134, examples=8), "fluctuations")
    yield _problem("interpolation", few | {"temperature": 0.0}, _linear(few, 135, examples=8))
    yield _problem("many examples", few, _linear(few, 136, examples=40, inputs=4), "fluctuations")
    yield _problem("many examples, cold", few | {"temperature": 1e-6}, _linear(few, 137, examples=40, inputs=4))
    yield _problem("many examples, outputs", two, _linear(two, 138, examples=40, inputs=4), "heads")
    yield _problem("moments", few, _linear(few, 139, examples=40, inputs=4), "heads", moments=True)
    yield _problem("moments, outputs", two, _linear(two, 140, examples=40, inputs=4), moments=True)
    yield _problem("moments, few examples", one, _linear(one, 141), moments=True)
    infinite = _ARCHITECTURES["infinite"]
    yield _problem("moments, infinite", infinite, _linear(infinite, 142), moments=True)

    for coding in ("signs", "one-hot"):
        spec = few | {"outputs": 3, "coding": coding}
        drawn = _as_classes(_linear(few, 143), ("low", "middle", "high"))
        yield _problem(f"three classes, {coding}", spec, drawn, "probabilities")
    drawn = _as_classes(_linear(few, 144), ("left", "right"))
    yield _problem("two classes", few | {"coding": "signs"}, drawn, "probabilities")

    for seed, (name, spec) in enumerate(_NONLINEAR.items(), 150):
        more = {"every token erf": ["derivatives"], "relu": ["fluctuations"], "tanh": ["first order", "heads"]}
        yield _problem(name, spec, _sequences(spec, seed), "limit", *more.get(name, ()))
    theories = {
        "mean": (_NONLINEAR["relu"] | {"outputs": 1}, ["U_1", "V_1", "u"]),
        "nested": (_NONLINEAR["deep relu"], ["Q_1", "Q_2", "Q_3"]),
    }
    for seed, (name, (spec, order_parameters)) in enumerate(theories.items(), 160):
        tolerances = dict.fromkeys((*order_parameters, "mean", "variance"), 1e-7) | {"action": 1e-11}
        drawn = _sequences(spec, seed)
        yield Case(f"{name} theory", "other_theories", spec | {"theory": name}, tolerances, drawn)

    spec = _network([2, 2], 20.0, [1.1, 0.8, 1.3, 0.9], 0.2)
    yield _problem("sequences", spec, _sequences(spec, 170), readout="mean", mask="causal")
    yield _problem("padded sequences", spec, _sequences(spec, 171, padded=True), readout="mean")
    spec = few | {"read_tokens": 3}
    yield _problem("padded sequences, every token", spec, _sequences(spec, 172, padded=True))

    names = ("U_1", "u", "action", "log_evidence", "mean", "variance", "converged", "head_score_1", "test_error")
    tolerances = {"U_1": 1e-7, "u": 1e-7, "action": 1e-12, "log_evidence": 1e-10, "mean": 1e-7, "variance": 1e-7}
    tolerances |= {"converged": "equal", "head_score_1": 1e-7, "test_error": 1e-7}
    spec = few | {"all_widths": [5.0, 40.0, "inf"], "temperatures": [0.05, 0.5], "results": names}
    yield Case("sweep", "sweep", spec, tolerances, _linear(few, 180))


# Functions of hidden units, with the accuracy of their kernels.
_FUNCTIONS = {
    "erf": ("erf", 1e-12),
    "relu": ("relu", 1e-12),
    "quadratic": ("quadratic", 1e-13),
    "tanh": ("tanh(h)", 1e-10),
    "sine": ("sin(2*h)", 1e-11),
    "cubic": ("h**3/3 - h", 1e-12),
    "logistic": ("1/(1 + exp(-h))", 1e-10),
    "gelu": ("h*(1 + erf(h/sqrt(2)))/2", 1e-10),
    "bump": ("exp(-h**2/2)", 1e-11),
    "softplus": ("log(1 + exp(h))", 1e-10),
    "absolute value": ("Abs(h)", 1e-10),
    "leaky relu": ("Max(h, h/10)", 1e-10),
    "squared relu": ("Max(h, 0)**2", 1e-10),
    "hard tanh": ("Max(-1, Min(1, h))", 1e-10),
}


@group
def functions() -> Iterator[Case]:
    """Kernels of functions at pairs of variances and correlations, among them 1, -1 and nearly 1."""
    angles = np.array([0.0, 1e-4, 0.05, 0.7, np.pi / 2, 2.0, np.pi])
    radii = np.sqrt(2 * np.array([0.05, 0.4, 1.0, 3.0, 9.0]))
    inputs = np.concatenate([radius * np.stack([np.cos(angles), np.sin(angles)], axis=1) for radius in radii])
    for name, (function, tolerance) in _FUNCTIONS.items():
        quick, spec = name in ("relu", "tanh", "cubic"), {"function": function}
        yield Case(name, "kernel_of_function", spec, {"kernel": tolerance}, {"inputs": inputs}, quick=quick)


@group
def networks() -> Iterator[Case]:
    """Attention and path features of inputs, finite networks and their order parameters."""
    spec = _network([2, ["Dense"], ["Skip", 3, 0.7]], [5.0, 4.0, 6.0, 6.0], [1.1, 0.8, 0.9, 1.3, 0.9])
    tolerances = {"attention_1": 1e-13, "attention_2": 1e-13, "features": 1e-13}
    for seed, (name, more) in enumerate(
        {
            "last": {},
            "first, causal": {"readout": "first", "mask": "causal"},
            "mean, padded": {"readout": "mean"},
            "last, padded and causal": {"mask": "causal"},
            "every token": {"read_tokens": 3},
        }.items(),
        200,
    ):
        drawn = _sequences(spec, seed, padded="padded" in name)
        drawn = {key: each for key, each in drawn.items() if "labels" not in key and "test" not in key}
        yield Case(f"features, {name}", "path_features", spec | more, tolerances, drawn, quick=name == "last")

    tolerances = {f"U_{layer}": 1e-12 for layer in (1, 2, 3)} | {"u": 1e-12, "outputs": 1e-12, "pruned_outputs": 1e-12}
    for seed, outputs in enumerate((1, 2), 210):
        rng, given = np.random.default_rng(seed), spec | {"outputs": outputs, "removed": [[1, 2], [3, 1]]}
        shapes = (5, _INPUTS), (4, 10), (6, 4), (6, 18), (outputs, 6)
        drawn = {f"weights_{place}": rng.normal(size=shape) for place, shape in enumerate(shapes)}
        drawn |= {key: each for key, each in _sequences(spec, seed).items() if key in ("inputs", "key_query_1")}
        drawn["key_query_3"] = rng.normal(size=(3, _INPUTS, _INPUTS))
        shared = {**given, "widths": [5.0, 4.0, 6.0, 6.0]}
        yield Case(f"network, {outputs} outputs", "network", shared, tolerances, drawn, quick=outputs == 1)


@group
def models() -> Iterator[Case]:
    """The estimator: numbers and classes, padded and causal, at finite and infinite widths."""
    settings = {"layers": [2], "widths": 20, "temperature": 0.1}
    numbers = dict.fromkeys(("predicted", "score", "mean", "variance", "scores", "path_weights", "kernel"), 1e-8)
    numbers["log_evidence"] = 1e-11
    classes = numbers | {"predicted": "equal", "score": 1e-12, "classes": "equal", "probabilities": 1e-8}
    for seed, (name, more) in enumerate(
        {
            "numbers": {},
            "numbers, causal": {"mask": "causal", "readout": "first"},
            "two classes": {"readout": "mean"},
            "three classes, padded": {"readout": "mean"},
            "two classes, every token": {"readout": "all", "prior_variances": 1.4},
            "two classes, Gaussian process": {"widths": "inf"},
            "numbers, infinite": {"widths": "inf", "richness": 0.8},
        }.items(),
        220,
    ):
        drawn = _sequences(_network([2], 20.0), seed, examples=24, inputs=4, padded="padded" in name)
        drawn["key_query"] = drawn.pop("key_query_1")
        if "classes" in name:
            drawn = _as_classes(drawn, ("down", "up") if "two" in name else ("a", "b", "c"))
        tolerances = classes if "classes" in name else numbers
        yield Case(name, "model", settings | more, tolerances, drawn, quick=name == "numbers")


@group
def samples() -> Iterator[Case]:
    """Posterior means of three samplers."""
    architectures = {
        "one layer": _network([2], [12.0, 12.0], [1.1, 0.8, 1.3]),
        "outputs": _network([2, ["Dense"]], [10.0, 8.0, 10.0], temperature=0.5, outputs=2),
    }
    for seed, (name, spec) in enumerate(architectures.items(), 230):
        for sampler in ("order parameters", "weights", "gibbs"):
            draws = 2000 if sampler == "gibbs" else 400
            schedule = {"chains": 4, "warmup": 300, "draws": draws}
            names = ["U_1", "u", "mean" if sampler == "order parameters" else "sampled_output"]
            given = spec | {"sampler": sampler, "schedule": schedule, "results": names}
            drawn = _linear(spec, seed, examples=5, inputs=3)
            yield Case(f"{name}, {sampler}", "sample", given, dict.fromkeys(names, "sample"), drawn)


# ---- Own actions and theories ----


# ---- Dynamics ----


def main() -> None:
    import theorykit
    from tests.frozen import KINDS

    theorykit.enable_float64()
    for name in sys.argv[1:] or GROUPS:
        # Results that were frozen before stay as they are.
        stored = {case.name: case for case in read(name)} if (FOLDER / f"{name}.json").exists() else {}
        for case in GROUPS[name]():
            if case.name not in stored:
                case.found = dict(KINDS[case.kind](case.spec, case.given))
                stored[case.name] = case
                write(name, list(stored.values()))
                print(name, case.name, flush=True)


if __name__ == "__main__":
    main()
