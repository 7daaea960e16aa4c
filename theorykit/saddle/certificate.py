"""Evidence about the end point of a solve, and the resulting verdict.

Newton's map must contract on a box around the point that holds the remaining Newton step
and the effects of rounding. Then the box contains one stationary point, of the index of
the Hessian at the point, and the stated error bounds its distance (Newton-Kantorovich
theorem; P. Deuflhard, Newton Methods for Nonlinear Problems, Springer 2004, Section 2.1).
The contraction is measured at faces and random corners of the box. Kinks, jumps and noise
of the gradient fail the test.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .bound_action import BoundAction
from .problem import Coordinates, Expansion, QuadraticModel, reach_of

SOLVED, NOT_FINITE, SLOPING, UNRESOLVED, DEGENERATE, OTHER_INDEX, AT_EDGE = range(7)
MEANINGS = {
    NOT_FINITE: "the action or a derivative is not finite",
    SLOPING: "the action falls without bound, or max_steps is too small: no stationary point",
    UNRESOLVED: "the action has a kink or a jump, or diverges, or rounding may move the point,",
    DEGENERATE: "degenerate, as at a fold or with a continuous symmetry: a curvature vanishes",
    OTHER_INDEX: "not a {kind}",
    AT_EDGE: "not a {kind}: the action may fall from an edge of a domain",
}
"""Verdicts about an end point that is no solution. `evidence` gives the first of its list that applies."""

# A point is known if its error is at most this fraction of its largest coordinate, or the
# second one due to averages of averages, whose nodes are not raised.
NEAR, COARSE = 1e-6, 1e-3
# Changes of a gradient by more nodes matter from this fraction and this multiple of rounding.
_CAUSE, _VISIBLE = 0.1, 1e3
# Newton's map contracts if it moves no face of the box by more than this fraction of its
# half-length, which is the largest of these multiples of the remaining Newton step, of the
# effect of rounding, and of the rounding error of the coordinates.
_CONTRACTS, _STEPS, _ABOVE, _ULPS = 0.5, 10.0, 100.0, 1e3
# The box is at most this fraction of the largest coordinate.
_FARTHEST = 0.1
# Probe the faces of this many of the softest directions, the face of the stiffest, and
# this many random corners.
_FACES, _CORNERS = 8, 2
# The slope halfway to a face is at most the first fraction of the slope at the face where a
# curvature vanishes, and at least the second one at a kink. Slopes beside the softest
# direction are small if they lower S by at most the third fraction of its change.
_CURVED, _KINK, _ALONE = 0.45, 0.8, 0.1
# A curvature below this fraction of the largest is rounding.
_FLAT = 1e-12
# Coordinates next to an edge at which one-sided derivatives are taken. Their signs must
# agree at both.
_BESIDE = (16.0, 12.0)


class LocalModel(eqx.Module):
    """S to second order about a point.

    The curvature along a coordinate fixed on an edge is the one-sided second derivative
    there, or the slope of S if that is not zero; it is `unclear` if that is so, or if it
    has no definite sign.
    """

    model: QuadraticModel
    slope: Coordinates
    magnitude: Coordinates
    hessian: Float[Array, "coordinates coordinates"]
    unclear: Bool[Array, " coordinates"]


@eqx.filter_jit
def local_model(bound: BoundAction, coordinates: Coordinates) -> LocalModel:
    here = bound.expansion(coordinates)
    hessian, unclear = here.hessian, jnp.zeros(len(coordinates), dtype=bool)
    if bound.has_edges.any():
        held = bound.free == 0
        nothing = jnp.zeros_like(coordinates), unclear
        at_edges = lambda: _at_edges(bound, coordinates, hessian, held)  # noqa: E731
        curvature, unclear = jax.lax.cond(jnp.any(held), at_edges, lambda: nothing)
        hessian = hessian + jnp.diag(jnp.where(held, curvature - bound.scale, 0.0))
    model = QuadraticModel.of(Expansion(here.gradient, hessian, here.metric))
    return LocalModel(model, here.gradient, here.magnitude, hessian, unclear)


class Evidence(eqx.Module):
    """Verdict about an end point, its numbers, and the model of S about it.

    - `terms` (terms,): the terms of S.
    - `action_error`: rounding error of the terms and of their sum, and error of averages.
    - `error`: bound on the shift of the point by rounding, by the remaining Newton step
      and by averages, in the metric of the domains. `quadrature` is the last of these.
    - `is_regular`: whether no curvature may vanish.
    - `needs_nodes`: whether averages exceed the tolerance, or may keep it from a solution.
    """

    verdict: Int[Array, ""]
    terms: Float[Array, " terms"]
    action_error: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    error: Float[Array, ""]
    quadrature: Float[Array, ""]
    is_regular: Bool[Array, ""]
    needs_nodes: Bool[Array, ""]
    local: LocalModel

    @property
    def is_solved(self) -> Array | np.ndarray:
        return self.verdict == SOLVED


def evidence(bound: BoundAction, coordinates: Coordinates, index: int, tolerance: Array) -> Evidence:
    """Judge whether `coordinates` are a stationary point of this index, apart from errors of averages."""
    local, reach, eps = local_model(bound, coordinates), reach_of(coordinates), jnp.finfo(coordinates.dtype).eps
    model, curvatures, directions = local.model, local.model.curvatures, local.model.directions
    sizes, left = jnp.abs(curvatures), model.newton_length()
    gradient_norm = jnp.linalg.norm(local.slope) / bound.scale
    # A coordinate that is fixed on an edge has separate evidence.
    held = jnp.sum((directions * (1 - bound.free)[:, None]) ** 2, axis=0) > 0.5

    # Rounding of the gradient: of its terms, of sums within terms, and of the coordinates.
    within_terms, within_slopes = bound.rounding(coordinates)
    by_coordinates = jnp.abs(local.hessian) @ jnp.abs(eps * coordinates)
    rounding = (4 * eps * local.magnitude + eps * within_slopes + by_coordinates) * bound.free
    along = jnp.where(held, 0.0, jnp.abs(directions).T @ rounding)
    shift = jnp.where(along == 0, 0.0, along / sizes)

    # Newton's map takes x + s to x + s - H^-1 g(x + s), so it contracts if
    # H^-1 (g(x + s) - g(x)) is close to s.
    box, smallest = jnp.maximum(_STEPS * jnp.abs(model.along_newton()), _ABOVE * shift), _ULPS * eps * reach
    box = jnp.clip(jnp.where(jnp.isnan(box), jnp.inf, box), smallest, _FARTHEST * reach)
    softest = jnp.argsort(jnp.where(held, jnp.inf, sizes))[:_FACES]
    faces = jnp.eye(len(sizes))[jnp.append(softest, len(sizes) - 1)]
    corners = jnp.sign(jax.random.normal(jax.random.key(0), (_CORNERS, len(sizes)), dtype=coordinates.dtype))
    inside = jnp.concatenate([faces, faces[:1] / 2, corners]) * jnp.where(held, 0.0, box)
    count, inside = len(inside), jnp.concatenate([inside, -inside])
    steps = inside @ directions.T

    def probe(step):
        return bound.slopes(coordinates, step)[0] - local.slope, bound.terms(bound.moved(coordinates, step))

    changes, terms = bound.over(probe)(jnp.concatenate([jnp.zeros_like(steps[:1]), steps]))
    changes, actions, terms = changes[1:], jnp.sum(terms[1:], axis=1), terms[0]
    off = jnp.abs(changes @ directions - inside * curvatures) - 8 * along
    off = jnp.where(held, 0.0, jnp.max(jnp.maximum(off, 0.0), axis=0) / (sizes * box))
    contracts = off <= _CONTRACTS

    # Along the softest direction, a curvature of zero may still be an extremum: the slope
    # changes its sign without a jump, and those in other directions are too small to matter.
    soft, is_soft = softest[0], jnp.arange(len(sizes)) == softest[0]
    ends = (changes + local.slope)[jnp.array([0, count, len(faces), count + len(faces)])] @ directions
    (ahead, behind), halfway = ends[:2, soft], ends[2:, soft]
    beside = jnp.sum(jnp.where(is_soft, 0.0, ends**2 / sizes), axis=1)
    is_alone = jnp.all(beside <= _ALONE * jnp.abs(ends[:, soft]) * box[soft])
    is_curved = jnp.all(jnp.abs(halfway) <= _CURVED * jnp.abs(ends[:2, soft]))
    floor = 4 * along[soft]
    falls, rises = (ahead < -floor) & (behind > floor), (ahead > floor) & (behind < -floor)
    is_bracketed = is_soft & ~contracts & is_alone & is_curved & (falls | rises)
    has_kink = (falls | rises) & jnp.all(jnp.abs(halfway) > _KINK * jnp.abs(ends[:2, soft]))
    negative = jnp.sum(jnp.where(is_bracketed, falls, curvatures < 0))
    moved = jnp.linalg.norm(jnp.where(is_bracketed, box, shift))
    contracts = contracts | is_bracketed

    # A smooth action changes by the mean of the slopes at both ends of a step.
    action_error = 4 * eps * jnp.sum(jnp.abs(terms)) + eps * within_terms + jnp.finfo(terms.dtype).tiny
    work = changes * steps
    leap = jnp.abs(actions - jnp.sum(terms) - steps @ local.slope - jnp.sum(work, axis=1) / 2)
    leaps = ~jnp.all(leap <= jnp.sum(jnp.abs(work), axis=1) + 1e3 * action_error)
    # In the smallest box, only a kink or noise can change the slope by as much as the
    # curvature does.
    is_rough = jnp.any(~contracts & (box <= smallest) & jnp.isfinite(off)) | leaps
    is_unknown = ~(jnp.linalg.norm(jnp.where(is_bracketed, 0.0, shift)) <= NEAR * reach)
    is_flat = jnp.any(jnp.where(held, jnp.inf, sizes) <= _FLAT * jnp.max(sizes))

    finite = jnp.all(jnp.isfinite(terms)) & jnp.isfinite(gradient_norm) & jnp.all(jnp.isfinite(curvatures))
    # No gradient is smaller than its rounding, whose effect is judged separately.
    is_sloping = ~(gradient_norm <= jnp.maximum(tolerance, jnp.linalg.norm(rounding) / bound.scale))
    wrong = [
        (NOT_FINITE, ~finite),
        (UNRESOLVED, is_sloping & has_kink),
        (SLOPING, is_sloping),
        (DEGENERATE, is_unknown & is_flat),
        (UNRESOLVED, is_rough),
        (DEGENERATE, ~(left <= NEAR * reach) | ~jnp.all(contracts)),
        (UNRESOLVED, is_unknown),
        (AT_EDGE, jnp.any(local.unclear)),
        (OTHER_INDEX, negative != index),
    ]
    verdict = jnp.array(SOLVED)
    for name, holds in reversed(wrong):
        verdict = jnp.where(holds, name, verdict)
    error = moved + left / (1 - _CONTRACTS) + 4 * eps * reach
    numbers = verdict, terms, action_error, gradient_norm, error, jnp.array(0.0), ~jnp.any(is_bracketed)
    return Evidence(*numbers, jnp.array(False), local)


def _flat(bound: BoundAction, found: dict[str, Array]) -> Array:
    # Order parameters with edges are numbers.
    sizes = zip(bound.domains, bound.lengths, strict=True)
    return jnp.concatenate([jnp.resize(found[name], size) for name, size in sizes])


def _at_edges(
    bound: BoundAction, coordinates: Coordinates, hessian: Float[Array, "n n"], held: Array
) -> tuple[Array, Array]:
    """Return the one-sided second derivative on edges, or the slope if that is not zero, and unclear cases.

    Each order parameter is moved off its edge alone: if all moved together, a product of
    two could hide the change of S along one of them. Free order parameters follow the
    valley (Schur complement of their Hessian).
    """
    count, one, side = len(coordinates), jnp.eye(len(coordinates), dtype=bool), -jnp.sign(coordinates)

    def near(at: Coordinates) -> tuple[Array, Array, Array, Array]:
        slopes, sizes = bound.slopes(at)
        _, pull = jax.vjp(lambda step: bound.values(bound.moved(at, step)), jnp.zeros(count))
        return _flat(bound, bound.values(at)), side * _flat(bound, slopes), _flat(bound, sizes), pull(slopes)[0]

    beside = [jnp.where(one & held, -side * distance, coordinates) for distance in _BESIDE]
    values, inward, sizes, free = bound.over(near)(jnp.concatenate([coordinates[None], *beside]))
    rest, blocks = jnp.where(held[:, None] | held, one, hessian), []
    for rows in (slice(1, count + 1), slice(count + 1, None)):
        distances = jnp.where(held, jnp.abs(jnp.diagonal(values[rows] - values[0])), 1.0)[:, None]
        change, along = (inward[rows] - inward[0]) / distances, (free[rows] - free[0]) / distances
        blocks.append(jnp.where(held[:, None] & held, change - along @ jnp.linalg.solve(rest, along.T), 0.0))
    curvature, signs, far = jnp.diagonal(blocks[0]), jnp.sign(jnp.diagonal(blocks[0])), jnp.diagonal(blocks[1])
    rounding = 100 * jnp.finfo(sizes.dtype).eps * sizes[0]
    first = jnp.abs(jnp.diagonal(inward[1 : count + 1]))
    is_stationary = jnp.abs(inward[0]) <= jnp.maximum(rounding, 1e-3 * first)
    # S may rise when each order parameter is moved off its edge alone, and still fall when
    # two are moved together, or the other way round. Such corners are unclear.
    others = jnp.where((signs[:, None] == signs) & ~one, signs[:, None] * blocks[0], 0.0)
    outweighed = jnp.any(others + others.T < 0)
    unclear = held & (~is_stationary | (signs != jnp.sign(far)) | (signs == 0) | outweighed)
    return jnp.where(held, jnp.where(is_stationary, curvature, inward[0]), 0.0), unclear


def with_quadrature(bound: BoundAction, known: Evidence, coordinates: Coordinates, tolerance: Array) -> Evidence:
    """Add the errors of averages: twice the changes with more nodes."""
    moved, off, change = quadrature_errors(bound, known.local, coordinates)
    most = (COARSE if bound.of.is_nested else NEAR) * reach_of(coordinates)
    action_error, size = known.action_error + off, jnp.sum(jnp.abs(known.terms))
    is_accurate = (moved <= tolerance) & (action_error <= tolerance * jnp.maximum(size, 1.0))
    visible = _VISIBLE * jnp.finfo(change.dtype).eps * jnp.linalg.norm(known.local.magnitude)
    is_cause = change >= jnp.maximum(_CAUSE * jnp.linalg.norm(known.local.slope), visible)
    return replace(
        known,
        verdict=jnp.where(known.is_solved & ~(moved <= most), UNRESOLVED, known.verdict),
        action_error=action_error,
        error=known.error + moved,
        quadrature=moved,
        needs_nodes=~is_accurate & (known.is_solved | is_cause),
    )


def quadrature_errors(bound: BoundAction, local: LocalModel, coordinates: Coordinates) -> tuple[Array, Array, Array]:
    """Return how far errors of averages move the point, the error of S, and that of its gradient."""
    if not bound.of.nodes:
        return (jnp.array(0.0),) * 3
    finer, model = replace(bound, of=bound.of.finer), local.model
    change = finer.slopes(coordinates, jnp.zeros_like(coordinates))[0] - local.slope
    if bound.has_edges.any():
        # On an edge, the derivative by the order parameter matters.
        of_values = [_flat(bound, each.slopes(coordinates)[0]) for each in (finer, bound)]
        at_edge = jnp.where(of_values[0] == of_values[1], 0.0, of_values[0] - of_values[1])
        change = jnp.where(bound.free == 0, at_edge, change)
    moved = jnp.where(change == 0, 0.0, model.directions.T @ change / model.curvatures)
    off = finer.action(coordinates) - bound.action(coordinates)
    return tuple(2 * jnp.where(jnp.isnan(each), jnp.inf, each) for each in map(jnp.linalg.norm, (moved, off, change)))
