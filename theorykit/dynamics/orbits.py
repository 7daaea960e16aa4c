"""Orbits of any map over many parameters: recorded values, exponents and regimes, in blocks that can be resumed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, PyTree

from .. import store
from .._compat import require_float64
from .._jit import usual_settings
from ..checks import checked_whole_number
from ..progress import Progress
from . import exponents as lyapunov
from .exponents import Step

ORBIT = "orbit"
# Increase this number whenever orbits change for the same arguments.
_VERSION = 1
# Number of parts of an orbit from which the errors of exponents are computed.
_BLOCKS = 20
# Most orbits in a block: on a CPU, enough for long vectors, and few enough for its cache.
_MOST = {"cpu": 256}
_MOST_ON_ACCELERATORS = 4096
# More orbits than this are divided into at least eight blocks.
_SEVERAL = 256


@usual_settings()
def orbits(
    step: Step,
    parameters: PyTree,
    start: PyTree | Callable[[PyTree], PyTree],
    *,
    transient: int = 1000,
    recorded: int = 200,
    observe: Callable[[PyTree, PyTree], Array] | None = None,
    levels: np.ndarray | None = None,
    exponents: int = 0,
    coordinates: Callable[[PyTree], PyTree] | None = None,
    carry: Callable[[PyTree, PyTree], PyTree] | None = None,
    folder: Path | str | None = None,
    label: str = "orbits",
    progress: bool = True,
) -> xr.Dataset:
    """Compute settled orbits of a map at many parameters.

    Args:
        step: The map, `step(state, parameter) -> state`. A state is any tree of arrays.
        parameters: An array with one value per orbit, or a tree of such arrays. Numbers are shared by all orbits.
        start: First state of all orbits, or a function of one orbit's parameter that returns it.
        transient: Number of steps to discard.
        recorded: Number of steps to record; with exponents, a multiple of 20.
        observe: Function of a state and a parameter that returns the numbers to record. The default is the state, which
            must then be an array. Leave out a number by NaN.
        levels: Evenly spaced centres of levels. With levels, the result says which ones an orbit visits, and has no
            values, which long orbits have no room for.
        exponents: Number of leading Lyapunov exponents over the recorded steps.
        coordinates: Part of a state in which perturbations are measured, as in `lyapunov_spectrum`.
        carry: Function of a state and a parameter. With it, every orbit continues from the end of the previous one, at
            `carry(end, parameter)`, and `start` begins the first one. Orbits then run one after another.
        folder: Folder for finished blocks of orbits, from which the same call resumes.
        label: Label of the progress bar.
        progress: Report progress.

    Returns:
        A dataset along "orbit", with the parameters as coordinates:

        - `values` (orbit, step, component), or with levels `visited` (orbit, component, level), 1 for visited levels.
        - `lowest`, `highest` (orbit, component): range of the recorded numbers.
        - `exponent`, `exponent_error` (orbit, number), the Kaplan-Yorke `dimension` (orbit), a lower bound if there are
          too few exponents, and with two exponents or more the `regime` (orbit) of `dynamics.classify`, or "escaped".
        - `end` (orbit, ...): last state of each orbit, one variable per array, such as `end.keys`.

    Example:
        >>> import numpy as np
        >>> import theorykit
        >>> from theorykit import dynamics
        >>> theorykit.enable_float64()
        >>> def logistic(x, growth):
        ...     return growth * x * (1 - x)
        >>> found = dynamics.orbits(logistic, np.array([2.0, 3.2]), 0.3, recorded=4)
        >>> found["values"].sel(component=0).round(3).values.tolist()
        [[0.5, 0.5, 0.5, 0.5], [0.513, 0.799, 0.513, 0.799]]
    """
    require_float64()
    for name, value, least in (("transient", transient, 0), ("recorded", recorded, 1), ("exponents", exponents, 0)):
        checked_whole_number(name, value, least=least)
    if exponents and recorded % _BLOCKS:
        raise ValueError(f"recorded={recorded} must be a multiple of {_BLOCKS} for exponents")
    parameters = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), parameters)
    counts = {len(leaf) for leaf in jax.tree.leaves(parameters) if leaf.ndim}
    if len(counts) != 1 or 0 in counts:
        raise ValueError(f"parameters must be arrays with one entry per orbit, got the lengths {sorted(counts)}")
    (count,) = counts
    parameters = jax.tree.map(lambda leaf: leaf if leaf.ndim else jnp.full(count, leaf), parameters)
    if not callable(start):
        start = jax.tree.map(jnp.asarray, start)
    grid = None if levels is None else jnp.asarray(levels, float)
    lengths = (transient, recorded, exponents)
    program = (step, start, observe, coordinates, carry, lengths, grid)

    size = min(count, _MOST.get(jax.default_backend(), _MOST_ON_ACCELERATORS))
    if count > _SEVERAL:  # enough blocks to keep all cores busy
        size = min(size, -(-count // 8))
    size = size if carry is None else count
    blocks = [np.arange(first, min(first + size, count)) for first in range(0, count, size)]

    def compute(block: np.ndarray) -> xr.Dataset:
        # All blocks have one size, so that they are compiled once.
        padded = np.pad(block, (0, size - len(block)), mode="edge")
        with usual_settings():
            arrays = _block(*program, jax.tree.map(lambda leaf: leaf[padded], parameters))
        return _labelled(arrays, levels).isel({ORBIT: slice(len(block))})

    pieces: list[Any] = [None] * len(blocks)
    if folder is not None:
        of_block = jax.tree.map(lambda leaf: leaf[blocks[0]], parameters)
        text = _block.lower(*program, of_block).as_text()
        arrays = jax.tree.leaves(eqx.filter((program, parameters), eqx.is_array))
        run = {"lengths": lengths, "arrays": arrays, "program": hashlib.sha256(text.encode()).hexdigest()}
        settings = store.settings_of("orbits", _VERSION, **run)
        paths = [Path(folder) / f"{block[0]:06d}-{block[-1]:06d}.nc" for block in blocks]
        pieces = [store.read_kept(path, settings) for path in paths]
    missing = [number for number, piece in enumerate(pieces) if piece is None]
    threads = os.cpu_count() if jax.default_backend() == "cpu" else 1
    done = count - sum(len(blocks[number]) for number in missing)
    # Compiled code does not hold the interpreter's lock.
    with ThreadPoolExecutor(threads) as pool, Progress(label, count, ORBIT, shown=progress, initial=done) as report:
        for number, piece in zip(missing, pool.map(lambda number: compute(blocks[number]), missing), strict=True):
            if folder is not None:
                store.keep(piece, settings, paths[number])
            pieces[number] = piece
            report.update(len(blocks[number]))
    found = xr.concat(pieces, dim=ORBIT, combine_attrs="drop_conflicts")
    named = {_name("parameter", path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(parameters)}
    return found.assign_coords({name: (ORBIT, np.asarray(leaf)) for name, leaf in named.items() if leaf.ndim == 1})


@eqx.filter_jit
def _block(step, start, observe, coordinates, carry, lengths, levels, parameters) -> dict[str, PyTree]:
    """Return the arrays of all orbits at `parameters`, along a first axis."""

    def one(state, parameter):
        return _one(step, observe, coordinates, lengths, levels, state, parameter)

    def begin(parameter):
        return start(parameter) if callable(start) else start

    if carry is None:
        return jax.vmap(lambda parameter: one(begin(parameter), parameter))(parameters)

    def following(state, parameter):
        found = one(carry(state, parameter), parameter)
        return found["end"], found

    return jax.lax.scan(following, begin(jax.tree.map(lambda leaf: leaf[0], parameters)), parameters)[1]


def _one(step, observe, coordinates, lengths, levels, state, parameter) -> dict[str, PyTree]:
    """Return the arrays of one orbit."""
    transient, recorded, exponents = lengths
    state = jax.lax.fori_loop(0, transient, lambda _, state: step(state, parameter), state)
    found = {}
    if exponents:
        tangents = lyapunov.random_perturbations(state, coordinates, exponents)
        growth = lyapunov.growth_of(step, state, parameter, tangents, recorded // _BLOCKS, _BLOCKS, coordinates)
        spectrum = lyapunov.spectrum_of(growth)
        found |= {"exponent": spectrum.exponents, "exponent_error": spectrum.errors}

    def seen(state):
        return jnp.ravel(state if observe is None else observe(state, parameter))

    def record(at, _):
        state, lowest, highest, visited = at
        state = step(state, parameter)
        values = seen(state)
        if levels is not None:
            level = jnp.rint((values - levels[0]) / (levels[-1] - levels[0]) * (len(levels) - 1))
            # Other values, and NaN, have an index out of range, which drops the mark.
            inside = (level >= 0) & (level < len(levels))
            places = jnp.where(inside, level, len(levels)).astype(int)
            visited = visited.at[jnp.arange(len(values)), places].set(1, mode="drop")
        marks = jnp.fmin(lowest, values), jnp.fmax(highest, values), visited
        return (state, *marks), values if levels is None else None

    bound = jnp.full(seen(state).shape, jnp.inf)
    visited = None if levels is None else jnp.zeros((len(bound), len(levels)), dtype=jnp.uint8)
    (state, lowest, highest, visited), values = jax.lax.scan(
        record, (state, bound, -bound, visited), None, length=recorded
    )
    kept = {"values": values} if levels is None else {"visited": visited}
    return found | kept | {"lowest": lowest, "highest": highest, "end": state}


def _labelled(arrays: Mapping[str, PyTree], levels: np.ndarray | None) -> xr.Dataset:
    axes = {
        "values": ("step", "component"),
        "visited": ("component", "level"),
        "lowest": ("component",),
        "highest": ("component",),
        "exponent": ("number",),
        "exponent_error": ("number",),
    }
    found = {name: ((ORBIT, *axes[name]), np.asarray(each)) for name, each in arrays.items() if name in axes}
    for path, leaf in jax.tree_util.tree_leaves_with_path(arrays["end"]):
        name = _name("end", path)
        found[name] = ((ORBIT, *(f"{name} {axis}" for axis in range(leaf.ndim - 1))), np.asarray(leaf))
    if levels is not None:
        found["level"] = np.asarray(levels)
    if "exponent" in arrays:
        values, errors = (np.asarray(arrays[name]) for name in ("exponent", "exponent_error"))
        found["number"] = np.arange(1, values.shape[1] + 1)
        escaped = np.any(np.isnan(values), axis=1)
        known = np.where(escaped[:, None], -np.inf, values)
        found["dimension"] = (ORBIT, np.where(escaped, np.nan, lyapunov.kaplan_yorke_dimension(known)))
        if values.shape[1] > 1:
            regimes = lyapunov.classify(known, np.where(escaped[:, None], 0.0, errors))
            found["regime"] = (ORBIT, np.where(escaped, lyapunov.ESCAPED, regimes).astype(str))
    return xr.Dataset(found)


def _name(root: str, path: tuple) -> str:
    """Name a leaf by its place in a tree. A field of a parameter is named alone."""
    place = jax.tree_util.keystr(path, simple=True, separator=".")
    return place if place and root == "parameter" else f"{root}.{place}".removesuffix(".")
