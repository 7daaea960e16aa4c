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


# ---- Own actions and theories ----

SYMBOLS = {
    **dict.fromkeys("m m_hat h x y kappa lam z a b Delta".split(), "real"),
    **dict.fromkeys("q q_hat V V_hat s r C p alpha ridge beta T".split(), "positive"),
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
    "Trace(x.T * K * x) / 2 + lam * (Trace(x.T * x) - 1)", {"x": REAL, "lam": REAL}, "K", K=MATRIX,
    x="MatrixSymbol('x', 3, 1)",
)
CONJUGATES = _own(
    "-Trace(K_hat * K) / 2 + log_det(assume_positive_definite(inverse(C) + K_hat)) / 2 + log_det(C) / 2"
    " + alpha * log_det(Identity(2) + K) / 2",
    {"K_hat": ["Symmetric"], "K": ["PositiveDefinite"]}, "C alpha", K_hat="symmetric('K_hat', 2)",
    K="positive_definite('K', 2)", C="positive_definite('C', 2)",
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


def main() -> None:
    import theorykit
    from tests.frozen import KINDS

    theorykit.enable_float64()
    for name in sys.argv[1:] or GROUPS:
        cases = list(GROUPS[name]())
        for case in cases:
            case.found = dict(KINDS[case.kind](case.spec, case.given))
            print(name, case.name, flush=True)
        write(name, cases)


if __name__ == "__main__":
    main()
