"""Orbits of the self-attention map over a range of parameters and starts. Runs work in blocks and can be resumed.

parameters, start -> transient -> recorded orbit and exponents -> labelled dataset along "orbit"
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from .. import dmft, store
from ..checks import (
    Count,
    Index,
    Key,
    NonNegative,
    Positive,
    check_fields,
    checked_arguments,
    checked_instance,
    checked_whole_number,
    counted,
    first_line,
)
from ..dynamics.orthonormal import gram_schmidt
from ..dynamics.regimes import classify, classify_by_levels, differ, kaplan_yorke_lower_bound
from ..progress import Progress
from ..settings import usual_settings
from ..store.runs import resume_tasks
from ..workers import Workers, check_executor
from .map import fitting, map_batch

__all__ = [
    "OrbitSettings",
    "coexisting_attractors",
    "continuation_diagram",
    "nearby_windows",
    "orbit_diagram",
    "phase_diagram",
]

ORBIT = "orbit"
Start = Callable[[dmft.SelfAttention, dmft.Parameters], dmft.State]

# Sections of the published diagrams, as pairs of patterns (shown, held at zero).
_SECTIONS = ((0, 1), (0, 2), (1, 0), (2, 0))
# Number of tokens that are recorded at a time, which limits memory.
_RECORDED_AT_ONCE = 4096
# Number of stretches of an orbit from which the errors of exponents are computed.
_BLOCKS = 20
# Number of levels of the published count of distinct values.
_FINE_LEVELS = 5001
# Largest number of orbits in a block on a CPU: enough for long vectors, few enough for the cache.
_ORBITS = 256
# Smallest number of orbits for which a separate block pays off.
_FEWEST_ORBITS = 32
# Number of blocks if there are enough orbits. It does not depend on the processor, so that runs resume anywhere.
_BLOCKS_OF_ORBITS = 8
# Largest number of orbits in a block on an accelerator, which takes hardly longer for this number than for 256. A block
# of this size needs 1 to 2 GiB.
_ORBITS_OF_AN_ACCELERATOR = 4096
# Number of orbits whose windows are stored together.
_KEPT_TOGETHER = 25
# Increase this number whenever a diagram or continued orbits change for the same arguments, so that stored blocks of an
# earlier version are not reused.
_VERSION = 1

_Levels = Annotated[int, partial(checked_whole_number, least=2)]
_Tokens = Annotated[int, partial(checked_whole_number, least=_BLOCKS)]


@dataclass(frozen=True)
class OrbitSettings:
    """Length of orbits, and the quantities to record.

    - `transient`: number of tokens to discard.
    - `recorded`: number of tokens for marks and exponents. It may be rounded up.
    - `exponents`: number of leading exponents, or 0 for none.
    - `levels`: number of levels of each overlap from -1 to 1. A level is marked if the orbit visits it.
    - `sections`: pairs (a, b) of patterns, counted from 0. The level of a is marked if b is within `width` of zero. By
      default, the published pairs whose patterns exist in the network.
    - `width`: largest distance of b from zero.
    - `measured`: number of tokens for exponents. By default, the recorded tokens are used.
    """

    transient: Index = 100_000
    recorded: int = 10_000
    exponents: Index = 3
    levels: _Levels = 2001
    sections: tuple[tuple[Index, Index], ...] = _SECTIONS
    width: Positive = 0.001
    measured: _Tokens | None = None

    def __post_init__(self):
        check_fields(self)
        if self.recorded < _BLOCKS:
            raise ValueError(f"recorded must be at least {_BLOCKS} tokens, got {self.recorded}")

    def _for(self, model: dmft.SelfAttention) -> OrbitSettings:
        """Return the settings with those published sections whose patterns exist in `model`."""
        there = tuple(pair for pair in self.sections if max(pair) < model.patterns)
        if there != self.sections and self.sections != _SECTIONS:
            raise ValueError(f"sections must contain patterns 0 to {model.patterns - 1}, got {self.sections}")
        return replace(self, sections=there)

    @property
    def _pieces(self) -> tuple[int, int]:
        """Return the number of pieces in which orbits are recorded, and the tokens of each."""
        pieces = -(-self.recorded // _RECORDED_AT_ONCE)
        return pieces, -(-self.recorded // pieces)


@usual_settings()
@checked_arguments
def orbit_diagram(
    model: dmft.SelfAttention,
    parameters: dmft.Parameters,
    start: Start,
    settings: OrbitSettings | None = None,
    *,
    folder: Path | str | None = None,
    executor: Workers = None,
    label: str = "orbit diagram",
    progress: bool = True,
) -> xr.Dataset:
    """Compute settled orbits at many parameters along one axis.

    Args:
        model: The network in the limit of many neurons.
        parameters: Parameters with one batch axis.
        start: Function of (model, parameters) that returns the initial state of all orbits, such as `window_start` of a
            prompt.
        settings: Length of orbits, and the quantities to record.
        folder: Folder for finished blocks of orbits, so that an interrupted run can be resumed.
        executor: Spawned processes or a dask `Client` that run the blocks. By default, threads on all cores run them.
            Results do not depend on the executor.
        label: Label of the progress bar.
        progress: Report progress.

    Returns:
        A dataset with one entry per parameter along "orbit". These variables describe the semantic overlap of the
        output, (1 - epsilon) <w^o tanh>:

        - `visited` (orbit, pattern, level): 1 for levels that the orbit visits, otherwise 0.
        - `in_section` (orbit, section, level): the same in sections of the orbit.
        - `distinct` (orbit, pattern): number of visited levels out of 5001.
        - `lowest`, `highest` (orbit, pattern): range of the overlap.

        These are included unless `settings.exponents` is 0:

        - `exponent`, `exponent_error` (orbit, number): Lyapunov exponents, largest first.
        - `regime` (orbit): result of `dynamics.classify`, if there are two or more exponents.
        - `dimension` (orbit): the Kaplan-Yorke dimension, or a lower bound if there are too few exponents.

        `window` (orbit, age, pattern) contains the final attentions, newest first, from which orbits can be resumed.
        The attribute `position` is the position of the next token. `beta`, `gamma` and `epsilon` (orbit) are
        coordinates without an index: to plot against one of them, use `swap_dims(orbit="beta")`. `pattern` and `number`
        count from 1, `level` is the overlap, and `section` is a text such as "1 where 2 is zero".
    """
    settings = (OrbitSettings() if settings is None else settings)._for(model)
    every = _along_one_axis(parameters)
    begun = _begin(start, model, every)
    run = store.settings_of("orbit diagram", _VERSION, settings=settings, model=model, parameters=every, start=begun)
    compute, options = partial(_block, model, every, begun, settings), {"label": label, "progress": progress}
    found = in_blocks(compute, *every.batch_shape, settings=run, folder=folder, executor=executor, **options)
    passed = max(settings.transient, model.context) + int(np.prod(settings._pieces))
    return found.assign_attrs(position=(int(begun.position) + passed) % model.context)


def _along_one_axis(parameters: dmft.Parameters) -> dmft.Parameters:
    shape = parameters.batch_shape
    if len(shape) != 1:
        raise ValueError(f"parameters must have one batch axis, got shape {shape}")
    return dmft.Parameters(*(jnp.broadcast_to(value, shape) for value in jax.tree.leaves(parameters)))


def _begin(start: Start, model: dmft.SelfAttention, parameters: dmft.Parameters) -> dmft.State:
    try:
        state = checked_instance("start", start(model, parameters), dmft.State, "as token_start returns it")
    except (TypeError, ValueError) as error:
        raise type(error)(f"start: {first_line(error)}") from error
    return fitting("start", state, model, parameters)


def _select_orbits(state: dmft.State, block: np.ndarray) -> dmft.State:
    """Return the state of the orbits in `block`, from the state of all orbits or from one shared state."""
    if state.batch_shape in ((), (1,)):
        return state
    return map_batch(state, lambda entry, _: entry[..., block])


def _block(
    model: dmft.SelfAttention, every: dmft.Parameters, begun: dmft.State, settings: OrbitSettings, block: np.ndarray
) -> xr.Dataset:
    """Compute the orbits with the numbers in `block`."""
    parameters, start = jax.tree.map(lambda values: values[block], every), _select_orbits(begun, block)
    window = dmft.discard_transient(model, parameters, start, max(settings.transient, model.context))
    shape, (pieces, tokens) = (len(block), model.patterns), settings._pieces
    # Accumulate marks on the device, instead of sending orbits to the host.
    marks = {
        "visited": jnp.zeros((*shape, settings.levels), dtype=jnp.uint8),
        "in_section": jnp.zeros((len(block), len(settings.sections), settings.levels), dtype=jnp.uint8),
        "distinct": jnp.zeros((*shape, _FINE_LEVELS), dtype=bool),
        "lowest": jnp.full(shape, jnp.inf),
        "highest": jnp.full(shape, -jnp.inf),
    }
    state = dmft.state_from_window(model, parameters, window)
    for _ in range(pieces):
        path, overlaps = _record(model, parameters, state, steps=tokens)
        marks = _mark(marks, overlaps, settings.sections, settings.width)
        state = path.end
    marks["distinct"] = marks["distinct"].sum(axis=-1)
    axes = {"visited": ("pattern", "level"), "in_section": ("section", "level")}
    labelled = {name: ((ORBIT, *axes.get(name, ("pattern",))), np.asarray(each)) for name, each in marks.items()}
    labelled["window"] = ((ORBIT, "age", "pattern"), np.moveaxis(np.asarray(path.window(model).attention), -1, 0))
    if settings.exponents:
        spectrum = dmft.lyapunov_spectrum(
            model,
            parameters,
            window,
            steps=pieces * tokens if settings.measured is None else settings.measured,
            exponents=min(settings.exponents, model.context * model.patterns),
            blocks=_BLOCKS,
            orthonormalise=gram_schmidt,
        )
        labelled |= describe_exponents(spectrum)
    names = [f"{shown + 1} where {zero + 1} is zero" for shown, zero in settings.sections]
    coordinates = {name: (ORBIT, np.asarray(getattr(parameters, name))) for name in ("beta", "gamma", "epsilon")}
    coordinates["pattern"] = np.arange(1, model.patterns + 1)
    coordinates["section"] = np.array(names, dtype=object).astype(str)
    coordinates["level"] = np.linspace(-1, 1, settings.levels)
    return xr.Dataset(labelled, coordinates)


@eqx.filter_jit
def _record(model, parameters, state, *, steps):
    """Return the trajectory, and the semantic overlaps of the output (steps, patterns, orbits)."""
    path = dmft.run(model, parameters, state, steps=steps)
    before = jnp.moveaxis(path.attention[:-1], 1, 0)
    return path, jnp.moveaxis(dmft.semantic_overlap(model, dmft.OUTPUT, parameters, before), 0, 1)


@eqx.filter_jit
def _mark(marks: Mapping[str, Array], overlaps: Float[Array, "steps patterns orbits"], sections, width) -> dict:
    """Mark the levels that orbits visit in one piece of their run."""
    levels = marks["visited"].shape[2]
    orbit, pattern = jnp.arange(overlaps.shape[2]), jnp.arange(overlaps.shape[1])[:, None]

    def level(count: int) -> Array:
        return jnp.rint((overlaps + 1) / 2 * (count - 1)).astype(jnp.int32)

    coarse, in_section = level(levels), marks["in_section"]
    for number, (shown, near_zero) in enumerate(sections):
        # Outside the section, the index is out of range, which drops the mark.
        marked = jnp.where(jnp.abs(overlaps[:, near_zero]) <= width, coarse[:, shown], levels)
        in_section = in_section.at[orbit, number, marked].set(1, mode="drop")
    return {
        "visited": marks["visited"].at[orbit, pattern, coarse].set(1),
        "in_section": in_section,
        "distinct": marks["distinct"].at[orbit, pattern, level(_FINE_LEVELS)].set(True),
        "lowest": jnp.minimum(marks["lowest"], overlaps.min(axis=0).T),
        "highest": jnp.maximum(marks["highest"], overlaps.max(axis=0).T),
    }


def describe_exponents(spectrum: dmft.LyapunovSpectrum) -> dict:
    """Return exponents of orbits along one axis, their errors, `dimension`, and `regime` if there are two or more."""
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


# ---- blocks


@checked_arguments
def in_blocks(
    compute: Callable[[np.ndarray], xr.Dataset],
    orbits: Count,
    *,
    settings: Mapping[str, str],
    folder: Path | str | None = None,
    orbits_per_block: Count | None = None,
    executor: Workers = None,
    label: str = "orbit diagram",
    progress: bool = True,
) -> xr.Dataset:
    """Build the dataset of all orbits, block by block.

    All blocks have the same size, so that each function is compiled once. By default, blocks run in threads on a CPU,
    because compiled code does not hold the interpreter lock, and one after another on an accelerator. A run can be
    resumed from blocks that another kind of device computed.

    Args:
        compute: Function that returns the dataset of the orbits with given numbers.
        orbits: Number of orbits.
        settings: All inputs on which the result depends. They are stored with each block.
        folder: Folder for finished blocks.
        orbits_per_block: Largest size of a block, by default 256 on a CPU and 4096 on an accelerator.
        executor: Processes or dask `Client` that run the blocks instead. They pickle `compute`.
        label: Label of the progress bar.
        progress: Report progress.
    """
    check_executor(executor)
    size = _size(orbits, orbits_per_block, folder)
    spans = [(first, min(first + size, orbits) - 1) for first in range(0, orbits, size)]
    blocks = [np.arange(first, last + 1) for first, last in spans]
    places = [folder and (_file(folder, *span), {**settings, "orbits": "{} to {}".format(*span)}) for span in spans]
    tasks, found = [(block, size) for block in blocks], {}
    cost = counted(orbits, "orbit") + (f" in {len(blocks):,} blocks of at most {size:,}" if len(blocks) > 1 else "")
    threads = os.cpu_count() if jax.default_backend() == "cpu" else 1
    with (
        Progress(label, orbits, "orbit", shown=progress, cost=cost) as report,
        ThreadPoolExecutor(threads) if executor is None else nullcontext(executor) as workers,
    ):
        for number, result in resume_tasks(workers, _compute_padded, tasks, places, (compute,)):
            found[number] = result
            report.update(len(blocks[number]))
    return xr.concat([found[number] for number in range(len(blocks))], dim=ORBIT, combine_attrs="drop_conflicts")


def _size(orbits: int, orbits_per_block: int | None, folder: Path | None) -> int:
    """Return the number of orbits per block. It agrees with files in the folder, or else suits the device."""
    most = _ORBITS if orbits_per_block is None else orbits_per_block
    small = -(-orbits // max(-(-orbits // most), min(_BLOCKS_OF_ORBITS, orbits // _FEWEST_ORBITS)))
    if orbits_per_block is not None:
        return small
    large = -(-orbits // -(-orbits // _ORBITS_OF_AN_ACCELERATOR))
    for size in (small, large):
        firsts = range(0, orbits, size)
        if folder and any(_file(folder, first, min(first + size, orbits) - 1).exists() for first in firsts):
            return size
    return small if jax.default_backend() == "cpu" else large


def _file(folder: Path, first: int, last: int) -> Path:
    return folder / f"{first:06d}-{last:06d}.nc"


@usual_settings()
def _compute_padded(compute: Callable[[np.ndarray], xr.Dataset], block: np.ndarray, size: int) -> xr.Dataset:
    """Compute the orbits of a block, padded to `size` by repeating the last one."""
    found = compute(np.pad(block, (0, size - len(block)), mode="edge"))
    return checked_instance("compute", found, xr.Dataset, "as it returns").isel({ORBIT: slice(len(block))})


# ---- phase diagrams


@usual_settings()
@checked_arguments
def phase_diagram(
    model: dmft.SelfAttention,
    parameters: dmft.Parameters,
    start: Start,
    settings: OrbitSettings | None = None,
    *,
    folder: Path | str | None = None,
    executor: Workers = None,
    progress: bool = True,
) -> xr.Dataset:
    """Compute settled orbits for every gamma and beta.

    Args:
        model: The network in the limit of many neurons.
        parameters: `dmft.Parameters(betas, gammas[:, None], epsilon)`.
        start: Function of (model, parameters) that returns the initial state of all orbits.
        settings: As in `orbit_diagram`, with at least two exponents, or with none for the published rule only.
        folder: Folder for finished blocks of orbits, so that an interrupted run can be resumed.
        executor: Spawned processes or a dask `Client` that run the blocks, as in `orbit_diagram`.
        progress: Report progress.

    Returns:
        The dataset of `orbit_diagram` with axes (gamma, beta) instead of (orbit) and without marks, and with these
        variables (gamma, beta):

        - `regime`: regime from the two largest exponents, or "undecided" if an error bar contains the threshold.
        - `regime_by_levels`: regime by the published rule of thumb, from the number of distinct levels of the first
          output overlap. `dynamics.regimes.classify_by_levels` applies other thresholds to `distinct`.
        - `differs`: whether `regime` is decided and differs from the published rule. Both quasi-periodic kinds count as
          one, and so do both chaotic kinds.
    """
    settings = OrbitSettings(100_000, 20_000, exponents=2, measured=100_000) if settings is None else settings
    if settings.exponents == 1:
        raise ValueError("settings: a regime needs at least two exponents, got exponents=1")
    gamma, beta, epsilon = (np.asarray(value) for value in (parameters.gamma, parameters.beta, parameters.epsilon))
    if len(parameters.batch_shape) != 2 or gamma.shape[1:] != (1,) or beta.ndim != 1 or epsilon.ndim:
        raise ValueError(
            "parameters of a phase diagram must be gammas (gammas, 1), betas (betas,) and one epsilon, such as "
            f"Parameters(betas, gammas[:, None], 0.02); got shapes {gamma.shape}, {beta.shape} and {epsilon.shape}"
        )
    axes, epsilon = {"gamma": gamma[:, 0], "beta": beta}, float(epsilon)
    every_gamma, every_beta = (grid.ravel() for grid in np.meshgrid(*axes.values(), indexing="ij"))
    every = dmft.Parameters(every_beta, every_gamma, epsilon)
    unmarked = replace(settings, levels=2, sections=())
    options = {"folder": folder, "executor": executor, "label": "phase diagram", "progress": progress}
    flat = orbit_diagram(model, every, start, unmarked, **options)
    flat = flat.drop_vars(["visited", "in_section", "section", "level", "beta", "gamma", "epsilon"])
    folded = flat.coarsen({ORBIT: len(beta)}).construct({ORBIT: tuple(axes)})
    regimes = classify_by_levels(folded["distinct"].sel(pattern=1).values).astype(str)
    folded = folded.assign(regime_by_levels=(tuple(axes), regimes)).assign_coords({**axes, "epsilon": epsilon})
    if "regime" in folded:
        folded["differs"] = tuple(axes), differ(folded["regime"].values, regimes)
    return folded


# ---- continuation: orbits that start from their neighbour, because several attractors may coexist


@usual_settings()
@checked_arguments
def continuation_diagram(
    model: dmft.SelfAttention,
    parameters: dmft.Parameters,
    start: Start,
    settings: OrbitSettings | None = None,
    *,
    centre: int | None = None,
    folder: Path | str | None = None,
    executor: Workers = None,
    progress: bool = True,
) -> xr.Dataset:
    """Compute an `orbit_diagram` whose orbits continue from one parameter to the next.

    `start` begins the orbit at index `centre`, by default in the middle. Each orbit runs for the `transient` of
    `settings`. Its last attentions are then the initial window of its neighbour, away from the centre on both sides.
    All other arguments are documented in `orbit_diagram`.
    """
    check_executor(executor)
    settings = OrbitSettings(recorded=150_000) if settings is None else settings
    settings._for(model)
    every = _along_one_axis(parameters)
    (orbits,) = every.batch_shape
    centre = orbits // 2 if centre is None else checked_whole_number("centre", centre, least=-orbits, most=orbits - 1)
    settling, centre = settings.transient, centre % orbits
    # Every orbit starts one transient later than its neighbour. Whole turns keep the positions of all windows equal.
    if settling < model.context or (orbits > 1 and settling % model.context):
        raise ValueError(f"settings: transient={settling} tokens must be a multiple of the context, {model.context}")
    first = _select(every, centre)
    begun = _begin(start, model, first)
    run = {"model": model, "parameters": every, "start": begun, "centre": centre, "settling": settling}
    run = store.settings_of("continuation", _VERSION, **run)
    with Progress("settling", orbits, "orbit", shown=progress, cost=f"{settling:,} tokens each") as report:
        window = dmft.discard_transient(model, first, begun, settling)
        latest = dmft.Window(np.stack([np.asarray(window.attention)] * 2, axis=-1), window.position)
        found = {centre: np.asarray(window.attention)}
        # Move away from the centre in both directions. After the end of one side, its last index repeats.
        distances = range(1, max(centre, orbits - 1 - centre) + 1)
        steps = [(min(centre + distance, orbits - 1), max(centre - distance, 0)) for distance in distances]
        report.update()
        for number in range(0, len(steps), _KEPT_TOGETHER):
            together = steps[number : number + _KEPT_TOGETHER]
            compute = partial(_settle_in_turn, model, every, latest, together, settling)
            path = None if folder is None else folder / f"settling-{number:06d}.nc"
            kept = compute() if path is None else store.resume(path, {**run, "steps": str(together)}, compute)
            for pair, attentions in zip(together, kept["window"].values, strict=True):
                found |= {index: attentions[..., side] for side, index in enumerate(pair)}
            latest = dmft.Window(kept["window"].values[-1], window.position)
            report.update(len(found) - report.done)
    windows = dmft.Window(np.stack([found[index] for index in sorted(found)], axis=-1), window.position)

    def carried(model: dmft.SelfAttention, parameters: dmft.Parameters) -> dmft.State:
        return dmft.state_from_window(model, parameters, windows)

    options = {"folder": folder and folder / "orbits", "executor": executor, "label": "recording"}
    recorded = orbit_diagram(model, every, carried, replace(settings, transient=0), progress=progress, **options)
    return recorded.assign_attrs(centre=centre)


def _select(every: dmft.Parameters, orbits: int | Sequence[int]) -> dmft.Parameters:
    return jax.tree.map(lambda values: values[np.asarray(orbits)], every)


def _settle_in_turn(model, every: dmft.Parameters, latest: dmft.Window, pairs, settling: int) -> xr.Dataset:
    windows = []
    for pair in pairs:
        parameters = _select(every, pair)
        latest = dmft.discard_transient(model, parameters, dmft.state_from_window(model, parameters, latest), settling)
        windows.append(np.asarray(latest.attention))
    return xr.Dataset({"window": (("distance", "age", "pattern", "side"), np.stack(windows))})


# ---- coexisting attractors


@checked_arguments
def nearby_windows(window: dmft.Window, count: Count, spread: NonNegative, *, key: Key) -> dmft.Window:
    """Return a batch of `count` windows: the attentions of `window` plus normal noise of width `spread`."""
    if window.batch_shape:
        raise ValueError(f"window must be a single window, got a batch of shape {window.batch_shape}")
    noise = jax.random.normal(key, (*window.attention.shape, count))
    return dmft.Window(window.attention[..., None] + spread * noise, window.position)


@usual_settings()
@checked_arguments
def coexisting_attractors(
    model: dmft.SelfAttention,
    parameters: dmft.Parameters,
    windows: dmft.Window,
    settings: OrbitSettings | None = None,
    *,
    tolerance: NonNegative = 0.01,
    folder: Path | str | None = None,
    executor: Workers = None,
    progress: bool = True,
) -> xr.Dataset:
    """Compute the `orbit_diagram` for a batch of starts at one set of `parameters`, and group equal attractors.

    Two orbits have the same attractor if the lowest and highest value of every output overlap, and the leading
    exponent, differ by less than `tolerance` (or by two errors of the exponent). All other arguments are documented in
    `orbit_diagram`.

    Returns:
        The dataset of `orbit_diagram` with these variables:

        - `attractor` (orbit): number of the attractor, from 1, by decreasing number of starts.
        - `share`, `share_error` (basin): fraction of starts that end on the attractor, and its standard error.
        - `typical` (basin): index of one orbit on the attractor.
    """
    if parameters.batch_shape:
        raise ValueError(f"parameters must be one set of parameters, got a batch of shape {parameters.batch_shape}")
    fitting("windows", windows, model)
    if len(windows.batch_shape) != 1:
        raise ValueError(f"windows must have one batch axis, got shape {windows.batch_shape}")
    (count,) = windows.batch_shape
    every = dmft.Parameters(np.full(count, parameters.beta), parameters.gamma, parameters.epsilon)

    def begin(model: dmft.SelfAttention, parameters: dmft.Parameters) -> dmft.State:
        return dmft.state_from_window(model, parameters, windows)

    options = {"folder": folder, "executor": executor, "label": "attractors", "progress": progress}
    found = orbit_diagram(model, every, begin, settings, **options)
    orbits, groups = [found.isel({ORBIT: orbit}) for orbit in range(count)], {}

    def are_alike(one: xr.Dataset, other: xr.Dataset) -> bool:
        extents = max(float(np.abs(one[name] - other[name]).max()) for name in ("lowest", "highest"))
        if extents > tolerance or "exponent" not in found:
            return extents <= tolerance
        error = float(np.hypot(one["exponent_error"][0], other["exponent_error"][0]))
        return abs(float(one["exponent"][0] - other["exponent"][0])) <= max(tolerance, 2 * error)

    for orbit in range(count):
        # Compare with the first orbit of a group.
        first = next((first for first in groups if are_alike(orbits[first], orbits[orbit])), orbit)
        groups.setdefault(first, []).append(orbit)
    groups = sorted(groups.values(), key=len, reverse=True)
    numbers = np.zeros(count, dtype=int)
    for number, members in enumerate(groups, 1):
        numbers[members] = number
    shares = np.array([len(members) / count for members in groups])
    return found.assign(
        attractor=(ORBIT, numbers),
        share=("basin", shares),
        share_error=("basin", np.sqrt(shares * (1 - shares) / count)),
        typical=("basin", np.array([members[0] for members in groups])),
        basin=np.arange(1, len(groups) + 1),
    )
