"""The folder of a sweep: a file for every solved point, which says of which sweep and place it is."""

import inspect
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from ... import bpkr, store
from .grid import GridPoint, width_label

_POINTS = "points"
# the `result` of a point whose solve raised
FAILED = "failed"
_DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(bpkr.solve).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY and name not in ("initial", "throw")
}

_SOLVER_OPTIONS = ("max_steps", "solver")
# raised whenever a point comes to have other numbers of the same arguments, beyond the tolerance
_VERSION = 2


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
        read_tokens=numbers.read_tokens,
        embedding=numbers.embedding,
        **{name: getattr(data, name) for name in ("features", "labels", "test_features", "test_labels")},
        **{f"option {name}": value for name, value in sorted(_all(options).items()) if name not in _SOLVER_OPTIONS},
    )


def solver_options(options: Mapping[str, Any]) -> Mapping[str, str]:
    """The options of `bpkr.solve` that affect whether it converges, not to which solution; as text by name."""
    return store.describe(**{name: value for name, value in sorted(_all(options).items()) if name in _SOLVER_OPTIONS})


def _all(options: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**_DEFAULTS, **options}


@dataclass(frozen=True)
class SweepFolder:
    """The folder of one sweep, with the sweep's settings, and the solver options of points still to be solved.

    Made by `SweepFolder.open`.
    """

    path: Path
    settings: Mapping[str, str]
    solver_options: str

    @classmethod
    def open(cls, path: Path, settings: Mapping[str, str], solver_options: Mapping[str, str]) -> "SweepFolder":
        """The folder `path` of the sweep with these settings; created, or resumed where it has points of that sweep.

        Raises `FileExistsError` where it holds another sweep, saying what differs, and `ValueError` for an option, such
        as a lambda, that cannot be compared with that of a later run.
        """
        store.refuse_unknown({**settings, **{f"option {name}": value for name, value in solver_options.items()}})
        # all points that are there are of one sweep
        for point in itertools.islice((path / _POINTS).glob("width=*.nc"), 1):
            store.read_kept(point, settings)
        return cls(path, settings, store.as_text(solver_options))

    def point_path(self, place: GridPoint) -> Path:
        """The file of a point."""
        name = f"width={width_label(place.width)},temperature={place.temperature!r}.nc"
        return self.path / _POINTS / name

    def write(self, place: GridPoint, point: xr.Dataset) -> None:
        """Write the file of a point; replaces one that had failed or not converged."""
        point = point.assign_attrs(place=str(place), solver_options=self.solver_options)
        store.keep(point, self.settings, self.point_path(place))

    def complete(self, points: Mapping[GridPoint, xr.Dataset]) -> None:
        """Write those of `points` that are not there, as where a worker could not reach the folder."""
        for place, point in points.items():
            if not self.point_path(place).exists():
                self.write(place, point)

    def read(self, place: GridPoint) -> xr.Dataset | None:
        """The point; None if it is missing, failed, or did not converge with other solver options than now.

        Raises `FileExistsError` for the point of another sweep, and `ValueError` for a file that is damaged, or the
        point of another place.
        """
        path = self.point_path(place)
        kept = store.read_kept(path, self.settings)
        if kept is None:
            return None
        # how one file stored a number is not how a dataset with missing points can
        point = kept.drop_encoding()
        if point.attrs.pop("place", None) != str(place):
            raise ValueError(f"{path} is of another width or temperature: remove it")
        same_effort = point.attrs.pop("solver_options", None) == self.solver_options
        is_final = point["converged"].item() or (same_effort and point["result"].item() != FAILED)
        return point if is_final else None
