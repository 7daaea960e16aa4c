"""Orbit diagrams: what orbits visit once they have settled, their Lyapunov exponents and regimes, over parameters.

parameters, start -> transient -> recorded orbit and exponents -> labelled dataset, one lane an orbit
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from .. import dmft, store
from ..dynamics.orthonormal import gram_schmidt
from ..dynamics.regimes import classify, kaplan_yorke_lower_bound
from ..dynamics.time_series import SECTIONS
from .blocks import LANE, in_blocks

Start = Callable[[dmft.SelfAttention, dmft.Parameters], dmft.State]

# tokens recorded at a time, blocks that the errors of exponents are from, and levels that are told apart when counted
_RECORDED_AT_ONCE = 4096
_BLOCKS = 20
_FINE_LEVELS = 5001
# raised whenever a diagram comes to have other numbers of the same arguments
_VERSION = 1


@dataclass(frozen=True)
class OrbitSettings:
    """How long orbits are followed, and what is kept of them.

    - `transient`: tokens passed over; `recorded`: tokens, or a few more, that marks and exponents are from.
    - `exponents`: how many of the leading ones, 0 for none.
    - `levels`: of each overlap from -1 to 1, which are marked as visited.
    - `sections`: pairs (a, b) of patterns; a is marked where b is within `width` of zero.
    """

    transient: int = 100_000
    recorded: int = 10_000
    exponents: int = 3
    levels: int = 2001
    sections: tuple[tuple[int, int], ...] = SECTIONS
    width: float = 0.001

    def __post_init__(self):
        if self.transient < 0 or self.recorded < _BLOCKS or self.exponents < 0 or self.levels < 2:
            raise ValueError(f"there is nothing to keep of an orbit with {self}; record {_BLOCKS} tokens at least")

    @property
    def pieces(self) -> int:
        """In how many pieces orbits are recorded."""
        return -(-self.recorded // _RECORDED_AT_ONCE)

    @property
    def tokens_a_piece(self) -> int:
        return -(-self.recorded // self.pieces)

    def transient_of(self, model: dmft.SelfAttention) -> int:
        """Tokens passed over: those of a window at least."""
        return max(self.transient, model.context)


def orbit_diagram(
    model: dmft.SelfAttention,
    parameters: dmft.Parameters,
    start: Start,
    settings: OrbitSettings | None = None,
    *,
    folder: Path | str | None = None,
    label: str = "orbits",
) -> xr.Dataset:
    """Settled orbits at many parameters, one axis of lanes; `start` makes the state that each begins with.

    Of the semantic overlap of the output, (1 - epsilon) <w^o tanh>:

    - `visited` (lane, pattern, level), `in_section` (lane, section, level): marks, 0 or 1.
    - `distinct` (lane, pattern): how many of 5001 levels are visited. `lowest`, `highest` (lane, pattern).

    And `exponent`, `exponent_error` (lane, exponent), `regime` by them, `dimension`, the Kaplan-Yorke dimension or a
    lower bound of it; and `window` (lane, age, pattern), the attentions that it ends with, for a run to go on from.
    Coordinates `beta`, `gamma`, `epsilon` (lane). Shows progress; finished blocks are kept in `folder`, from where an
    interrupted run goes on.
    """
    settings = OrbitSettings() if settings is None else settings
    lanes = parameters.lanes
    if len(lanes) != 1:
        raise ValueError(f"orbits are one axis of lanes, got parameters of shape {lanes}")
    every = dmft.Parameters(*(jnp.broadcast_to(value, lanes) for value in jax.tree.leaves(parameters)))
    begun = start(model, every)

    def compute(block: np.ndarray) -> xr.Dataset:
        chosen = jax.tree.map(lambda values: values[block], every)
        return _block(model, chosen, _chosen_lanes(begun, lanes, block), settings)

    run = store.settings_of("orbit diagram", _VERSION, settings=settings, model=model, parameters=every, start=begun)
    found = in_blocks(compute, lanes[0], settings=run, folder=folder, label=label)
    passed = settings.transient_of(model) + settings.pieces * settings.tokens_a_piece
    return found.assign_attrs(position=(int(begun.position) + passed) % model.context)


def _chosen_lanes(state: dmft.State, lanes: tuple[int, ...], block: np.ndarray) -> dmft.State:
    """The state of some lanes, of a state of all or of one that all share."""

    def chosen(values: Array) -> Array:
        return values[..., block] if values.ndim and values.shape[-1:] == lanes else values

    whole = jax.tree.map(chosen, (state.attention, state.keys, state.values))
    return dmft.State(*whole, state.position, state.tokens)


def _block(
    model: dmft.SelfAttention, parameters: dmft.Parameters, start: dmft.State, settings: OrbitSettings
) -> xr.Dataset:
    window = dmft.settled(model, parameters, start, settings.transient_of(model))
    marks = _Marks(settings, model.patterns, parameters.lanes[0])
    state = dmft.warm_start(model, parameters, window)
    for _ in range(settings.pieces):
        end, overlaps = _recorded(model, parameters, state, steps=settings.tokens_a_piece)
        marks.add(np.asarray(overlaps))
        state = end.end
    latest = np.moveaxis(np.asarray(end.window(model).attention), -1, 0)
    exponents = _exponents(model, parameters, window, settings) if settings.exponents else {}
    coordinates = {name: (LANE, np.asarray(getattr(parameters, name))) for name in ("beta", "gamma", "epsilon")}
    return xr.Dataset({**marks.variables(), **exponents, "window": ((LANE, "age", "pattern"), latest)}, coordinates)


@eqx.filter_jit
def _recorded(
    model: dmft.SelfAttention, parameters: dmft.Parameters, state: dmft.State, *, steps: int
) -> tuple[dmft.Trajectory, Float[Array, "steps patterns lanes"]]:
    trajectory = dmft.run(model, parameters, state, steps=steps)
    before = jnp.moveaxis(trajectory.attention[:-1], 1, 0)
    return trajectory, jnp.moveaxis(dmft.semantic_overlap(model, dmft.OUTPUT, parameters, before), 0, 1)


class _Marks:
    """Which levels orbits have visited so far, piece by piece."""

    def __init__(self, settings: OrbitSettings, patterns: int, lanes: int):
        self._settings, self._sections = settings, [pair for pair in settings.sections if max(pair) < patterns]
        self._visited = np.zeros((lanes, patterns, settings.levels), dtype=np.uint8)
        self._in_section = np.zeros((lanes, len(self._sections), settings.levels), dtype=np.uint8)
        self._fine = np.zeros((lanes, patterns, _FINE_LEVELS), dtype=bool)
        self._lowest, self._highest = np.full((lanes, patterns), np.inf), np.full((lanes, patterns), -np.inf)

    def add(self, overlaps: Float[np.ndarray, "steps patterns lanes"]) -> None:
        """Mark what a piece of all orbits visits."""
        lane, pattern = np.arange(overlaps.shape[2]), np.arange(overlaps.shape[1])
        coarse = _level(overlaps, self._settings.levels)
        self._visited[lane, pattern[:, None], coarse] = 1
        self._fine[lane, pattern[:, None], _level(overlaps, _FINE_LEVELS)] = True
        for number, (shown, near_zero) in enumerate(self._sections):
            steps, lanes = np.nonzero(np.abs(overlaps[:, near_zero]) <= self._settings.width)
            self._in_section[lanes, number, coarse[steps, shown, lanes]] = 1
        self._lowest = np.minimum(self._lowest, overlaps.min(axis=0).T)
        self._highest = np.maximum(self._highest, overlaps.max(axis=0).T)

    def variables(self) -> dict:
        """The labelled marks."""
        names = np.array([f"{shown + 1} where {zero + 1} is zero" for shown, zero in self._sections], dtype=object)
        return {
            "visited": ((LANE, "pattern", "level"), self._visited),
            "in_section": ((LANE, "section", "level"), self._in_section),
            "distinct": ((LANE, "pattern"), self._fine.sum(axis=-1)),
            "lowest": ((LANE, "pattern"), self._lowest),
            "highest": ((LANE, "pattern"), self._highest),
            "pattern": np.arange(1, self._visited.shape[1] + 1),
            "section": names.astype(str),
            "level": np.linspace(-1, 1, self._settings.levels),
        }


def _level(values: Float[np.ndarray, "*_"], levels: int) -> np.ndarray:
    return np.rint((values + 1) / 2 * (levels - 1)).astype(int)


def _exponents(
    model: dmft.SelfAttention, parameters: dmft.Parameters, window: dmft.Window, settings: OrbitSettings
) -> dict:
    spectrum = dmft.lyapunov_spectrum(
        model,
        parameters,
        window,
        steps=settings.pieces * settings.tokens_a_piece,
        exponents=min(settings.exponents, model.context * model.patterns),
        blocks=_BLOCKS,
        orthonormalise=gram_schmidt,
    )
    return described_exponents(spectrum)


def described_exponents(spectrum: dmft.LyapunovSpectrum) -> dict:
    """The exponents of orbits on one axis of lanes, with their errors, and what follows from them, as variables.

    `exponent`, `exponent_error` (lane, number), `dimension` (lane), and `regime` (lane) where there are two or more.
    """
    exponents, errors = np.asarray(spectrum.exponents).T, np.asarray(spectrum.errors).T
    described = {
        "exponent": ((LANE, "number"), exponents),
        "exponent_error": ((LANE, "number"), errors),
        "number": np.arange(1, exponents.shape[1] + 1),
        "dimension": (LANE, kaplan_yorke_lower_bound(exponents)),
    }
    if exponents.shape[1] > 1:
        described["regime"] = (LANE, classify(exponents, errors).astype(str))
    return described
