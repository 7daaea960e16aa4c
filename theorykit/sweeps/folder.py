"""The folder of a sweep: what is swept, and one file a solved point, each there whole or not at all.

A process may be killed at any moment. Files come into being under their final names by renaming, so that a name that is
there is a whole file; leftovers of a killed process have hidden names and are never read.
"""

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from .. import bpkr, store
from .data import Data
from .grid import Place, width_label
from .point import FAILED

_SETTINGS = "sweep.json"
_POINTS = "points"
_DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(bpkr.solve).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY and name not in ("initial", "throw")
}

_EFFORT = ("max_steps", "solver")


def sweep_settings(architecture: bpkr.Architecture, data: Data, options: Mapping[str, Any]) -> Mapping[str, str]:
    """What determines the solution at a place, as text: the architecture but for widths and temperature, the data, and
    the options of `bpkr.solve` but for those in `effort`; `TypeError` names an option that there is not.
    """
    if unknown := sorted(set(options) - set(_DEFAULTS)):
        raise TypeError(f"unknown options of the solve: {', '.join(unknown)}; there are {', '.join(sorted(_DEFAULTS))}")
    arrays = {name: getattr(data, name) for name in ("features", "labels", "test_features", "test_labels")}
    return {
        "layers": repr(architecture.layers),
        "numbers of the layers": store.fingerprints(architecture.layers),
        "prior_variances": repr(tuple(float(variance) for variance in architecture.prior_variances)),
        "outputs": repr(architecture.outputs),
        **{name: "none" if array is None else store.fingerprint(array) for name, array in arrays.items()},
        **{f"option {name}": repr(value) for name, value in sorted(_all(options).items()) if name not in _EFFORT},
    }


def effort(options: Mapping[str, Any]) -> str:
    """The options that decide whether a solution is found, not which it is."""
    return "; ".join(f"{name} {value!r}" for name, value in sorted(_all(options).items()) if name in _EFFORT)


def _all(options: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**_DEFAULTS, **options}


@dataclass(frozen=True)
class SweepFolder:
    """A folder that belongs to one sweep, and the effort made to find what is missing there; made by `opened`."""

    path: Path
    effort: str

    @classmethod
    def opened(cls, path: Path, settings: Mapping[str, str], effort: str) -> "SweepFolder":
        """The folder `path` for the sweep of these settings, new or gone on with.

        Raises `FileExistsError` where it holds another sweep, saying what differs.
        """
        note = path / _SETTINGS
        if note.exists():
            store.refuse_difference(path, "sweep", json.loads(note.read_text()), settings)
        elif (path / _POINTS).exists():
            raise FileExistsError(f"{path} has {_POINTS}/, but no {_SETTINGS} that says of what; choose another folder")
        else:
            store.write_text(json.dumps(settings, indent=2), note)
        return cls(path, effort)

    def point_path(self, place: Place) -> Path:
        """The file of a point."""
        name = f"width={width_label(place.width)},temperature={place.temperature!r}.nc"
        return self.path / _POINTS / name

    def write(self, place: Place, point: xr.Dataset) -> None:
        """Keep a point, in the place of one that was no solution."""
        store.write(point.assign_attrs(effort=self.effort), self.point_path(place), overwrite=True)

    def read(self, place: Place) -> xr.Dataset | None:
        """The point, or None where there is none, it had failed, or had not converged with another effort."""
        path = self.point_path(place)
        if not path.exists():
            return None
        # how one file stored a number is not how a dataset with missing points can
        point = store.read(path).to_dataset().drop_encoding()
        same_effort = point.attrs.pop("effort", None) == self.effort
        is_final = point["converged"].item() or (same_effort and point["result"].item() != FAILED)
        return point if is_final else None
