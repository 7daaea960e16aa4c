"""Orbit diagrams: what orbits visit once they have settled, their Lyapunov exponents and regimes, over parameters.

parameters, start -> transient -> recorded orbit and exponents -> labelled dataset along "orbit"
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Bool, Float, Int32, UInt8

from ... import dmft, store
from ...checks import (
    checked_function,
    checked_instance,
    checked_number,
    checked_path,
    checked_sequence,
    checked_text,
    checked_whole_number,
    first_line,
)
from ...dynamics.orthonormal import gram_schmidt
from ...dynamics.regimes import classify, kaplan_yorke_lower_bound
from ...dynamics.time_series import SECTIONS
from ...settings import usual_settings
from ...workers import Workers
from ..map.self_attention import check_network, checked_fit, map_batch
from .blocks import ORBIT, in_blocks

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
    - `exponents`: how many of the leading ones, 0 for none; from `measured` tokens, by default those recorded.
    - `levels`: of each overlap from -1 to 1, which are marked as visited.
    - `sections`: pairs (a, b) of patterns from 0 on; a is marked where b is within `width` of zero. By default the
      published ones, as far as the network has their patterns.

    Raises `TypeError` or `ValueError` that names what cannot be.
    """

    transient: int = 100_000
    recorded: int = 10_000
    exponents: int = 3
    levels: int = 2001
    sections: tuple[tuple[int, int], ...] = SECTIONS
    width: float = 0.001
    measured: int | None = None

    def __post_init__(self):
        for name, least in (("transient", 0), ("recorded", None), ("exponents", 0), ("levels", 2)):
            object.__setattr__(self, name, checked_whole_number(name, getattr(self, name), least=least))
        if self.recorded < _BLOCKS:
            raise ValueError(f"record {_BLOCKS} tokens at least, got recorded={self.recorded}")
        if self.measured is not None:
            checked_whole_number("measured", self.measured, least=_BLOCKS)
        checked_number("width", self.width, above=0.0)
        pairs = checked_sequence("sections", self.sections, "pairs of patterns")
        object.__setattr__(self, "sections", tuple(map(_checked_section, pairs)))

    def checked_for(self, model: dmft.SelfAttention) -> "OrbitSettings":
        """The same, if `model` has the patterns of all sections; those that are published only as far as it has them.

        Raises `ValueError` otherwise.
        """
        checked_instance(
            "model", model, dmft.SelfAttention, "as dmft.self_attention_limit(weights, context) returns it"
        )
        there = tuple(pair for pair in self.sections if max(pair) < model.patterns)
        if there != self.sections and self.sections != SECTIONS:
            raise ValueError(f"sections {self.sections} are of patterns 0 to {model.patterns - 1}, which model has")
        return replace(self, sections=there)

    @property
    def pieces(self) -> int:
        """In how many pieces orbits are recorded."""
        return -(-self.recorded // _RECORDED_AT_ONCE)

    @property
    def tokens_a_piece(self) -> int:
        """Tokens of each of the pieces."""
        return -(-self.recorded // self.pieces)

    @property
    def tokens_of_exponents(self) -> int:
        """Tokens that the Lyapunov exponents are means over."""
        return self.pieces * self.tokens_a_piece if self.measured is None else self.measured

    def transient_of(self, model: dmft.SelfAttention) -> int:
        """Tokens passed over: those of a window at least."""
        return max(self.transient, checked_instance("model", model, dmft.SelfAttention).context)


def _checked_section(pair: Any) -> tuple[int, int]:
    patterns = checked_sequence("sections", pair, "patterns in each pair", 2)
    shown, zero = (checked_whole_number("sections", pattern, least=0) for pattern in patterns)
    return shown, zero


@usual_settings()
def orbit_diagram(
    model: dmft.SelfAttention,
    parameters: dmft.Parameters,
    start: Start,
    settings: OrbitSettings | None = None,
    *,
    folder: Path | str | None = None,
    executor: Workers = None,
    label: str = "orbits",
    progress: bool = True,
) -> xr.Dataset:
    """Settled orbits at many parameters along one axis; `start` makes the state that each begins with.

    Of the semantic overlap of the output, (1 - epsilon) <w^o tanh>:

    - `visited` (orbit, pattern, level), `in_section` (orbit, section, level): marks, 0 or 1.
    - `distinct` (orbit, pattern): how many of 5001 levels are visited. `lowest`, `highest` (orbit, pattern).

    And `exponent`, `exponent_error` (orbit, number), `regime` by them, `dimension`, the Kaplan-Yorke dimension or a
    lower bound of it; and `window` (orbit, age, pattern), the attentions that it ends with, for a run to go on from.
    Coordinates `beta`, `gamma`, `epsilon` (orbit). Finished blocks are kept in `folder`, from where an interrupted run
    goes on. Blocks run on all cores, or by an `executor`: processes that are started afresh, or a dask `Client`; what
    comes out is the same. `progress`: show a bar, with its `label`.
    """
    settings = checked_settings(OrbitSettings() if settings is None else settings, model, parameters)
    folder = None if folder is None else checked_path("folder", folder)
    checked_text("label", label)
    every = broadcast_orbits(parameters)
    begun = checked_begin(start, model, every)

    run = store.settings_of("orbit diagram", _VERSION, settings=settings, model=model, parameters=every, start=begun)
    compute, options = partial(_block, model, every, begun, settings), {"label": label, "progress": progress}
    found = in_blocks(compute, *every.batch_shape, settings=run, folder=folder, executor=executor, **options)
    passed = settings.transient_of(model) + settings.pieces * settings.tokens_a_piece
    return found.assign_attrs(position=(int(begun.position) + passed) % model.context)


def broadcast_orbits(parameters: dmft.Parameters) -> dmft.Parameters:
    """`parameters` of one axis, each of them broadcast to it; `ValueError` for another batch shape."""
    checked_instance("parameters", parameters, dmft.Parameters, "such as dmft.Parameters(betas, gamma, epsilon)")
    shape = parameters.batch_shape
    if len(shape) != 1:
        raise ValueError(f"orbits are along one axis, got parameters of shape {shape}")
    return dmft.Parameters(*(jnp.broadcast_to(value, shape) for value in jax.tree.leaves(parameters)))


def checked_settings(settings: OrbitSettings, model: dmft.SelfAttention, parameters: dmft.Parameters) -> OrbitSettings:
    """The settings for `model`. Raises `TypeError` or `ValueError` where these are no such things, or do not fit."""
    checked_instance("settings", settings, OrbitSettings)
    checked_instance("parameters", parameters, dmft.Parameters, "such as dmft.Parameters(beta, gamma, epsilon)")
    return settings.checked_for(model)


def checked_begin(start: Start, model: dmft.SelfAttention, parameters: dmft.Parameters) -> dmft.State:
    """The state that `start` makes. Raises `TypeError` or `ValueError` unless it is one of `model`."""
    check_network(model, parameters)
    try:
        state = checked_function("start", start)(model, parameters)
    except (TypeError, ValueError) as error:
        raise type(error)(f"start: {first_line(error)}") from error
    return checked_fit("start", state, dmft.State, model, parameters)


def _select_orbits(state: dmft.State, block: np.ndarray) -> dmft.State:
    """The state of some orbits, of a state of all or of one that all share."""
    if state.batch_shape in ((), (1,)):
        return state
    return map_batch(state, lambda entry, _: entry[..., block])


def _block(
    model: dmft.SelfAttention, every: dmft.Parameters, begun: dmft.State, settings: OrbitSettings, block: np.ndarray
) -> xr.Dataset:
    """The orbits whose numbers are in `block`, of all."""
    parameters, start = jax.tree.map(lambda values: values[block], every), _select_orbits(begun, block)
    window = dmft.discard_transient(model, parameters, start, settings.transient_of(model))
    marks = _Marks.none(settings, model.patterns, parameters.batch_shape[0])
    state = dmft.state_from_window(model, parameters, window)
    for _ in range(settings.pieces):
        end, overlaps = _record(model, parameters, state, steps=settings.tokens_a_piece)
        marks = marks.add(overlaps, settings.sections, settings.width)
        state = end.end
    latest = np.moveaxis(np.asarray(end.window(model).attention), -1, 0)
    exponents = {}
    if settings.exponents:
        spectrum = dmft.lyapunov_spectrum(
            model,
            parameters,
            window,
            steps=settings.tokens_of_exponents,
            exponents=min(settings.exponents, model.context * model.patterns),
            blocks=_BLOCKS,
            orthonormalise=gram_schmidt,
        )
        exponents = describe_exponents(spectrum)
    coordinates = {name: (ORBIT, np.asarray(getattr(parameters, name))) for name in ("beta", "gamma", "epsilon")}
    return xr.Dataset(
        {**marks.variables(settings.sections), **exponents, "window": ((ORBIT, "age", "pattern"), latest)}, coordinates
    )


@eqx.filter_jit
def _record(
    model: dmft.SelfAttention, parameters: dmft.Parameters, state: dmft.State, *, steps: int
) -> tuple[dmft.Trajectory, Float[Array, "steps patterns orbits"]]:
    trajectory = dmft.run(model, parameters, state, steps=steps)
    before = jnp.moveaxis(trajectory.attention[:-1], 1, 0)
    return trajectory, jnp.moveaxis(dmft.semantic_overlap(model, dmft.OUTPUT, parameters, before), 0, 1)


class _Marks(eqx.Module):
    """Levels that orbits have visited so far, kept on the device: orbits themselves are not sent to the host."""

    visited: UInt8[Array, "orbits patterns levels"]
    in_section: UInt8[Array, "orbits sections levels"]
    fine: Bool[Array, "orbits patterns fine_levels"]
    lowest: Float[Array, "orbits patterns"]
    highest: Float[Array, "orbits patterns"]

    @classmethod
    def none(cls, settings: OrbitSettings, patterns: int, orbits: int) -> "_Marks":
        """Marks before the first piece."""
        return cls(
            jnp.zeros((orbits, patterns, settings.levels), dtype=jnp.uint8),
            jnp.zeros((orbits, len(settings.sections), settings.levels), dtype=jnp.uint8),
            jnp.zeros((orbits, patterns, _FINE_LEVELS), dtype=bool),
            jnp.full((orbits, patterns), jnp.inf),
            jnp.full((orbits, patterns), -jnp.inf),
        )

    @eqx.filter_jit
    def add(
        self, overlaps: Float[Array, "steps patterns orbits"], sections: tuple[tuple[int, int], ...], width: float
    ) -> "_Marks":
        """Mark what a piece of all orbits visits."""
        levels = self.visited.shape[2]
        orbit, pattern = jnp.arange(overlaps.shape[2]), jnp.arange(overlaps.shape[1])[:, None]
        coarse = _level(overlaps, levels)
        in_section = self.in_section
        for number, (shown, near_zero) in enumerate(sections):
            # a level that is not there drops the mark
            marked = jnp.where(jnp.abs(overlaps[:, near_zero]) <= width, coarse[:, shown], levels)
            in_section = in_section.at[orbit, number, marked].set(1, mode="drop")
        return _Marks(
            self.visited.at[orbit, pattern, coarse].set(1),
            in_section,
            self.fine.at[orbit, pattern, _level(overlaps, _FINE_LEVELS)].set(True),
            jnp.minimum(self.lowest, overlaps.min(axis=0).T),
            jnp.maximum(self.highest, overlaps.max(axis=0).T),
        )

    def variables(self, sections: tuple[tuple[int, int], ...]) -> dict:
        """The labelled marks."""
        names = np.array([f"{shown + 1} where {zero + 1} is zero" for shown, zero in sections], dtype=object)
        _, patterns, levels = self.visited.shape
        return {
            "visited": ((ORBIT, "pattern", "level"), np.asarray(self.visited)),
            "in_section": ((ORBIT, "section", "level"), np.asarray(self.in_section)),
            "distinct": ((ORBIT, "pattern"), np.asarray(self.fine.sum(axis=-1))),
            "lowest": ((ORBIT, "pattern"), np.asarray(self.lowest)),
            "highest": ((ORBIT, "pattern"), np.asarray(self.highest)),
            "pattern": np.arange(1, patterns + 1),
            "section": names.astype(str),
            "level": np.linspace(-1, 1, levels),
        }


def _level(values: Float[Array, "*_"], levels: int) -> Int32[Array, "*_"]:
    return jnp.rint((values + 1) / 2 * (levels - 1)).astype(jnp.int32)


def describe_exponents(spectrum: dmft.LyapunovSpectrum) -> dict:
    """The exponents of orbits along one axis, with their errors, and what follows from them, as variables.

    `exponent`, `exponent_error` (orbit, number), `dimension` (orbit), and `regime` (orbit) where there are two or more.
    """
    checked_instance("spectrum", spectrum, dmft.LyapunovSpectrum, "as dmft.lyapunov_spectrum returns it")
    exponents, errors = np.asarray(spectrum.exponents).T, np.asarray(spectrum.errors).T
    described = {
        "exponent": ((ORBIT, "number"), exponents),
        "exponent_error": ((ORBIT, "number"), errors),
        "number": np.arange(1, exponents.shape[1] + 1),
        "dimension": (ORBIT, kaplan_yorke_lower_bound(exponents)),
    }
    if exponents.shape[1] > 1:
        described["regime"] = (ORBIT, classify(spectrum).astype(str))
    return described
