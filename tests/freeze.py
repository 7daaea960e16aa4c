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
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr

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
    yield _problem("wide", few | {"widths": 1e5}, _linear(few, 132), "first order", loosened=30.0)
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

SYMBOLS = {
    **dict.fromkeys(["m", "m_hat", "h", "x", "y", "kappa", "lam", "z", "a", "b", "Delta"], "real"),
    **dict.fromkeys(["q", "q_hat", "V", "V_hat", "s", "r", "C", "p", "alpha", "ridge", "beta", "T"], "positive"),
    "sigma2": "nonnegative",
}


def _own(expression: str, order_parameters: dict[str, list], parameters: str, **matrices: str) -> dict:
    """Return the spec of an action, with the symbols that its formula needs."""
    words = set(re.findall(r"\w+", " ".join([expression, *order_parameters, parameters])))
    symbols = {name: f"Symbol('{name}', {kind}=True)" for name, kind in SYMBOLS.items() if name in words - {*matrices}}
    return {
        "symbols": {**symbols, **matrices},
        "expression": expression,
        "order_parameters": order_parameters,
        "parameters": parameters.split(),
    }


REAL, POSITIVE, UNIT = ["Real"], ["Positive"], ["Between", 0.0, 1.0]
CURIE_WEISS = _own("m**2 / 2 - log_cosh(beta * (m + h)) / beta", {"m": REAL}, "beta h")
GLASS = _own(
    "-beta**2 * (1 - q)**2 / 4 - gaussian_average(log_cosh(beta * (sqrt(q) * z + h)), z)", {"q": UNIT}, "beta h"
)
SPHERICAL = _own(
    "beta**2 * (1 - q**3) / 4 + beta**2 * h**2 * (1 - q) / 2 + (log(1 - q) + q / (1 - q)) / 2", {"q": UNIT}, "beta h"
)
RIDGE = _own(
    "m * m_hat - (q * V_hat - V * q_hat) / 2 - (m_hat**2 + q_hat) / (2 * (ridge + V_hat))"
    " + alpha * (1 - 2 * m + q + sigma2) / (2 * (1 + V))",
    {"m": REAL, "m_hat": REAL, "q": POSITIVE, "q_hat": POSITIVE, "V": POSITIVE, "V_hat": POSITIVE},
    "alpha ridge sigma2",
)
PERCEPTRON = _own(
    "alpha * gaussian_average(log_normal_cdf(-(kappa + sqrt(q) * z) / sqrt(1 - q)), z)"
    " + log(1 - q) / 2 + q / (2 * (1 - q))",
    {"q": UNIT},
    "alpha kappa",
)
HINGE = _own(
    "(ridge - 1 / V) * (m**2 + s) / 2 + m**2 / (2 * V)"
    " + alpha * gaussian_average((2 - erfc(m * z / sqrt(2 * s + 2 * sigma2 * (m**2 + s)))) * Piecewise("
    "(1 - V / 2 - z * sqrt(m**2 + s), V < 1 - z * sqrt(m**2 + s)),"
    " ((1 - z * sqrt(m**2 + s))**2 / (2 * V), z * sqrt(m**2 + s) <= 1), (0, True)), z)",
    {"m": REAL, "s": POSITIVE, "V": POSITIVE},
    "alpha ridge sigma2",
)
HOPFIELD = _own(
    "m**2 / 2 + alpha * r * C / 2 - alpha / (2 * (1 - C)) - gaussian_average(Abs(m + sqrt(alpha * r) * z), z)",
    {"m": REAL, "r": POSITIVE, "C": UNIT},
    "alpha",
)
BLUME_CAPEL = _own("m**2 / 2 - T * log(1 + 2 * exp(-Delta / T) * cosh(m / T))", {"m": REAL}, "Delta T")
LANDAU = _own("a * m**2 / 2 + b * m**4 / 4 + m**6 / 6", {"m": REAL}, "a b")
POTTS = _own(
    "-(q**2 + r**2 + (1 - q - r)**2) / 2 + (q * log(q) + r * log(r) + (1 - q - r) * log(1 - q - r)) / beta - h * q",
    {"q": UNIT, "r": UNIT},
    "beta h",
)
MATRIX, STUDENT = "positive_definite('K', 3)", "positive_definite('U', 3)"
WISHART = _own("Trace(K * U) - log_det(U)", {"U": ["PositiveDefinite"]}, "K", K=MATRIX, U=STUDENT)
RAYLEIGH = _own(
    "Trace(x.T * K * x) / 2 + lam * (Trace(x.T * x) - 1)",
    {"x": REAL, "lam": REAL},
    "K",
    K=MATRIX,
    x="MatrixSymbol('x', 3, 1)",
)
CONJUGATES = _own(
    "-Trace(K_hat * K) / 2 + log_det(assume_positive_definite(inverse(C) + K_hat)) / 2 + log_det(C) / 2"
    " + alpha * log_det(Identity(2) + K) / 2",
    {"K_hat": ["Symmetric"], "K": ["PositiveDefinite"]},
    "C alpha",
    K_hat="symmetric('K_hat', 2)",
    K="positive_definite('K', 2)",
    C="positive_definite('C', 2)",
)


def _eight(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return eight points of a grid of 16 x 16, at other values of both parameters."""
    return first[7:15], second[:15:2]


@group
def replicas() -> Iterator[Case]:
    """Yield six replica actions at eight points each, some next to a transition or at small ridge."""
    fields = np.append(0.0, np.geomspace(1e-6, 0.5, 15))
    near = 1 + np.array([-1e-2, -1e-3, 1e-3, 1e-2])
    critical = lambda low, high: np.append(np.linspace(low, high, 12), near)  # noqa: E731
    margins, loads = _eight(np.linspace(0, 1, 16), np.linspace(0.05, 0.97, 16))
    # Gardner's capacity at each margin.
    capacity = 1 / ((1 + margins**2) * ndtr(margins) + margins * np.exp(-(margins**2) / 2) / np.sqrt(2 * np.pi))
    strengths, noise = np.geomspace(1e-7, 1, 16), {"sigma2": np.full(8, 0.25)}
    start = {"m": 0.5, "m_hat": 0.5, "q": 1.0, "q_hat": 1.0, "V": 1.0, "V_hat": 1.0}
    pair = lambda names, values: dict(zip(names.split(), values, strict=True))  # noqa: E731
    for name, action, index, initial, given in (
        ("curie_weiss", CURIE_WEISS, 0, {"m": 1.0}, pair("beta h", _eight(critical(0.5, 1.5), fields))),
        ("glass", GLASS, 1, {"q": 0.5}, pair("beta h", _eight(critical(0.4, 2.0), fields))),
        ("spherical", SPHERICAL, 0, {"q": 0.01}, pair("beta h", _eight(np.linspace(0.3, 1.5, 16), fields))),
        ("ridge", RIDGE, 3, start, pair("alpha ridge", _eight(critical(0.3, 3.0), strengths)) | noise),
        ("perceptron", PERCEPTRON, 0, {"q": 0.5}, {"alpha": loads * capacity, "kappa": margins}),
        (
            "hinge",
            HINGE,
            1,
            {"m": 0.5, "s": 0.5, "V": 1.0},
            pair("alpha ridge", _eight(np.linspace(0.5, 6, 16), np.geomspace(1e-3, 1, 16))) | {"sigma2": np.zeros(8)},
        ),
    ):
        spec = {**action, "index": index, "initial": initial}
        tolerances = {"S": 1e-11, "S_error": "error", "converged": "equal"} | dict.fromkeys(initial, 1e-8)
        yield Case(name, "stationary_points", spec, tolerances, given, quick=name == "curie_weiss")


def _start(index: int = 0, **initial: float) -> dict:
    return {"index": index, "initial": initial}


@group
def textbook() -> Iterator[Case]:
    """Yield branches, transitions, phase diagrams, searches, eliminations and derivatives of textbook actions.

    Only events are compared that do not depend on the steps along a branch or a boundary.
    """
    yield from _branches()
    yield from _transitions()
    yield from _diagrams()
    yield from _searches()
    yield from _expressions()


def _branches() -> Iterator[Case]:
    far = _start(0, m=1.0)
    capped = {"largest_step": 0.05}
    for name, action, values, start, parameter, bounds, direction, at, indices, options, quick in (
        ("hysteresis", CURIE_WEISS, {"beta": 1.5, "h": 0.4}, far, "h", (-0.4, 0.4), -1, 0.01, (0, 1, 0), {}, True),
        ("magnet", CURIE_WEISS, {"beta": 1.2, "h": 0.0}, far, "beta", (0.9, 1.3), -1, 1.1, (0, 0), {}, False),
        (
            *("blume_capel", BLUME_CAPEL, {"T": 0.2, "Delta": 0.48}, far, "Delta", (0.4, 0.6), 1),
            *(0.45, (1, 1, 0), {}, False),
        ),
        ("landau", LANDAU, {"a": 0.2, "b": -1.0}, far, "a", (-0.1, 0.4), 1, 0.21, (0, 1, 1, 0), {}, False),
        ("glass", GLASS, {"beta": 2.0, "h": 0.1}, _start(1, q=0.5), "h", (0.02, 0.1), -1, 0.05, (1,), {}, False),
        (
            *("hopfield", HOPFIELD, {"alpha": 0.12}, _start(1, m=0.98, r=1.3, C=0.13), "alpha", (0.11, 0.2), 1),
            *(0.13, (1, 2), capped, False),
        ),
    ):
        spec = {"values": values, "start": start, "parameter": parameter, "bounds": bounds, "direction": direction}
        spec |= {"at": at, "indices": indices, "options": options}
        tolerances = {"kinds": "equal", "turns": 1e-8, "indices": "equal", "S": 1e-11, "solutions": 1e-8}
        if name in ("blume_capel", "landau", "magnet"):
            # At a branch point the gradient vanishes to third order.
            tolerances["turns"] = 1e-6
        else:
            tolerances["turning_points"] = 1e-5
        yield Case(f"branch_{name}", "branch", {**action, **spec}, tolerances, quick=quick)


def _transitions() -> Iterator[Case]:
    up = _start(0, m=1.0)
    for name, action, values, starts, parameter, bounds in (
        ("continuous", CURIE_WEISS, {"beta": 1.5, "h": 0.0}, (up, _start(1, m=0.01)), "beta", (0.5, 2.0)),
        ("second_order", BLUME_CAPEL, {"T": 0.4, "Delta": 0.2}, (up, _start(1, m=0.001)), "Delta", (0.1, 0.7)),
        ("coexistence", BLUME_CAPEL, {"T": 0.2, "Delta": 0.47}, (up, _start(0, m=0.0)), "Delta", (0.42, 0.52)),
        ("landau", LANDAU, {"a": 0.2, "b": -1.0}, (up, _start(0, m=0.0)), "a", (0.1, 0.24)),
    ):
        spec = {"values": values, "starts": starts, "parameter": parameter, "bounds": bounds}
        # At a continuous transition the order parameter is a root of the error.
        tolerances = {"kind": "equal", "value": 1e-9, "error": "error"}
        if name in ("coexistence", "landau"):
            tolerances["solutions"] = 1e-7
        yield Case(f"transition_{name}", "transition", {**action, **spec}, tolerances)


def _diagrams() -> Iterator[Case]:
    for name, action, ranges, options, cuts in (
        (
            *("curie_weiss", CURIE_WEISS, {"h": (-1, 1), "beta": (0.6, 4)}, {}),
            (("spinodal", "beta", 1.5), ("spinodal", "h", 0.3)),
        ),
        (
            *("blume_capel", BLUME_CAPEL, {"Delta": (0, 0.6), "T": (0.05, 0.8)}, {}),
            (("continuous transition", "T", 0.5), ("spinodal", "T", 0.2), ("coexistence", "T", 0.15)),
        ),
        (
            *("landau", LANDAU, {"a": (-1, 1), "b": (-2, 1)}, {"scans": 2}),
            (("spinodal", "b", -1.0), ("coexistence", "b", -1.5)),
        ),
        (
            *("potts", POTTS, {"h": (-0.08, 0.05), "beta": (2.5, 3.2)}, {"scans": 8, "starts": 24}),
            (("coexistence", "beta", 2.73),),
        ),
    ):
        numbers = {f"cut_{number}": 1e-3 for number in range(len(cuts))}
        stable = {f"stable_{number}": "equal" for number in range(len(cuts))}
        tolerances = {"lines": "equal", "critical_kinds": "equal", "critical_points": 1e-8, **numbers, **stable}
        if name == "landau":
            # Its tricritical point is the origin, to which no error is relative.
            del tolerances["critical_points"]
        spec = {"ranges": ranges, "options": options, "cuts": cuts}
        yield Case(f"diagram_{name}", "phase_diagram", {**action, **spec}, tolerances)


def _definite(rng: np.random.Generator, size: int) -> np.ndarray:
    """Draw a positive definite matrix of well separated eigenvalues."""
    vectors, _ = np.linalg.qr(rng.normal(size=(size, size)))
    return (vectors * (np.arange(1, size + 1) + rng.uniform(-0.3, 0.3, size))) @ vectors.T


def _searches() -> Iterator[Case]:
    rng = np.random.default_rng(0)
    for name, action, values, index, options, given in (
        ("curie_weiss", CURIE_WEISS, {"beta": 1.5, "h": -0.01}, 0, {}, {}),
        ("curie_weiss_saddle", CURIE_WEISS, {"beta": 1.5, "h": -0.01}, 1, {}, {}),
        ("landau", LANDAU, {"a": 0.2, "b": -1.0}, 0, {}, {}),
        ("glass", GLASS, {"beta": 1.5, "h": 0.1}, 1, {}, {}),
        ("hopfield", HOPFIELD, {"alpha": 0.12}, 1, {}, {}),
        ("potts", POTTS, {"beta": 2.9, "h": 0.0}, 0, {"starts": 64}, {}),
        *((f"rayleigh_{i}", RAYLEIGH, {}, i, {"starts": 100}, {"K": _definite(rng, 3)}) for i in (1, 2, 3)),
        ("wishart", WISHART, {}, 0, {}, {"K": _definite(rng, 3)}),
    ):
        spec = {"values": values, "index": index, "options": options}
        yield Case(f"search_{name}", "search", {**action, **spec}, {"solutions": 1e-8}, given)


def _expressions() -> Iterator[Case]:
    """Yield expressions that an action derives from itself, and derivatives of solutions."""
    rng = np.random.default_rng(1)
    numbers = lambda names: {name: rng.uniform(0.3, 0.7, 5) for name in names.split()}  # noqa: E731
    for name, action, symbols, given in (
        ("ridge", RIDGE, ["q_hat", "V_hat", "m_hat"], numbers("m q V alpha ridge sigma2")),
        ("ridge_overlaps", RIDGE, ["m", "m_hat"], numbers("q q_hat V V_hat alpha ridge sigma2")),
        (
            *("conjugates", CONJUGATES, ["K_hat"]),
            {key: [_definite(rng, 2) for _ in range(5)] for key in ("K", "C")} | numbers("alpha"),
        ),
    ):
        given = {key: np.array(values) for key, values in given.items()}
        found = {"ridge": ["V_hat", "m_hat"], "ridge_overlaps": ["m_hat"], "conjugates": ["K_hat"]}[name]
        tolerances = {"S": 1e-12, **dict.fromkeys(["expression", *found], "expression")}
        yield Case(f"elimination_{name}", "elimination", {**action, "eliminated": symbols}, tolerances, given, True)
    for name, action, given in (
        ("curie_weiss", CURIE_WEISS, numbers("m beta h")),
        ("glass", GLASS, numbers("q beta h")),
        ("ridge", RIDGE, numbers("m m_hat q q_hat V V_hat alpha ridge sigma2")),
        ("hopfield", HOPFIELD, numbers("m r C alpha")),
    ):
        yield Case(f"map_{name}", "fixed_point", action, dict.fromkeys(action["order_parameters"], 1e-9), given, True)
    start = {"m": 0.5, "m_hat": 0.5, "q": 1.0, "q_hat": 1.0, "V": 1.0, "V_hat": 1.0}
    for name, action, at, given, order in (
        ("curie_weiss", CURIE_WEISS, _start(0, m=1.0), {"beta": 1.5, "h": 0.01}, 2),
        ("glass", GLASS, _start(1, q=0.5), {"beta": 1.5, "h": 0.1}, 1),
        ("ridge", RIDGE, _start(3, **start), {"alpha": 1.5, "ridge": 0.1, "sigma2": 0.25}, 2),
        ("wishart", WISHART, {"index": 0, "initial": {"U": np.eye(3).tolist()}}, {"K": _definite(rng, 3)}, 1),
    ):
        tolerances = {"first": 1e-8} | ({"second": 1e-7} if order == 2 else {})
        given = {key: np.asarray(value) for key, value in given.items()}
        spec = {**action, "start": at, "order": order}
        yield Case(f"derivatives_{name}", "derivatives", spec, tolerances, given)


@group
def theories() -> Iterator[Case]:
    """Yield the three theories at five points each."""
    rng = np.random.default_rng(0)
    draw = lambda low, high: np.exp(rng.uniform(np.log(low), np.log(high), 5))  # noqa: E731
    of_students = dict.fromkeys(("error", "loss", "S", "m", "s", "V"), 1e-8)
    for name, loss, labels in (
        ("square", "(Symbol('x', real=True) - Symbol('y', real=True))**2 / 2", "linear"),
        ("hinge", "Max(0, 1 - Symbol('x', real=True) * Symbol('y', real=True))", "sign"),
        ("logistic", "log(1 + exp(-Symbol('x', real=True) * Symbol('y', real=True)))", "sign"),
    ):
        given = {"alpha": draw(0.5, 4), "lambda_": draw(0.01, 1), "sigma2": draw(0.05, 1)}
        spec = {"loss": loss, "labels": labels}
        yield Case(f"empirical_risk_{name}", "empirical_risk_students", spec, of_students, given)
    given = {"alpha": draw(0.3, 5), "tau": draw(0.2, 4), "kappa": draw(0.2, 4), "rho": draw(0.01, 1)}
    given["ridge"] = np.geomspace(1e-6, 1, 5)
    yield Case("in_context", "in_context_errors", {}, {"icl": 1e-9, "idg": 1e-9, "epsilon": 1e-9}, given)
    rho, tokens = np.array([0.1, 0.5, 1.0, 2.0, 0.4]), np.array([2, 2, 3, 5, 2])
    shares = np.array([0.3, 0.9, 0.5, 0.6, 0.1])
    threshold = (1 - np.maximum(0, 1 - rho) ** 2) / (tokens**2 + tokens - 2)
    tolerances = {"mmse": 1e-9, "S": 1e-9, "order_parameters": 1e-8}
    for output, given in (
        ("softmax", {"alpha": shares * threshold, "rho": rho, "tokens": tokens}),
        ("hardmax", {"alpha": np.array([0.02, 0.1, 0.4, 1.0, 3.0]), "rho": rho, "tokens": np.full(5, 2)}),
    ):
        spec = {"output": output}
        yield Case(f"learned_attention_{output}", "learned_attention_errors", spec, tolerances, given)


@group
def random_actions() -> Iterator[Case]:
    """Yield 2,000 random actions. They are data, which was drawn once."""
    yield from read("random_actions")


# Layers, outputs and paths. Widths, variances, temperatures and label sizes are drawn between powers of ten.
STRUCTURES = {
    "2": ([2], 1, 2),
    "2_2": ([2, 2], 1, 4),
    "3_1": ([3, 1], 1, 3),
    "2_2_2": ([2, 2, 2], 1, 8),
    "skip": ([["Skip", 2, 0.7], 2], 1, 6),
    "dense": ([2, ["Dense"], 2], 1, 4),
    "two_outputs": ([2, 2], 2, 4),
}
SIZES = ((5, 20), (12, 3), (40, 3), (40, 20))
WIDTHS, VARIANCES, TEMPERATURES, LABELS, HUGE = (0, 4), (-6, 6), (-8, 4), (-4, 4), (2, 7)
# Integers per standard deviation of features and labels.
STEPS = 16


@group
def ill_conditioned() -> Iterator[Case]:
    """Yield 2,000 ill-conditioned problems of theory 1; a case has those of one structure and size."""
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(2000, np.full(28, 1 / 28))
    for (structure, (layers, outputs, paths)), (examples, features), count in zip(
        [each for each in STRUCTURES.items() for _ in SIZES], [*SIZES] * len(STRUCTURES), drawn, strict=True
    ):
        powers = lambda exponents, *shape, count=count: 10.0 ** rng.uniform(*exponents, (count, *shape))  # noqa: E731
        widths = np.ceil(powers(WIDTHS, len(layers) + 1))
        if structure == "skip":
            widths[:, 1] = widths[:, 0]
        labels = _integers(rng, (count, examples, *([outputs] if outputs > 1 else [])))
        labels = np.where(rng.random((count, *[1] * (labels.ndim - 1))) < 0.5, STEPS * np.sign(labels), labels)
        shapes = [_features(rng, examples, paths, features) for _ in range(count)]
        given = {
            "widths": widths,
            "variances": powers(VARIANCES, len(layers) + 2),
            "temperature": powers(TEMPERATURES),
            "features": np.array([each for each, _ in shapes]),
            "scale": np.array([scale for _, scale in shapes]),
            "labels": labels.astype(np.int8),
            "label_scale": powers(LABELS) / STEPS,
        }
        spec = {"layers": layers, "outputs": outputs}
        name = f"{structure}-{examples}x{features}"
        yield Case(name, "ill_conditioned", spec, {}, given, quick=name == "2-12x3")


def _integers(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.clip(np.rint(STEPS * rng.standard_normal(shape)), -127, 127).astype(np.int8)


def _features(rng: np.random.Generator, examples: int, paths: int, features: int) -> tuple[np.ndarray, float]:
    """Return integers and the factor that makes them features: regular, of low rank, repeated, partly zero or huge."""
    kind, scale = rng.integers(5), 1 / np.sqrt(paths * features)
    values = _integers(rng, (examples, paths, features))
    if kind == 1:
        rank = int(rng.integers(1, min(examples, paths * features)))
        left, right = rng.standard_normal((examples, rank)), rng.standard_normal((rank, paths * features))
        # Small integers other than zero, so that their sums are exact and below 128.
        left, right = (np.sign(each) * np.ceil(np.abs(each)) for each in (left, right))
        product = left @ right
        assert np.max(np.abs(product)) < 128
        return product.reshape(values.shape).astype(np.int8), scale / np.sqrt(5 * rank)
    if kind == 2:
        values[examples // 2 :] = values[: examples - examples // 2]
    if kind == 3:
        values[rng.random(examples) < 0.3] = 0
        values[:, rng.integers(paths)] = 0
    if kind == 4:
        scale *= float(10.0 ** rng.uniform(*HUGE))
    return values, scale / STEPS


# ---- Dynamics ----

PUBLISHED = Path(__file__).parent / "data" / "dmft"
# Sixty tokens amplify rounding by up to 1e2 on regular orbits, and twelve tokens by less than 1e2 on chaotic ones.
REGULAR, CHAOTIC = 1e-12, 1e-11


def signs(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.choice(np.array([-1, 1], dtype=np.int8), size=shape)


def drawn_weights(
    rng: np.random.Generator, patterns: int, neurons: int, bits: int, segments: int | None = None
) -> dict[str, np.ndarray]:
    """Draw independent signs, or with `segments` one column of signs for each segment of the neurons."""
    columns = signs(rng, 4, patterns, segments or neurons)
    semantic = np.repeat(columns, -(-neurons // columns.shape[2]), axis=2)[..., :neurons]
    return {"semantic": semantic, "positional": signs(rng, 4, patterns, bits)}


def published(kind: str, case: str) -> tuple[dict[str, np.ndarray], dict, Any]:
    """Return weights of a published case, its parameters, and its other arrays."""
    about = next(each for each in json.loads((PUBLISHED / "manifest.json").read_text())[kind] if each["case"] == case)
    with np.load(PUBLISHED / f"dmft_{kind}.npz") as stored:
        arrays = {key.removeprefix(f"{case}/"): stored[key] for key in stored if key.startswith(f"{case}/")}
    bits = about["P"]
    weights = {"semantic": arrays["W"][..., :-bits], "positional": arrays["W"][..., -bits:]}
    spec = {"context": about["L"], **{name: about[name] for name in ("beta", "gamma", "epsilon")}}
    return weights, spec, arrays


def first_pattern(weights: dict[str, np.ndarray]) -> np.ndarray:
    return weights["semantic"][0, 0]


def settings(context: int, beta: Any, gamma: Any, epsilon: Any) -> dict:
    return {"context": context, "beta": beta, "gamma": gamma, "epsilon": epsilon}


def trajectory_case(name: str, weights: dict, spec: dict, convention: str, *, steps: int, quick: bool) -> Case:
    tolerance = REGULAR if steps > 12 else CHAOTIC
    tolerances = {"attention": tolerance, "overlaps": tolerance, "positions": "equal"}
    if steps > 12:
        tolerances["later"] = 1e-10
    spec = {**spec, "convention": convention, "steps": steps, "later": 20}
    given = weights if "window" in weights else {**weights, "prompt": first_pattern(weights)}
    return Case(f"trajectory {name}", "trajectory", spec, tolerances, given, quick)


@group
def trajectories() -> Iterator[Case]:
    weights, spec, _ = published("trajectories", "c066")
    for beta, steps in ((0.5, 30), (1.24, 30), (1.4, 12)):
        for convention in ("token", "window"):
            name, quick = f"published {beta} {convention}", beta == 1.24 and convention == "window"
            at = {**spec, "beta": beta}
            yield trajectory_case(name, weights, at, convention, steps=steps, quick=quick)
    # Patterns, neurons, positional bits, segments, context, beta, gamma, epsilon, and the convention.
    for number, (*drawn, context, beta, gamma, epsilon, convention) in enumerate(
        (
            (1, 40, 1, None, 1, 2.5, 4.0, 0.1, "token"),
            (2, 30, 2, None, 3, 1.5, 4.0, 0.1, "token"),
            (2, 60, 4, 6, 11, 2.0, 35.0, 0.05, "token"),
            (3, 50, 2, 4, 4, 1.0, 0.0, 0.3, "token"),
            (3, 50, 5, 7, 32, 1.2, 1e6, 0.02, "token"),
            (5, 96, 3, 6, 8, 2.0, 1.3, 0.03, "window"),
            (6, 60, 2, 4, 4, 2.5, 1.1, 0.5, "token"),
        )
    ):
        weights = drawn_weights(np.random.default_rng(100 + number), *drawn)
        spec = settings(context, beta, gamma, epsilon)
        yield trajectory_case(f"drawn {number}", weights, spec, convention, steps=16, quick=False)
    rng = np.random.default_rng(120)
    weights = drawn_weights(rng, 2, 30, 2)
    batch = settings(3, [[0.5, 1.2], [1.3, 2.0]], [2.0, 6.0], [[0.0], [0.1]])
    yield trajectory_case("batch", weights, batch, "token", steps=16, quick=True)
    weights |= {"window": rng.uniform(-1, 1, (3, 2))}
    spec = settings(3, 1.7, 5.0, 0.2) | {"position": 1}
    yield trajectory_case("resumed window", weights, spec, "window", steps=16, quick=True)


@group
def column_laws() -> Iterator[Case]:
    for seed, patterns, neurons, bits, segments, context in (
        (1, 1, 20, 1, None, 2),
        (2, 3, 99, 2, 3, 4),
        (3, 3, 200, 3, None, 5),
        (4, 6, 90, 4, 7, 16),
    ):
        rng = np.random.default_rng(seed)
        weights = drawn_weights(rng, patterns, neurons, bits, segments)
        given = {**weights, "prompt": signs(rng, neurons), "attention": rng.uniform(-1, 1, (patterns, 3))}
        spec = settings(context, [0.3, 1.5, 20.0], 1.0, 0.1)
        tolerances = {"directions": "equal", "moments": 1e-14, "positional": 1e-14, "prompt": 1e-14}
        tolerances["semantic_overlaps"] = 1e-13
        yield Case(f"law {seed}", "column_law", spec, tolerances, given, quick=seed == 3)
    for seed, segments in ((1, 3), (5, None)):
        spec = {"seed": seed, "patterns": 3, "neurons": 99, "position_bits": 2, "segments": segments}
        equal = {"semantic": "equal", "positional": "equal"}
        yield Case(f"published weights {seed}", "published_weights", spec, equal, quick=True)
    given = {"inverse_temperature": np.array([0.0, 0.3, 2.2])}
    yield Case("gain", "attention_gain", {"scale": 100.0, "patterns": 3}, {"gamma": 1e-15}, given, quick=True)


@group
def mean_field_equations() -> Iterator[Case]:
    rng = np.random.default_rng(7)
    patterns, context, classes = 3, 4, 2
    shapes = {"Omega": (classes, patterns), "C": (classes, patterns), "X": (classes, 4 * patterns)}
    shapes |= {"Xbar": shapes["X"], "r": (patterns, 1), "A": (patterns, 1), "q": (patterns, 1), "g": (patterns, 1)}
    shapes |= {"K": (context, patterns), "V": (context, patterns), "G": (context, patterns), "ell": (context, 1)}
    shapes |= {f"D_{family}": (patterns, patterns) for family in "vqk"}
    given = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    given["ell"][2:] = -np.inf  # Two slots are empty.
    given |= {name: np.array(value) for name, value in (("beta", 1.3), ("gamma", 2.1), ("epsilon", 0.1), ("s", 0.4))}
    given |= {name: np.array(size) for name, size in (("M", patterns), ("L", context), ("J", classes))}
    names = ["overlap", "attention", "overlap_response", "attention_weights"]
    names += ["attention_response", "row_response", "query_response", "noise"]
    tolerances = dict.fromkeys(names, "expression") | dict.fromkeys([f"{name}_value" for name in names], 1e-13)
    yield Case("equations", "mean_field_equations", {"names": names}, tolerances, given, quick=True)


@group
def tangent_growth() -> Iterator[Case]:
    rng = np.random.default_rng(11)
    for number, (*drawn, context, beta, gamma, epsilon, vectors) in enumerate(
        (
            (2, 30, 2, None, 3, 1.5, 4.0, 0.1, 6),
            (3, 60, 3, 5, 8, 1.2, 20.0, 0.05, 4),
        )
    ):
        weights = drawn_weights(rng, *drawn)
        patterns = drawn[0]
        given = {**weights, "window": rng.uniform(-0.5, 0.5, (context, patterns))}
        given["perturbations"] = rng.normal(size=(vectors, context, patterns))
        spec = settings(context, beta, gamma, epsilon) | {"position": context - 1, "steps": 8}
        yield Case(f"growth drawn {number}", "tangent_growth", spec, {"growth": 1e-9}, given, quick=number == 0)
    for case, vectors in (("l02", 3), ("l04", 3), ("l09", 2)):
        weights, spec, arrays = published("lyapunov", case)
        window = arrays["A_window_start"]
        given = {**weights, "window": window, "perturbations": np.eye(window.size)[:vectors].reshape(-1, *window.shape)}
        spec |= {"position": 0, "steps": 25}
        yield Case(f"growth {case}", "tangent_growth", spec, {"growth": 1e-8}, given)


@group
def lyapunov_spectra() -> Iterator[Case]:
    rng = np.random.default_rng(12)
    # From another random start, an exponent of T tokens differs by about 1 / T on regular orbits, and by errors that
    # it states on chaotic ones.
    for case, leading, steps in (
        ("l01", 3, 8000),
        ("l05", 3, 8000),
        ("l08", None, 8000),
        ("l10", 3, 8000),
        ("l06", 3, 32_000),
        ("l07", 3, 32_000),
    ):
        weights, spec, arrays = published("lyapunov", case)
        is_chaotic = case in ("l06", "l07")
        given = {**weights, "window": arrays["A_window_start"]}
        tolerances = {"exponents": "sample" if is_chaotic else 2e-3, "regime": "equal"}
        if case == "l08":  # A torus: its first exponent is zero within the error.
            tolerances = {"exponents": 1e-2}
        spec |= {"position": 0, "steps": steps, "leading": leading}
        yield Case(f"spectrum {case}", "lyapunov_spectrum", spec, tolerances, given, quick=False)
    weights, spec, _ = published("trajectories", "c066")
    spec |= {"beta": [0.2, 0.5, 1.0, 1.2, 1.28, 1.35, 1.4], "convention": "window"}
    spec |= {"transient": 20_000, "steps": 20_000, "recorded": 400}
    given = {**weights, "prompt": first_pattern(weights)}
    tolerances = {"regimes": "equal", "lowest": 1e-8, "highest": 1e-8}
    yield Case("settled orbits", "settled_orbits", spec, tolerances, given)
    spectra = rng.normal(-0.2, 0.5, (30, 4))
    spectra[:10] *= 1e-4
    spectra[10] = [0.906, 0.0, -14.572, -np.inf]
    given = {"exponents": spectra, "errors": np.abs(spectra) * 0.5 + 1e-5}
    given["errors"][10] = 0.0
    tolerances = {"published": "equal", "decided": "equal", "dimension": 1e-13, "bound": 1e-13}
    yield Case("regimes", "regimes", {"threshold": 1e-4}, tolerances, given, quick=True)


def networks_of_maps() -> dict[str, tuple[dict, dict]]:
    """Return specs and weights of the network over a turn of its positions, and of one pattern without positions."""
    weights, spec, _ = published("trajectories", "c066")
    driven = {"map": "network", **spec, "beta": 1.0, "scanned": "beta", "tokens": 4}
    single = {"map": "network", **settings(4, 1.0, 3.0, 0.0), "scanned": "beta", "tokens": 1}
    # One pattern whose value, query and key agree with the output in 8 of 10 neurons, or in 1 of 10.
    row = lambda agreeing: np.where(np.arange(10) < agreeing, 1, -1)  # noqa: E731
    ones, positional = np.ones(10, dtype=int), np.ones((4, 1, 2), dtype=int)
    agreeing, opposed = (np.stack([ones, *[row(count)] * 3])[:, None] for count in (8, 1))
    return {
        "driven": (driven, weights),
        "agreeing": (single, {"semantic": agreeing, "positional": positional}),
        "opposed": (single, {"semantic": opposed, "positional": positional}),
    }


@group
def cycles() -> Iterator[Case]:
    rng = np.random.default_rng(13)
    angles = lambda period, winding: np.pi * winding / (2**period - 1) * 2.0 ** np.arange(period)  # noqa: E731
    tolerances = {"points": 1e-10, "multipliers": 1e-7, "is_stable": "equal"}

    def found(name: str, spec: dict, given: dict, quick: bool = False) -> Case:
        # Attentions of the network are small: points are solved to 1e-12, whatever their size.
        accuracy = {"points": 1e-8} if spec["map"] == "network" else {}
        return Case(f"cycle {name}", "cycle", {"leading": 2, **spec}, tolerances | accuracy, given, quick)

    for period, winding in ((3, 1), (5, 3), (12, 5)):
        guess = np.sin(angles(period, winding))[:, None] ** 2 + 1e-5 * rng.uniform(-1, 1, (period, 1))
        spec = {"map": "logistic", "parameter": 4.0, "period": period}
        yield found(f"logistic unstable {period}", spec, {"guess": guess}, quick=period == 3)
    spec = {"map": "henon", "parameter": 1.4, "period": 1}
    yield found("henon unstable", spec, {"guess": np.array([0.63, 0.19])}, quick=True)
    spec = {"map": "delayed_logistic", "parameter": 2.1, "period": 1}
    yield found("delayed logistic", spec, {"guess": np.array([0.5, 0.5])})
    for name, parameter in (("logistic", 3.2), ("logistic", 3.5), ("logistic", 3.835), ("henon", 0.7), ("henon", 1.0)):
        spec = {"map": name, "parameter": parameter, "max_period": 8, "transient": 20_000}
        start = np.array([0.3]) if name == "logistic" else np.array([0.1, 0.1])
        yield found(f"{name} near {parameter}", spec, {"start": start}, quick=parameter == 0.7)
    driven, weights = networks_of_maps()["driven"]
    for parameter in (0.5, 1.0, 1.24):
        spec = {**driven, "parameter": parameter, "period": 1}
        yield found(f"network {parameter}", spec, {**weights, "guess": np.zeros((1, 12))})
    spec = {**driven, "parameter": 1.27, "max_period": 10, "transient": 10_000}
    _, _, arrays = published("lyapunov", "l05")
    yield found("network near 1.27", spec, {**weights, "start": arrays["A_window_start"].ravel()})


def branch_case(name: str, spec: dict, given: dict, quick: bool = False) -> Case:
    spec = {"period": 1, "direction": 1, "amplitude": None, "at": [], "leading": 2, **spec}
    tolerances = {}
    for number in range(len(spec["bounds"])):
        tolerances |= {f"kinds_{number}": "equal", f"parameters_{number}": 1e-9, f"cosines_{number}": 1e-7}
        tolerances |= {f"states_{number}": 1e-7, f"stable_ends_{number}": "equal", f"end_{number}": 1e-9}
    for number in range(len(spec["at"])):
        tolerances |= {f"points_{number}": 1e-10, f"multipliers_{number}": 1e-7}
    return Case(f"branch {name}", "cycle_branch", spec, tolerances, given, quick)


@group
def branches() -> Iterator[Case]:
    """Branches of maps whose bifurcations are known in closed form, mostly."""

    def forwards(name: str, parameter: float, low: float, high: float, *at: float) -> dict:
        return {"map": name, "parameter": parameter, "bounds": [[low, high]], "at": list(at)}

    one, pair = np.array([0.6]), np.array([0.4, 0.4])
    logistic = {"map": "logistic", "parameter": 2.8}
    doublings = {**logistic, "bounds": [[2.0, 3.6], [2.5, 3.55], [3.4, 3.56]], "amplitude": 0.02, "at": [3.5]}
    yield branch_case("logistic doublings", doublings, {"guess": one}, quick=True)
    backwards = {**logistic, "bounds": [[0.5, 3.2]], "direction": -1, "at": [0.7]}
    yield branch_case("logistic transcritical", backwards, {"guess": one})
    fold = {"map": "logistic", "parameter": 3.835, "period": 3, "bounds": [[3.8, 3.86]], "direction": -1}
    yield branch_case("logistic fold", fold, {"guess": np.array([[0.152], [0.4945], [0.9585]])})
    henon = {"map": "henon", "parameter": 0.2, "bounds": [[0.0, 0.6], [0.3, 1.0]], "amplitude": 0.05, "at": [0.95]}
    yield branch_case("henon doublings", henon, {"guess": np.array([0.5, 0.1])})
    torus = forwards("delayed_logistic", 1.8, 1.2, 2.2, 2.1)
    yield branch_case("delayed logistic", torus, {"guess": pair}, quick=True)
    yield branch_case("pitchfork", forwards("pitchfork", 0.5, 0.4, 1.7, 1.5), {"guess": np.zeros(1)})
    side = {**forwards("pitchfork", 1.25, 0.4, 1.7), "direction": -1}
    yield branch_case("pitchfork side", side, {"guess": np.array([0.5])})
    yield branch_case("imperfect", forwards("imperfect_pitchfork", 0.5, 0.4, 1.7, 1.5), {"guess": np.zeros(1)})
    side = {**forwards("imperfect_pitchfork", 1.25, 0.4, 1.7), "direction": -1}
    yield branch_case("imperfect fold", side, {"guess": np.zeros(1)})
    yield branch_case("circle", forwards("circle", 0.0, -2.0, 2.0), {"guess": np.ones(1)})


@group
def network_branches() -> Iterator[Case]:
    """The torus of the published network, and the pitchfork and the tori of one pattern."""
    silent = np.zeros((1, 4))
    for name, parameter, high, at, guess in (
        ("driven", 0.5, 1.3, 1.2, np.zeros((1, 12))),
        ("agreeing", 1.3, 2.2, 2.0, silent),
        ("opposed", 4.0, 6.0, 5.5, silent),
    ):
        spec, weights = networks_of_maps()[name]
        spec = {**spec, "parameter": parameter, "bounds": [[parameter, high]], "at": [at]}
        yield branch_case(f"network {name}", spec, {**weights, "guess": guess})


@group
def finite_networks() -> Iterator[Case]:
    weights, spec, _ = published("trajectories", "c066")
    rng = np.random.default_rng(17)
    small, six = drawn_weights(rng, 2, 8, 2, 3), drawn_weights(rng, 2, 60, 2, 6)
    for name, drawn, at, repeats in (
        ("published", weights, {**spec, "beta": 0.5, "convention": "token"}, 1000),
        ("published near the torus", weights, {**spec, "beta": 1.2, "convention": "window"}, 10_000),
        ("small token", small, settings(4, 1.2, 4.0, 0.1) | {"convention": "token"}, 1),
        ("small window", small, settings(4, 1.2, 4.0, 0.1) | {"convention": "window"}, 1),
        ("batch", six, settings(3, [0.3, 1.5], [1.0, 3.0], 0.1) | {"convention": "token"}, 7),
    ):
        names = ("mean", "attention", "overlaps", "attention_deviation", "overlap_deviation", "rms", "neurons")
        given = {**drawn, "prompt": first_pattern(drawn)}
        predicted = {**at, "repeats": repeats, "steps": 9}
        tolerances = dict.fromkeys(names, 1e-10)
        yield Case(f"fluctuations {name}", "fluctuations", predicted, tolerances, given, quick=name == "small token")
        if name in ("published", "small token"):
            sampled = {**at, "repeats": repeats, "steps": 4, "samples": 4000}
            tolerances = {"mean": "sample", "variance": "sample"}
            yield Case(f"samples {name}", "sampled_networks", sampled, tolerances, given)


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
