"""The folder of a sweep: what is swept, and one file a solved point, each there whole or not at all.

A process may be killed at any moment. Files come into being under their final names by renaming, so that a name that is
there is a whole file; leftovers of a killed process have hidden names and are never read. A point says of which sweep
and place it is, and is refused elsewhere.
"""

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from ... import bpkr, store
from .grid import GridPoint, width_label
from .point import FAILED

_SETTINGS = "sweep.json"
_POINTS = "points"
_DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(bpkr.solve).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY and name not in ("initial", "throw")
}

_SOLVER_OPTIONS = ("max_steps", "solver")
# raised whenever a point comes to have other numbers of the same arguments, beyond the tolerance
_VERSION = 1


def sweep_settings(architecture: bpkr.Architecture, data: bpkr.Data, options: Mapping[str, Any]) -> Mapping[str, str]:
    """What determines the solution at a place: the architecture but for widths and temperature, the data, and the
    options of `bpkr.solve` but for those in `solver_options`; `TypeError` names an option that there is not.
    """
    if unknown := sorted(set(options) - set(_DEFAULTS)):
        raise TypeError(f"unknown options of the solve: {', '.join(unknown)}; there are {', '.join(sorted(_DEFAULTS))}")
    numbers = architecture.with_arrays()
    return store.settings_of(
        "sweep",
        _VERSION,
        layers=numbers.layers,
        prior_variances=numbers.prior_variances,
        outputs=numbers.outputs,
        **{name: getattr(data, name) for name in ("features", "labels", "test_features", "test_labels")},
        **{f"option {name}": value for name, value in sorted(_all(options).items()) if name not in _SOLVER_OPTIONS},
    )


def solver_options(options: Mapping[str, Any]) -> Mapping[str, str]:
    """The options that decide whether a solution is found, not which it is."""
    return store.describe(**{name: value for name, value in sorted(_all(options).items()) if name in _SOLVER_OPTIONS})


def _all(options: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**_DEFAULTS, **options}


def _noted(note: Path) -> Mapping[str, str]:
    """The settings in the file `note`."""
    try:
        settings = json.loads(note.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{note} does not say of which sweep {note.parent} is: {error}; remove the folder") from error
    if not isinstance(settings, dict) or not all(isinstance(value, str) for value in settings.values()):
        raise ValueError(f"{note} does not say of which sweep {note.parent} is: remove the folder")
    return settings


@dataclass(frozen=True)
class SweepFolder:
    """A folder that belongs to one sweep, and the solver options for what is missing there; made by `opened`."""

    path: Path
    settings: Mapping[str, str]
    solver_options: str

    @classmethod
    def opened(cls, path: Path, settings: Mapping[str, str], solver_options: Mapping[str, str]) -> "SweepFolder":
        """The folder `path` for the sweep of these settings, new or gone on with.

        Raises `FileExistsError` where it holds another sweep, saying what differs, and `ValueError` where what says of
        which sweep it is has been damaged, or where an option cannot be known again.
        """
        store.refuse_unknown({**settings, **{f"option {name}": value for name, value in solver_options.items()}})
        note = path / _SETTINGS
        if note.exists():
            store.refuse_difference(path, "sweep", _noted(note), settings)
        elif (path / _POINTS).exists():
            raise FileExistsError(f"{path} has {_POINTS}/, but no {_SETTINGS} that says of what; choose another folder")
        else:
            store.write_text(json.dumps(settings, indent=2), note)
        return cls(path, settings, store.as_text(solver_options))

    def point_path(self, place: GridPoint) -> Path:
        """The file of a point."""
        name = f"width={width_label(place.width)},temperature={place.temperature!r}.nc"
        return self.path / _POINTS / name

    def write(self, place: GridPoint, point: xr.Dataset) -> None:
        """Keep a point, in the place of one that was no solution."""
        store.keep(point.assign_attrs(solver_options=self.solver_options), self._of(place), self.point_path(place))

    def _of(self, place: GridPoint) -> Mapping[str, str]:
        """All that determines the solution at a place."""
        return {**self.settings, "place": str(place)}

    def read(self, place: GridPoint) -> xr.Dataset | None:
        """The point, or None where there is none, it had failed, or had not converged with another solver_options.

        Raises `ValueError` for a file that is damaged, or the point of another sweep or place.
        """
        path = self.point_path(place)
        if not path.exists():
            return None
        kept = store.kept(path, self._of(place))
        if kept is None:
            raise ValueError(f"{path} is of another sweep, or of another width or temperature: remove it")
        # how one file stored a number is not how a dataset with missing points can
        point = kept.drop_encoding()
        del point.attrs["settings"]
        same_effort = point.attrs.pop("solver_options", None) == self.solver_options
        is_final = point["converged"].item() or (same_effort and point["result"].item() != FAILED)
        return point if is_final else None
