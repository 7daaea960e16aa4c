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
