"""A grid of widths and temperatures: chains of neighbours that cover it, and the dataset over it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from ... import bpkr
from ...checks import checked_number, checked_sequence, shown

# stands for T = 0 where temperatures are compared by their logarithms
_SMALLEST_TEMPERATURE = 1e-12

Number = int | float
Width = Number | tuple[Number, ...]


@dataclass(frozen=True)
class GridPoint:
    """A point of the grid: the width of all layers, or the widths (N_1, ..., N_L, N_a), and the temperature.

    At an infinite width the network is a Gaussian process, and nothing is to be solved.
    """

    width: Width
    temperature: float

    def __str__(self):
        return f"width={width_label(self.width)}, temperature={self.temperature!r}"

    @property
    def is_infinitely_wide(self) -> bool:
        """Whether the width of all layers is infinite."""
        return self.width == math.inf

    def architecture(self, like: bpkr.Architecture) -> bpkr.Architecture:
        """The architecture `like`, but for width and temperature; of width 1 where what it is for knows no width."""
        return replace(like, widths=1.0 if self.is_infinitely_wide else self.width, temperature=self.temperature)


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
    def chains(self) -> list[list[GridPoint]]:
        """The points at every width, from the widest to the narrowest, down from the highest temperature.

        The first solve of a chain starts from the Gaussian-process limit, and the others from their neighbours in it,
        so that chains may be solved side by side.
        """
        temperatures = sorted(self.temperatures, reverse=True)
        widths = sorted(self.widths, key=_logarithmic_width, reverse=True)
        return [[GridPoint(width, temperature) for temperature in temperatures] for width in widths]

    @property
    def size(self) -> int:
        """How many points there are."""
        return len(self.widths) * len(self.temperatures)

    def dataset(self, points: Mapping[GridPoint, xr.Dataset]) -> xr.Dataset:
        """The datasets of all points as one, over `width` and `temperature`; what a point lacks is missing (NaN)."""
        rows = []
        for width in self.widths:
            row = [points[GridPoint(width, temperature)] for temperature in self.temperatures]
            rows.append(concatenate(row, "temperature", self.temperatures))
        has_labels = any(isinstance(width, tuple) for width in self.widths)
        return concatenate(rows, "width", [width_label(width) for width in self.widths] if has_labels else self.widths)


def concatenate(datasets: Sequence[xr.Dataset], name: str, values: Sequence[Any]) -> xr.Dataset:
    """Datasets along a new axis `name`, of which each is at one of `values`; what one of them lacks is missing."""
    axis = xr.DataArray(np.array(values), dims=name, name=name)
    return xr.concat(datasets, dim=axis, data_vars="all", coords="minimal", compat="override", join="outer")


def nearest(place: GridPoint, solved: Iterable[GridPoint]) -> GridPoint | None:
    """The one of the `solved`, all of one width, whose temperature is nearest to that of `place`; None of none.

    The infinitely wide network is as near as no start at all, which is the same.
    """
    if place.is_infinitely_wide:
        return None
    return min(solved, key=lambda other: abs(_log_temperature(place) - _log_temperature(other)), default=None)


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
    if isinstance(width, (float, np.floating)) and width == math.inf:
        return math.inf
    if isinstance(width, (tuple, list)):
        if math.inf in width:
            raise ValueError(f"{name} is infinite for some layers only, got {shown(width)}; give inf for all of them")
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


def _log_temperature(place: GridPoint) -> float:
    return math.log(max(place.temperature, _SMALLEST_TEMPERATURE))
