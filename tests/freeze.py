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


# ---- Own actions and theories ----


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
        cases = list(GROUPS[name]())
        for case in cases:
            case.found = dict(KINDS[case.kind](case.spec, case.given))
            print(name, case.name, flush=True)
        write(name, cases)


if __name__ == "__main__":
    main()
