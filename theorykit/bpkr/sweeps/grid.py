"""A grid of widths and temperatures: the way through it, from neighbour to neighbour, and the dataset over it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from ... import bpkr
from ...arguments import checked_number, checked_sequence

# stands for T = 0 where temperatures are compared by their logarithms
_SMALLEST_TEMPERATURE = 1e-12

Number = int | float
Width = Number | tuple[Number, ...]


@dataclass(frozen=True)
class GridPoint:
    """A point of the grid: the width of all layers, or the widths (N_1, ..., N_L, N_a), and the temperature."""

    width: Width
    temperature: float

    def __str__(self):
        return f"width={width_label(self.width)}, temperature={self.temperature!r}"

    def architecture(self, like: bpkr.Architecture) -> bpkr.Architecture:
        """The architecture `like`, but for width and temperature."""
        numbers = {"temperature": self.temperature, "outputs": like.outputs}
        return bpkr.Architecture(like.layers, self.width, like.prior_variances, **numbers)


@dataclass(frozen=True)
class Grid:
    """All pairs of `widths` and `temperatures`, both without repetitions, in the order of the result's axes."""

    widths: tuple[Width, ...]
    temperatures: tuple[float, ...]

    def __post_init__(self):
        for name, values in (("widths", self.widths), ("temperatures", self.temperatures)):
            if not values:
                raise ValueError(f"nothing to solve: {name} is empty")
            if repeated := {value for value in values if values.count(value) > 1}:
                raise ValueError(f"{name} has {', '.join(map(str, repeated))} more than once")

    @property
    def places(self) -> list[GridPoint]:
        """Every point, in the order in which they are solved: each is the neighbour of one before it.

        From the widest network, nearest to the Gaussian-process limit where a first solve starts, to the narrowest; at
        every width along the temperatures, down from the highest and up again at the next width.
        """
        places: list[GridPoint] = []
        temperatures = sorted(self.temperatures, reverse=True)
        for width in sorted(self.widths, key=_logarithmic_width, reverse=True):
            places += [GridPoint(width, temperature) for temperature in temperatures]
            temperatures.reverse()
        return places

    def dataset(self, points: Mapping[GridPoint, xr.Dataset]) -> xr.Dataset:
        """The datasets of all points as one, over `width` and `temperature`; what a point lacks is missing (NaN)."""
        rows = []
        for width in self.widths:
            row = [points[GridPoint(width, temperature)] for temperature in self.temperatures]
            rows.append(xr.concat(row, dim=_axis("temperature", list(self.temperatures)), **_CONCATENATION))
        if not any(isinstance(width, tuple) for width in self.widths):
            return xr.concat(rows, dim=_axis("width", list(self.widths)), **_CONCATENATION)
        labels = [width_label(width) for width in self.widths]
        return xr.concat(rows, dim=_axis("width", labels), **_CONCATENATION)


_CONCATENATION = {"data_vars": "all", "coords": "minimal", "compat": "override", "join": "outer"}


def nearest(place: GridPoint, solved: Iterable[GridPoint]) -> GridPoint | None:
    """The one of the `solved` nearest to `place`, by the logarithms of width and temperature; None of none."""
    return min(solved, key=lambda other: _distance(place, other), default=None)


def grid_of(architecture: bpkr.Architecture, widths: Sequence, temperatures: Sequence) -> Grid:
    """The grid as plain numbers; `ValueError` names one that is not admissible for the architecture."""
    grid = Grid(
        tuple(_width(i, width) for i, width in enumerate(checked_sequence("widths", widths, "widths"))),
        tuple(
            float(checked_number(f"temperatures[{i}]", temperature, least=0.0))
            for i, temperature in enumerate(checked_sequence("temperatures", temperatures, "temperatures"))
        ),
    )
    # every width and every temperature, before any is ordered
    for place in [GridPoint(width, grid.temperatures[0]) for width in grid.widths] + [
        GridPoint(grid.widths[0], temperature) for temperature in grid.temperatures
    ]:
        place.architecture(architecture)
    return grid


def width_label(width: Width) -> str:
    """A width, or the widths of all layers, such as "10-20-20"."""
    return "-".join(f"{n!r}" for n in width) if isinstance(width, tuple) else f"{width!r}"


def _width(index: int, width: Any) -> Width:
    """A width, or the widths of all layers, as plain numbers."""
    name = f"widths[{index}]"
    if isinstance(width, (tuple, list)):
        return tuple(_number(f"{name}[{i}]", each) for i, each in enumerate(width))
    return _number(name, width)


def _number(name: str, value: Any) -> Number:
    """A Python number, an integer where it is whole: 10 and 10.0 are one width."""
    number = float(checked_number(name, value, above=0.0))
    return int(number) if number.is_integer() else number


def _logarithmic_width(width: Width) -> float:
    """The mean logarithm of the widths."""
    widths = width if isinstance(width, tuple) else (width,)
    return math.fsum(map(math.log, widths)) / len(widths)


def _distance(one: GridPoint, other: GridPoint) -> float:
    widths = _logarithmic_width(one.width) - _logarithmic_width(other.width)
    temperatures = [math.log(max(place.temperature, _SMALLEST_TEMPERATURE)) for place in (one, other)]
    return abs(widths) + abs(temperatures[0] - temperatures[1])


def _axis(name: str, values: list) -> xr.DataArray:
    return xr.DataArray(np.array(values), dims=name, name=name)
