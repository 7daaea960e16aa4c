"""Lyapunov exponents of any differentiable map, and the regime of its orbits.

Perturbations of a state are propagated by the derivative of the map along an orbit, and orthonormalised after every
step, J Q = Q' R. Exponents are the means of log R_jj.

References: G. Benettin, L. Galgani, A. Giorgilli, J.-M. Strelcyn, Meccanica 15, 9 (1980). Gram-Schmidt twice is as
accurate as Householder's method: L. Giraud, J. Langou, M. Rozloznik, Comput. Math. Appl. 50, 1069 (2005). Noise shows
which digits are correct: J. Vignes, Math. Comput. Simul. 35, 233 (1993).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PyTree, Shaped

from .._compat import require_float64
from .._jit import jit
from ..checks import checked_whole_number, is_traced, real_array
from ..symbolic.documents.display import DisplayMixin
from ..symbolic.documents.document import Block, Table
from ..symbolic.documents.values import brief

PERIODIC = "periodic"
QUASI_PERIODIC = "quasi-periodic"
DOUBLY_QUASI_PERIODIC = "quasi-periodic (double)"
CHAOTIC = "chaotic"
HYPERCHAOTIC = "hyperchaotic"
UNDECIDED = "undecided"
ESCAPED = "escaped"
REGIMES = (PERIODIC, QUASI_PERIODIC, DOUBLY_QUASI_PERIODIC, CHAOTIC, HYPERCHAOTIC, UNDECIDED, ESCAPED)

# Seed of the random initial perturbations, and of the noise.
_SEED = 0
# Relative size of the noise that shows which exponents are resolved: some 100 times the rounding.
_NOISE = 2.0**-44
# Largest change by the noise of an exponent that is resolved.
_UNCHANGED = 1e-3

Step = Callable[[PyTree, PyTree], PyTree]
"""One step of a map: a function of a state and a parameter that returns the next state."""


class LyapunovSpectrum(DisplayMixin, eqx.Module):
    """Lyapunov exponents per step, in natural logarithms, largest first up to their errors.

    - `exponents` (*batch, exponents). An exponent is minus infinity if the map annihilates its perturbation, or shrinks
      it so much relative to others that double precision does not resolve it.
    - `errors` (*batch, exponents): standard errors, from the scatter of `blocks`.
    - `blocks` (*batch, blocks, exponents): mean growth over successive parts of the orbit.
    """

    exponents: Float[Array, "*batch exponents"]
    errors: Float[Array, "*batch exponents"]
    blocks: Float[Array, "*batch blocks exponents"]

    def _view(self) -> Iterator[Block]:
        rows = {"exponents": self.exponents, "standard errors": self.errors}
        if self.exponents.shape[-1] > 1:
            names, counts = np.unique(classify(self), return_counts=True)
            rows["regime"] = ", ".join(f"{name} ({n})" for name, n in zip(names, counts, strict=True))
        yield Table(tuple((name, value if isinstance(value, str) else brief(value)) for name, value in rows.items()))


def lyapunov_spectrum(
    step: Step,
    start: PyTree,
    parameter: PyTree,
    *,
    steps: int,
    exponents: int | None = None,
    blocks: int = 20,
    coordinates: Callable[[PyTree], PyTree] | None = None,
    perturbations: PyTree | None = None,
) -> LyapunovSpectrum:
    """Compute the Lyapunov exponents of one orbit. Use `jax.vmap` for several.

    Args:
        step: The map, `step(state, parameter) -> state`. A state is any tree of arrays; its integers are not perturbed.
        start: First state, after any transient.
        parameter: Parameter of the map.
        steps: Number of steps, a multiple of `blocks`.
        exponents: Number of leading exponents. The default is all of them.
        blocks: Number of parts of the orbit, whose scatter gives the errors.
        coordinates: Function of a state that returns the part in which perturbations are measured. It must determine
            the rest of the state, such as cached values. The default is the whole state.
        perturbations: Initial perturbations, trees like the floats of `start` with a first axis that counts them.
            Exponents are then in their order. By default, perturbations are random with a fixed seed.

    Raises:
        ValueError: If a number does not fit, or the orbit is not finite. Under `jax.vmap`, exponents are then NaN.

    Example:
        >>> import theorykit
        >>> from theorykit import dynamics
        >>> theorykit.enable_float64()
        >>> def logistic(x, growth):
        ...     return growth * x * (1 - x)
        >>> found = dynamics.lyapunov_spectrum(logistic, 0.3, 4.0, steps=20_000)
        >>> bool(abs(found.exponents[0] - 0.6931) < 4 * found.errors[0] + 1e-3)  # log 2
        True
    """
    require_float64()
    start, parameter = (jax.tree.map(jnp.asarray, tree) for tree in (start, parameter))
    checked_whole_number("blocks", blocks, least=2)
    if checked_whole_number("steps", steps, least=blocks) % blocks:
        raise ValueError(f"steps={steps} must be a multiple of blocks={blocks}")
    if perturbations is None:
        tangents = random_perturbations(start, coordinates, exponents)
    else:
        tangents = jax.tree.map(lambda given, leaf: jnp.asarray(given, leaf.dtype), perturbations, _floats(start))
    growth = growth_of(step, start, parameter, tangents, steps // blocks, blocks, coordinates)
    if not is_traced(growth) and np.any(np.isnan(growth)):
        raise ValueError(f"the orbit is not finite within {steps} steps from the start")
    return spectrum_of(growth)


def random_perturbations(start: PyTree, coordinates: Callable | None, count: int | None) -> PyTree:
    """Draw perturbations of the floats of `start`, by default all. The first ones do not depend on their number."""
    size = sum(leaf.size for leaf in jax.tree.leaves(_measured(_floats(start), coordinates)))
    count = checked_whole_number("exponents", size if count is None else count, least=1, most=size)
    rng = np.random.default_rng(_SEED)
    drawn = [jax.tree.map(lambda leaf: rng.standard_normal(leaf.shape), _floats(start)) for _ in range(count)]
    return jax.tree.map(lambda *each: jnp.stack(each), *drawn)


def spectrum_of(growth: Float[Array, "blocks exponents"]) -> LyapunovSpectrum:
    """Return the exponents and their errors from the mean growth over blocks."""
    mean = jnp.mean(growth, axis=0)
    scatter = jnp.where(jnp.isfinite(mean), growth - mean, 0.0)
    errors = jnp.sqrt(jnp.sum(scatter**2, axis=0) / (len(growth) * (len(growth) - 1)))
    return LyapunovSpectrum(mean, errors, growth)


@jit
def growth_of(step, start, parameter, tangents, length, blocks, coordinates):
    """Return the mean growth (blocks, exponents) of perturbations, minus infinity for unresolved ones.

    A short part of the orbit is run again, without and with noise above rounding. Exponents that the noise
    changes are not resolved.
    """
    rng = np.random.default_rng(_SEED)
    drawn = jax.tree.map(lambda leaf: rng.standard_normal(leaf.shape), tangents)

    def run(at):
        noise, length = at

        def one_step(_, at):
            state, tangents, total = at
            floats, others = eqx.partition(state, eqx.is_inexact_array)

            def advance(floats):
                return eqx.partition(step(eqx.combine(floats, others), parameter), eqx.is_inexact_array)

            floats, push, others = jax.linearize(advance, floats, has_aux=True)
            tangents = jax.vmap(push)(jax.tree.map(lambda leaf, xi: leaf * (1 + noise * xi), tangents, drawn))
            tangents, lengths = _orthonormalise(tangents, coordinates, noise)
            return eqx.combine(floats, others), tangents, total + jnp.log(lengths)

        def one_block(at, _):
            zero = jnp.zeros(len(jax.tree.leaves(tangents)[0]))
            *at, total = jax.lax.fori_loop(0, length, one_step, (*at, zero))
            return tuple(at), total / length

        begin = start, _orthonormalise(tangents, coordinates, 0.0)[0]
        return jax.lax.scan(one_block, begin, None, length=blocks)[1]

    short = max(1, length // blocks)
    growth, plain, noisy = jax.lax.map(run, (jnp.array([0.0, 0.0, _NOISE]), jnp.array([length, short, short])))
    changed = jnp.abs(jnp.mean(plain - noisy, axis=0)) > _UNCHANGED
    return jnp.where(changed | jnp.isneginf(plain[-1]), -jnp.inf, growth)


def _floats(state: PyTree) -> PyTree:
    return eqx.filter(state, eqx.is_inexact_array)


def _measured(state: PyTree, coordinates: Callable | None) -> PyTree:
    return state if coordinates is None else coordinates(state)


def _orthonormalise(
    tangents: PyTree, coordinates: Callable | None, noise: ArrayLike
) -> tuple[PyTree, Float[Array, " vectors"]]:
    """Return orthonormal tangents, and the diagonal of R, by Gram-Schmidt done twice. A zero vector stays zero."""
    leaves, structure = jax.tree.flatten(tangents)
    count = len(leaves[0])
    flat = [leaf.reshape(count, -1) for leaf in leaves]
    measured = [leaf.reshape(count, -1) for leaf in jax.tree.leaves(_measured(tangents, coordinates))]
    size = sum(each.shape[1] for each in measured)
    # The first columns are measured. All columns go through the same operations.
    vectors = jnp.concatenate([*measured, *flat], axis=1)
    own = jnp.sqrt(jnp.sum(vectors[:, :size] ** 2, axis=1, keepdims=True))
    vectors = vectors + noise * own * np.random.default_rng(_SEED).standard_normal(vectors.shape)

    def one(basis, number):
        vector = vectors[number]
        for _ in range(2):
            vector = vector - (basis[:, :size] @ vector[:size]) @ basis
        length = jnp.sqrt(jnp.sum(vector[:size] ** 2))
        return basis.at[number].set(vector / jnp.where(length > 0, length, 1.0)), length

    basis, lengths = jax.lax.scan(one, jnp.zeros_like(vectors), jnp.arange(count))
    cuts = np.cumsum([size, *(each.shape[1] for each in flat)])[:-1]
    parts = jnp.split(basis, cuts, axis=1)[1:]
    return jax.tree.unflatten(
        structure, [p.reshape(leaf.shape) for p, leaf in zip(parts, leaves, strict=True)]
    ), lengths


# ---- what exponents say about an orbit, in NumPy


def _checked_exponents(exponents: Any, least: int) -> Float[np.ndarray, "*batch exponents"]:
    array = real_array("exponents", exponents)
    if array.ndim == 0 or array.shape[-1] < least or 0 in array.shape:
        raise ValueError(f"exponents must have at least {least} along their last axis, got shape {array.shape}")
    if np.any(np.isnan(array) | (array == np.inf)):
        raise ValueError("exponents must be finite or minus infinity; the orbit may have diverged")
    return array


def kaplan_yorke_dimension(exponents: ArrayLike) -> Float[np.ndarray, "*batch"]:
    """Return the Kaplan-Yorke dimension j + (lambda_1 + ... + lambda_j) / |lambda_{j+1}| of exponents (..., exponents).

    j is the largest number of leading exponents with a non-negative sum. If all given exponents have one, their number
    is returned, a lower bound. Exponents may be minus infinity and in any order.

    Example:
        >>> import numpy as np
        >>> from theorykit import dynamics
        >>> float(dynamics.kaplan_yorke_dimension(np.array([0.5, 0.0, -1.0])))
        2.5
    """
    ordered = -np.sort(-_checked_exponents(exponents, 1), axis=-1)
    sums = np.cumsum(ordered, axis=-1)
    # Partial sums of a descending sequence cross zero once.
    kept = np.sum(sums >= 0, axis=-1, keepdims=True)
    reached = np.concatenate([np.zeros_like(sums[..., :1]), sums], axis=-1)
    following = np.concatenate([ordered, np.full_like(sums[..., :1], -np.inf)], axis=-1)
    share = np.take_along_axis(reached, kept, axis=-1) / -np.take_along_axis(following, kept, axis=-1)
    return np.asarray((kept + share)[..., 0])


def classify(
    exponents: LyapunovSpectrum | ArrayLike, errors: ArrayLike | None = None, threshold: float = 1e-4
) -> Shaped[np.ndarray, "*batch"]:
    """Classify the regime of every orbit from its two largest Lyapunov exponents.

    - "periodic": lambda_1 < -threshold.
    - "quasi-periodic": |lambda_1| <= threshold; "quasi-periodic (double)" if |lambda_2| is, too.
    - "chaotic": lambda_1 > threshold; "hyperchaotic" if lambda_2 is, too.
    - "undecided": an error bar contains the decisive threshold.

    Args:
        exponents: A `LyapunovSpectrum`, or an array (..., exponents) with at least two exponents per orbit. If there is
            only one, append minus infinity.
        errors: Half-widths of error bars (..., exponents). The default is those of the spectrum, or zero.
        threshold: Largest absolute value of an exponent that counts as zero. In T steps, the zero exponent of a
            quasi-periodic orbit is computed as a number of order 1/T.
    """
    if isinstance(exponents, LyapunovSpectrum):
        exponents, errors = exponents.exponents, exponents.errors if errors is None else errors
    values = _checked_exponents(exponents, 2)
    bars = np.zeros_like(values) if errors is None else real_array("errors", errors)
    if bars.shape != values.shape:
        raise ValueError(f"errors of shape {bars.shape} do not fit exponents of shape {values.shape}")
    bars = np.where(np.isneginf(values), 0.0, bars)
    if not np.all(bars >= 0):
        raise ValueError("errors must be numbers >= 0")
    largest = np.argsort(-values, axis=-1)[..., :2]
    values, bars = (np.moveaxis(np.take_along_axis(each, largest, axis=-1), -1, 0) for each in (values, bars))
    negative, positive = values + bars < -threshold, values - bars > threshold
    not_negative, not_positive = values - bars >= -threshold, values + bars <= threshold
    zero = not_negative & not_positive
    cases = {
        PERIODIC: negative[0],
        QUASI_PERIODIC: zero[0] & negative[1],
        DOUBLY_QUASI_PERIODIC: zero[0] & not_negative[1],
        CHAOTIC: positive[0] & not_positive[1],
        HYPERCHAOTIC: positive[0] & positive[1],
    }
    return np.select(list(cases.values()), list(cases), default=UNDECIDED)
