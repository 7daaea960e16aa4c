"""A grid of widths and temperatures: chains of neighbours that cover it, and the dataset over it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import numpy as np
import xarray as xr

from ... import bpkr
from ...checks import checked_number, checked_sequence, shown

# stands for T = 0 when temperatures are compared by their logarithms
_SMALLEST_TEMPERATURE = 1e-12

Number = int | float
Width = Number | tuple[Number, ...]
# sequences, whose entries `grid_of` checks
Widths = Annotated[Sequence[Width], partial(checked_sequence, what="widths")]
Temperatures = Annotated[Sequence[Number], partial(checked_sequence, what="temperatures")]


@dataclass(frozen=True)
class GridPoint:
    """A point of the grid: the width of all layers, or the widths (N_1, ..., N_L, N_a), and the temperature."""

    width: Width
    temperature: float

    def __str__(self):
        return f"width={_width_label(self.width)}, temperature={self.temperature!r}"

    @property
    def is_infinitely_wide(self) -> bool:
        """Whether the network is a Gaussian process, and nothing is to be solved."""
        return self.width == math.inf

    def architecture(self, like: bpkr.Architecture) -> bpkr.Architecture:
        """The architecture `like`, but for width and temperature; of width 1 at infinite width, which uses none."""
        return replace(like, widths=1.0 if self.is_infinitely_wide else self.width, temperature=self.temperature)


@dataclass(frozen=True)
class Grid:
    """All pairs of `widths` and `temperatures`, in the order of the result's axes; made by `grid_of`."""

    widths: tuple[Width, ...]
    temperatures: tuple[float, ...]

    @property
    def chains(self) -> list[list[GridPoint]]:
        """The points at every width, from the widest to the narrowest, each down from the highest temperature.

        The first solve of a chain starts from the Gaussian-process limit, and the others from their neighbours in it,
        so that chains may be solved side by side.
        """

        def mean_logarithm(width: Width) -> float:
            widths = width if isinstance(width, tuple) else (width,)
            return math.fsum(map(math.log, widths)) / len(widths)

        temperatures = sorted(self.temperatures, reverse=True)
        widths = sorted(self.widths, key=mean_logarithm, reverse=True)
        return [[GridPoint(width, temperature) for temperature in temperatures] for width in widths]

    def dataset(self, points: Mapping[GridPoint, xr.Dataset]) -> xr.Dataset:
        """The datasets of all points as one, over `width` and `temperature`; values that a point lacks are NaN."""
        rows = []
        for width in self.widths:
            row = [points[GridPoint(width, temperature)] for temperature in self.temperatures]
            rows.append(concatenate(row, "temperature", self.temperatures))
        has_labels = any(isinstance(width, tuple) for width in self.widths)
        return concatenate(rows, "width", [_width_label(width) for width in self.widths] if has_labels else self.widths)


def concatenate(datasets: Sequence[xr.Dataset], name: str, values: Sequence[Any]) -> xr.Dataset:
    """Datasets along a new axis `name` with coordinates `values`."""
    axis = xr.DataArray(np.array(values), dims=name, name=name)
    return xr.concat(datasets, dim=axis, data_vars="all", coords="minimal", compat="override", join="outer")


def nearest(place: GridPoint, solved: Iterable[GridPoint]) -> GridPoint | None:
    """The point to start from: of those `solved`, of one width, the nearest in temperature; None if none is needed."""
    if place.is_infinitely_wide:
        return None

    def distance(point: GridPoint) -> float:
        here, there = (math.log(max(at.temperature, _SMALLEST_TEMPERATURE)) for at in (place, point))
        return abs(here - there)

    return min(solved, key=distance, default=None)


def grid_of(architecture: bpkr.Architecture, widths: Sequence[Any], temperatures: Sequence[Any]) -> Grid:
    """The grid as plain numbers; `ValueError` names one that is not admissible for the architecture."""
    grid = Grid(
        tuple(_width(f"widths[{i}]", width) for i, width in enumerate(widths)),
        tuple(
            float(checked_number(f"temperatures[{i}]", temperature, least=0.0))
            for i, temperature in enumerate(temperatures)
        ),
    )
    for name, values in vars(grid).items():
        if not values:
            raise ValueError(f"nothing to solve: {name} is empty")
        if repeated := {value for value in values if values.count(value) > 1}:
            raise ValueError(f"{name} has {', '.join(map(str, repeated))} more than once")
    for width in grid.widths:
        GridPoint(width, grid.temperatures[0]).architecture(architecture)
    return grid


def _width_label(width: Width) -> str:
    """A width, or the widths of all layers, such as "10-20-20"."""
    return "-".join(f"{n!r}" for n in width) if isinstance(width, tuple) else f"{width!r}"


def _width(name: str, width: Any) -> Width:
    """A width, or the widths of all layers, as plain numbers: integers if they are whole, since 10 and 10.0 are one."""
    if isinstance(width, (tuple, list)):
        if math.inf in width:
            raise ValueError(f"{name} is infinite for some layers only, got {shown(width)}; give inf for all of them")
        return tuple(_width(f"{name}[{i}]", each) for i, each in enumerate(width))
    if isinstance(width, (float, np.floating)) and width == math.inf:
        return math.inf
    plain = float(checked_number(name, width, above=0.0))
    return int(plain) if plain.is_integer() else plain
