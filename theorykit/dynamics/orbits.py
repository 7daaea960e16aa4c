"""Orbits of any map: Lyapunov exponents, regimes, and orbits over parameters.

The derivative of the map propagates perturbations along an orbit. Gram-Schmidt,
done twice, orthonormalises them after every step, J Q = Q' R. Exponents are the
means of log R_jj.

References: G. Benettin, L. Galgani, A. Giorgilli, J.-M. Strelcyn, Meccanica 15,
9 (1980). Gram-Schmidt: L. Giraud, J. Langou, M. Rozloznik, Comput. Math. Appl.
50, 1069 (2005). Noise shows which digits are correct: J. Vignes, Math. Comput.
Simul. 35, 233 (1993).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.extend.core import ClosedJaxpr, Literal
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PyTree, Shaped

from .._compat import require_float64
from .._jit import jit, usual_settings
from ..checks import checked_array, checked_whole_number, finite_entries, is_traced, numeric_array, require, shown
from ..runs import Folder, bar

Step = Callable[[PyTree, PyTree], PyTree]
Numbers = ArrayLike | Sequence[float]
"""One step of a map, `step(state, parameter) -> state`."""

# Relative noise that tells resolved exponents, 8 times the rounding, and their
# largest change by it.
_NOISE, _UNCHANGED = 2.0**-50, 1e-3
# Operations of JAX in which terms cancel.
_SUMS = {"add", "add_any", "sub", "dot_general", "reduce_sum", "cumsum"}
# Parts of an orbit, for errors.
_BLOCKS = 20
# Increase it when orbits change for equal arguments.
_VERSION = 6
# Most orbits per block, by cache.
_MOST, _MOST_ON_ACCELERATORS = 256, 4096
# Orbits do not return from this far.
_ESCAPED = 1e100
_AXES = {"values": ("step", "component"), "visited": ("component", "level")}


def advance(step: Step, start: PyTree, parameter: PyTree, steps: ArrayLike) -> PyTree:
    """Return the state after `steps` of `step(state, parameter)`. Use `jax.vmap` for several."""
    if not is_traced(steps):
        checked_whole_number("steps", steps, least=0)
    # An array is not recompiled.
    state = checked_state("start", start, step, parameter)
    return _advance(step, state, parameter, jnp.asarray(steps))


@jit
def _advance(step, start, parameter, steps):
    return jax.lax.fori_loop(0, steps, lambda _, state: step(state, parameter), start)


def checked_state(name: str, state: PyTree, step: Step, parameter: PyTree) -> PyTree:
    """Return a finite state as arrays, if `step` returns its like."""
    state = image = jax.tree.map(jnp.asarray, state)
    # Whole numbers that become fractional start so.
    for _ in range(2):
        if jax.tree.structure(image) == jax.tree.structure(state):
            state = jax.tree.map(_doubled, state, image)
        try:
            image = eqx.filter_eval_shape(lambda *at: jax.tree.map(jnp.asarray, step(*at)), state, parameter)
        except jax.errors.JAXTypeError as error:
            raise TypeError("step must be in JAX: jnp for np, jnp.where for if") from error
    for leaf in jax.tree.leaves(eqx.filter(state, eqx.is_inexact_array)):
        require(leaf, [finite_entries(name, leaf)])
    kinds = jax.tree.map(lambda leaf: f"{leaf.dtype}{leaf.shape}", [state, image])
    if kinds[0] != kinds[1]:
        raise ValueError(f"step maps {name} {kinds[0]} to {kinds[1]}")
    return state


def _doubled(leaf, like):
    kind = jnp.promote_types(like.dtype, jnp.result_type(float))
    return leaf.astype(kind) if jnp.issubdtype(like.dtype, jnp.inexact) else leaf


class LyapunovSpectrum(NamedTuple):
    """Lyapunov exponents per step, largest first up to their errors.

    - `exponents`: minus infinity if rounding leaves them no correct digits.
    - `errors`: standard errors, from the scatter of `blocks`.
    - `blocks`: exponents of parts of the orbit.
    """

    exponents: Float[Array, " exponents"]
    errors: Float[Array, " exponents"]
    blocks: Float[Array, "blocks exponents"]


@usual_settings()
def lyapunov_spectrum(
    step: Step,
    start: PyTree,
    parameter: PyTree,
    *,
    steps: int,
    exponents: int | None = None,
    blocks: int = _BLOCKS,
    perturbations: PyTree | None = None,
) -> LyapunovSpectrum:
    """Return the Lyapunov exponents of one orbit, with errors. Use `jax.vmap` for several.

    Args:
        step: The map, `step(state, parameter) -> state`. A state is any tree of
            arrays. Its integers are not perturbed. If some parts of a state determine
            the rest, such as cached values, the step may be an object with a method
            `coordinates(state)` that returns them. Perturbations are measured there.
        start: First state, after any transient.
        parameter: Parameter of the map.
        steps: Number of steps, a multiple of `blocks`.
        exponents: Number of leading exponents, by default all.
        blocks: Number of parts of the orbit, whose scatter gives the errors.
        perturbations: Initial perturbations, trees like the floats of `start`
            with a first axis that counts them, one per exponent. By default, they
            are random.

    Raises:
        ValueError: If a number does not fit, or the orbit is not finite. Under
            `jax.vmap`, exponents are then NaN.
    """
    require_float64()
    parameter = jax.tree.map(jnp.asarray, parameter)
    start = checked_state("start", start, step, parameter)
    checked_whole_number("blocks", blocks, least=2)
    if checked_whole_number("steps", steps, least=blocks) % blocks:
        raise ValueError(f"steps={steps} must be a multiple of blocks={blocks}")
    floats = eqx.filter(start, eqx.is_inexact_array)
    if perturbations is None:
        size = ravel_pytree(_measured(step, floats))[0].size
        count = checked_whole_number("exponents", size if exponents is None else exponents, least=1, most=size)
        # The first perturbations do not depend on their number.
        tangents = np.random.default_rng(0).standard_normal((count, ravel_pytree(floats)[0].size))
    else:
        given = jax.tree.map(lambda leaf, like: jnp.asarray(leaf, like.dtype), perturbations, floats)
        tangents = jax.vmap(lambda one: ravel_pytree(one)[0])(given)
    growth = _growth(step, start, parameter, jnp.asarray(tangents), steps // blocks, blocks)
    if not is_traced(growth) and np.any(np.isnan(growth)):
        raise ValueError(f"the orbit is not finite within {steps} steps from the start")
    mean = jnp.mean(growth, axis=0)
    errors = jnp.std(jnp.where(jnp.isfinite(mean), growth, 0.0), axis=0) / np.sqrt(blocks - 1)
    return LyapunovSpectrum(mean, errors, growth)


def _measured(step, floats):
    return step.coordinates(floats) if hasattr(step, "coordinates") else floats


@jit
def _growth(step, start, parameter, tangents, length, blocks):
    """Return the mean growth (blocks, exponents) of perturbations."""
    floats, others = eqx.partition(start, eqx.is_inexact_array)
    unravel = ravel_pytree(floats)[1]

    def measured(vector):
        return ravel_pytree(_measured(step, unravel(vector)))[0]

    def orthonormalise(vectors):
        """Return orthonormal vectors and the diagonal of R. A zero vector stays zero."""

        def one(basis, numbered):
            number, vector = numbered
            for _ in range(2):
                vector = vector - jax.vmap(measured)(basis) @ measured(vector) @ basis
            norm = jnp.sqrt(jnp.sum(measured(vector) ** 2))
            return basis.at[number].set(vector / jnp.where(norm > 0, norm, 1.0)), norm

        # Faster without a loop.
        numbered, few = (np.arange(len(vectors)), vectors), len(vectors) <= 8
        return jax.lax.scan(one, jnp.zeros_like(vectors), numbered, unroll=few)

    def one_step(is_noisy, _, at):
        floats, others, vectors, total = at

        def following(floats):
            return eqx.partition(step(eqx.combine(floats, others), parameter), eqx.is_inexact_array)

        def pushed(floats, vectors):
            after, push, others = jax.linearize(following, floats, has_aux=True)
            return jax.vmap(lambda one: ravel_pytree(push(unravel(one)))[0])(vectors), after, others

        moved, *ahead = pushed(floats, vectors)
        if is_noisy:
            at = floats, vectors
            moved = _noisy(jax.make_jaxpr(pushed)(*at))(*jax.tree.leaves(at))[0]
        vectors, norms = orthonormalise(moved)
        return *ahead, vectors, total + jnp.log(norms)

    def run(at, length, is_noisy):
        at = *at, jnp.zeros(len(tangents))
        *at, total = jax.lax.fori_loop(0, length, partial(one_step, is_noisy), at)
        # At infinity, slopes may be finite.
        end = measured(ravel_pytree(at[0])[0])
        return tuple(at), jnp.where(jnp.isfinite(end).all(), total / length, jnp.nan)

    at = floats, others, orthonormalise(tangents)[0]
    growth = jax.lax.scan(lambda at, _: run(at, length, False), at, None, length=blocks)[1]
    # Rounding changes exponents of minus infinity, in 100 steps.
    some = min(blocks, -(-100 // length))
    changed = jnp.abs(growth[:some].mean(0) - run(at, some * length, True)[1]) > _UNCHANGED
    return jnp.where(changed | jnp.isneginf(growth[-1]), -jnp.inf, growth)


def _noisy(program):
    """Return a program with noise in sums, as cancellation amplifies rounding."""
    whole, draw = program.jaxpr, np.random.default_rng(0).standard_normal

    def nested(part):
        return jax.make_jaxpr(_noisy(part))(*part.in_avals) if isinstance(part, ClosedJaxpr) else part

    def run(*values):
        known = dict(zip([*whole.constvars, *whole.invars], [*program.consts, *values], strict=True))
        for each in whole.eqns:
            terms = {x: known[x] for x in each.invars if not isinstance(x, Literal)}
            is_float = jnp.issubdtype(each.outvars[0].aval.dtype, jnp.inexact)
            if is_float and each.primitive.name in _SUMS:
                terms = {x: terms[x] * (1 + _NOISE * draw(x.aval.shape)) for x in terms}
            one = each.replace(params=jax.tree.map(nested, each.params))
            alone = whole.replace(constvars=[], invars=[*terms], outvars=each.outvars, eqns=[one])
            known |= zip(each.outvars, jax.core.eval_jaxpr(alone, [], *terms.values()), strict=True)
        return [x.val if isinstance(x, Literal) else known[x] for x in whole.outvars]

    return run


def kaplan_yorke_dimension(exponents: Numbers) -> np.ndarray | np.float64:
    """Return the Kaplan-Yorke dimension j + (lambda_1 + ... + lambda_j) / |lambda_{j+1}|.

    j is the largest number of exponents with a non-negative sum. If the sum of
    all is non-negative, the result is their number, a lower bound.

    Args:
        exponents: (..., exponents), finite or minus infinity, in any order.
    """
    given = np.atleast_1d(numeric_array("exponents", exponents))
    if not np.all(given < np.inf):
        raise ValueError(f"exponents must be below infinity, not NaN, got {shown(exponents)}")
    ordered = -np.sort(-given, axis=-1)
    before = np.insert(np.cumsum(ordered, axis=-1), 0, 0.0, axis=-1)[..., :-1]
    # Shares: one, then a part, then zero.
    share = np.ones_like(ordered)
    np.divide(np.maximum(before, 0.0), -ordered, out=share, where=ordered < 0)
    return np.sum(np.minimum(share, 1.0), axis=-1)


def classify(exponents: Numbers, errors: Numbers = 0.0, threshold: float = 1e-4) -> Shaped[np.ndarray, "*batch"]:
    """Return the regime (...) of every orbit from its two largest Lyapunov exponents.

    - "periodic": lambda_1 < -threshold.
    - "quasi-periodic": |lambda_1| <= threshold; "quasi-periodic (double)" if
      |lambda_2| is, too.
    - "chaotic": lambda_1 > threshold; "hyperchaotic" if lambda_2 is, too.
    - "undecided": an error bar contains a threshold.

    Args:
        exponents: At least two exponents per orbit (..., exponents). If there is one,
            append minus infinity.
        errors: Half-widths of error bars (..., exponents).
        threshold: Largest absolute value of an exponent that counts as zero. In T
            steps, a zero exponent is computed as up to log(T) / T.

    Raises:
        ValueError: If an orbit has fewer than two exponents, or a value is invalid.
    """
    values = numeric_array("exponents", exponents)
    if values.shape[-1:] < (2,) or not np.all(values < np.inf):
        raise ValueError(f"exponents must be two or more per orbit, got {shown(exponents)}")
    bars = np.where(np.isneginf(values), 0.0, numeric_array("errors", errors))
    if not np.all(bars >= 0):
        raise ValueError(f"errors must be numbers >= 0, got {shown(errors)}")
    largest = np.argsort(-values, axis=-1)[..., :2]
    leading = [np.take_along_axis(each, largest, axis=-1) for each in (values, bars)]
    values, bars = np.moveaxis(leading, -1, 1)
    low, high = values - bars, values + bars
    is_zero = (low[0] >= -threshold) & (high[0] <= threshold)
    cases = {
        "periodic": high[0] < -threshold,
        "quasi-periodic": is_zero & (high[1] < -threshold),
        "quasi-periodic (double)": is_zero & (low[1] >= -threshold),
        "chaotic": (low[0] > threshold) & (high[1] <= threshold),
        "hyperchaotic": (low[0] > threshold) & (low[1] > threshold),
    }
    return np.select(list(cases.values()), list(cases), default="undecided")


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
    folder: Path | str | None = None,
    progress: bool = True,
) -> xr.Dataset:
    """Compute settled orbits of a map at many parameters, on all cores.

    Args:
        step: The map, `step(state, parameter) -> state`, of any tree of arrays.
        parameters: An array with one value per orbit, or a tree of such arrays.
        start: First state, or a function of the parameter that returns it.
        transient: Number of steps to discard.
        recorded: Number of steps to record, with exponents a multiple of 20.
        observe: Function of a state and a parameter that returns the numbers to
            record, NaN for none. By default, the state, which must be an array.
        levels: Evenly spaced centres of levels, to record which ones are visited.
        exponents: Number of leading Lyapunov exponents over the recorded steps.
        folder: Folder for finished blocks, from which the same call resumes.
        progress: Report progress.

    Returns:
        A dataset along "orbit", with the parameters as coordinates:

        - `values` (orbit, step, component), or with levels `visited` (orbit,
          component, level), 1 for visited levels.
        - `exponent`, `exponent_error` (orbit, number) by scatter, drift and growth like
          time, and the `regime` (orbit) of `classify`, or "escaped".

    Raises:
        ValueError: If parameters have no common length, or a number is invalid.
    """
    require_float64()
    checked_whole_number("transient", transient, least=0)
    checked_whole_number("recorded", recorded, least=1)
    if exponents and recorded % _BLOCKS:
        raise ValueError(f"recorded={recorded} must be a multiple of {_BLOCKS} for exponents")
    parameters = jax.tree.map(lambda leaf: jnp.asarray(checked_array("parameters", leaf)), parameters)
    shapes = {leaf.shape[:1] for leaf in jax.tree.leaves(parameters)}
    if len(shapes) != 1 or shapes <= {(), (0,)}:
        raise ValueError(f"parameters must be arrays, an entry per orbit, got shapes {sorted(shapes)}")
    ((count,),) = shapes
    if not callable(start):
        first = jax.tree.map(lambda leaf: leaf[0], parameters)
        start = checked_state("start", start, step, first)
    grid = None if levels is None else jnp.asarray(levels, float)
    if grid is not None and not (len(grid) > 1 and np.ptp(np.diff(grid)) < 1e-6 * np.ptp(grid)):
        raise ValueError(f"levels must be two or more, evenly spaced, got {shown(levels)}")
    lengths = transient, recorded, exponents
    program = step, start, observe, lengths, grid

    on_cpu = jax.default_backend() == "cpu"
    # Eight blocks keep cores busy.
    size = min(_MOST, -(-count // 8)) if on_cpu else min(_MOST_ON_ACCELERATORS, count)
    blocks = [np.arange(first, min(first + size, count)) for first in range(0, count, size)]

    kept = Folder()
    if folder is not None:
        sample = jax.tree.map(lambda leaf: leaf[blocks[0]], parameters)
        text = _block.lower(*program, sample).as_text()
        arrays = jax.tree.leaves(eqx.filter((program, parameters), eqx.is_array))
        kept = Folder.of(folder, "orbits", _VERSION, lengths=lengths, arrays=arrays, program=text.encode())

    def piece(block):
        name = f"{block[0]:06d}-{block[-1]:06d}"
        if (found := kept.read(name)) is None:
            # One size is compiled once.
            padded = np.pad(block, (0, size - len(block)), mode="edge")
            with usual_settings():
                arrays = _block(*program, jax.tree.map(lambda leaf: leaf[padded], parameters))
            found = xr.Dataset()
            for each, array in arrays.items():
                axes = _AXES.get(each, ("number",))
                found[each] = ("orbit", *axes), np.asarray(array)[: len(block)]
            kept.write(name, found)
        return found

    pieces = []
    # Compiled code releases the interpreter's lock.
    workers = os.cpu_count() if on_cpu else 1
    with ThreadPoolExecutor(workers) as pool, bar("orbits", count, "orbit", shown=progress) as report:
        for found in pool.map(piece, blocks):
            pieces.append(found)
            report.update(found.sizes["orbit"])
    found = xr.concat(pieces, dim="orbit", combine_attrs="drop_conflicts")
    for path, leaf in jax.tree_util.tree_leaves_with_path(parameters):
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "parameter"
        found = found.assign_coords({name: ("orbit", np.asarray(leaf))} if leaf.ndim == 1 else {})
    found = found.assign_coords({} if levels is None else {"level": np.asarray(levels)})
    if exponents:
        found["number"] = np.arange(1, exponents + 1)
        more = (0, 0), (0, 1)
        values = np.pad(found["exponent"].fillna(-np.inf), more, constant_values=-np.inf)
        regimes = classify(values, np.pad(found["exponent_error"], more))
        escaped = found["exponent"].isnull().any("number")
        found["regime"] = "orbit", np.where(escaped, "escaped", regimes)
    return found


@eqx.filter_jit
def _block(step, start, observe, lengths, levels, parameters):
    transient, recorded, exponents = lengths

    def one(parameter):
        state = start(parameter) if callable(start) else start
        state = advance(step, state, parameter, transient)

        def seen(state):
            return jnp.ravel(state if observe is None else observe(state, parameter))

        def record(at, _):
            state, visited = at
            state = step(state, parameter)
            values = seen(state)
            if levels is None:
                return (state, visited), values
            level = jnp.rint((values - levels[0]) / (levels[-1] - levels[0]) * (len(levels) - 1))
            # Others, and NaN, have an index out of range, which drops them.
            places = jnp.where((level >= 0) & (level < len(levels)), level, len(levels)).astype(int)
            return (state, visited.at[jnp.arange(len(values)), places].set(1, mode="drop")), None

        blank = jnp.zeros((seen(state).size, 0 if levels is None else len(levels)), dtype=jnp.uint8)
        (end, visited), values = jax.lax.scan(record, (state, blank), None, length=recorded)
        found = {"values": values} if levels is None else {"visited": visited}
        if exponents:
            spectrum = lyapunov_spectrum(step, state, parameter, steps=recorded, exponents=exponents)
            size = jnp.max(jnp.abs(ravel_pytree(eqx.filter(end, eqx.is_inexact_array))[0]))
            known = jnp.where(size < _ESCAPED, spectrum.exponents, jnp.nan)
            late = jnp.mean(spectrum.blocks[_BLOCKS // 2 :], axis=0)
            drift = jnp.where(jnp.isfinite(late), jnp.abs(late - spectrum.exponents), 0.0)
            # On regular orbits, perturbations grow like time.
            linear = jnp.clip(spectrum.exponents - 1e-4, 0, np.log(recorded) / recorded)
            found |= {"exponent": known, "exponent_error": spectrum.errors + drift + linear}
        return found

    return jax.vmap(one)(parameters)
