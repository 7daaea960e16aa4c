"""What an end point of a solve is: evidence from the action around it, and the verdict that rests on it.

A point is a solution only if all of this holds: the gradient vanishes to its tolerance, the Newton step that is left
and the rounding errors of the gradient move the point by nothing that counts, the action is smooth there, and the
gradient a short way off in both directions of every soft curvature has the sign that the asked signature asks for.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .bound_action import BoundAction
from .problem import Coordinates, Expansion, Point
from .solvers.quadratic_model import QuadraticModel

SOLVED, NOT_FINITE, SLOPING, FAR, ROUNDED, KINKED, FLAT, INFLECTED, OTHER_INDEX, AT_EDGE, UNKNOWN_AVERAGE = range(11)
"""Verdicts, the first that applies: a solution; something is not finite; the gradient is too large; a Newton step would
lead elsewhere; rounding leaves the point unknown; the action has a kink or a jump there; it is constant along a
direction; it rises on one side only; the signature is another one; the slope at an edge of a domain is not zero; the
quadrature of an average leaves the point unknown."""

# a point is known if it would move by no more than this, of its largest coordinate
NEAR = 1e-6
# how many of the softest directions are probed on both sides, and how far: of the Newton step that is left, of the
# distance at which the slope is above rounding, of rounding errors of the coordinates; and at most
_PROBED, _STEPS, _ABOVE, _ULPS, _FARTHEST = 8, 10.0, 1e3, 1e3, 0.1
# Newton steps that a point is polished by
_MOST_STEPS = 30
# Newton steps that bring a probe back to the valley, and how near to it, of the distance
_CORRECTIONS, _BESIDE_VALLEY = 30, 1e-12
# a probe is harmonic if the slope there is this near to the curvature times the distance
_HARMONIC = 0.5
# a smooth action changes by at most so many times the slope at a probe times its distance
_LEAP = 2.0
# random directions in which kinks are looked for, and how much larger than smooth changes one is
_RANDOM, _SHARP = 2, 1e3
# coordinates next to an edge at which its one-sided derivatives are taken
_BESIDE = (16.0, 12.0)


class Evidence(eqx.Module):
    """What is known of an end point.

    - `verdict`: one of the numbers above.
    - `model`: S to second order there; the curvature of a coordinate on an edge is the one-sided one.
    - `terms`, `action_error`: the terms of S and the rounding error of their sum.
    - `error`: by how much rounding and the Newton step that is left may move the point, in the metric of the domains.
    - `slope`: the gradient in steps.
    """

    verdict: Int[Array, ""]
    terms: Float[Array, " terms"]
    action_error: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    model: QuadraticModel
    error: Float[Array, ""]
    slope: Coordinates


def evidence(
    bound: BoundAction, coordinates: Coordinates, index: int, tolerance: Array, local: "LocalModel | None" = None
) -> Evidence:
    """Judge `coordinates` as a stationary point of this index; `local` is the model there, if it is known."""
    local = local_model(bound, coordinates) if local is None else local
    model, reach = local.model, Point.reach_of(coordinates)
    rough = _roughness(bound, coordinates, local)
    eps = jnp.finfo(coordinates.dtype).eps
    rounding = (4 * eps * local.magnitude + rough.noise) * bound.free
    along = jnp.abs(model.directions).T @ rounding
    moved_by_rounding = jnp.linalg.norm(jnp.where(along == 0, 0.0, along / jnp.abs(model.curvatures)))
    left, gradient_norm = model.newton_length(), jnp.linalg.norm(local.slope) / bound.scale
    probes = _probed(bound, coordinates, model, along, left, rough.terms)
    soft = model.curvatures[probes.which]
    negative = (
        jnp.sum(model.curvatures < 0) + jnp.sum(probes.negative & (soft >= 0)) - jnp.sum(probes.positive & (soft < 0))
    )
    # a kink of a function of one number is a minimum if S rises on both sides of it
    one_sided = (len(coordinates) == 1) & (index == 0) & rough.rises
    finite = jnp.all(jnp.isfinite(rough.terms)) & jnp.isfinite(gradient_norm) & jnp.all(jnp.isfinite(model.curvatures))
    smooth = jnp.all(probes.harmonic)
    jumped = rough.kinked | jnp.any(probes.jumped)
    wrong = [
        (NOT_FINITE, ~finite),
        # no gradient is smaller than its rounding, whose effect on the point is judged by itself
        (SLOPING, ~(gradient_norm <= jnp.maximum(tolerance, jnp.linalg.norm(rounding) / bound.scale))),
        (KINKED, jumped & ~one_sided),
        (FAR, ~(left <= NEAR * reach)),
        (FLAT, ~one_sided & jnp.any(probes.flat)),
        (INFLECTED, ~one_sided & jnp.any(probes.inflected) | (jnp.sum(~probes.harmonic) > 1)),
        (ROUNDED, ~(moved_by_rounding <= NEAR * reach) & smooth),
        (AT_EDGE, jnp.any((bound.free == 0) & ((local.slope_at_edge != 0) | local.unclear))),
        (OTHER_INDEX, negative != index),
    ]
    verdict = jnp.array(SOLVED)
    for name, holds in reversed(wrong):
        verdict = jnp.where(holds, name, verdict)
    # the slope of a harmonic probe is known by half, and so is the Newton step
    error = jnp.where(smooth, moved_by_rounding + left / (1 - _HARMONIC), probes.bracket)
    return Evidence(verdict, rough.terms, rough.action_error, gradient_norm, model, error, local.slope)


class _Probes(eqx.Module):
    """Slopes a short way off on both sides, along the softest directions, `which` of the model's."""

    which: Int[Array, " probes"]
    positive: Bool[Array, " probes"]
    negative: Bool[Array, " probes"]
    flat: Bool[Array, " probes"]
    jumped: Bool[Array, " probes"]
    harmonic: Bool[Array, " probes"]
    bracket: Float[Array, ""]

    @property
    def inflected(self) -> Bool[Array, " probes"]:
        return ~(self.positive | self.negative | self.flat)


def _probed(bound: BoundAction, coordinates: Coordinates, model: QuadraticModel, rounding, left, terms) -> _Probes:
    """Probe the softest directions, following the valley: the slope along stiffer directions is brought to zero.

    So a degenerate point is judged by the action reduced to its soft direction (Lyapunov and Schmidt), not by the sign
    of a curvature that is zero to its error.
    """
    sizes, reach = jnp.abs(model.curvatures), Point.reach_of(coordinates)
    # a coordinate that is held has its own evidence
    along_held = jnp.sum((model.directions * (1 - bound.free)[:, None]) ** 2, axis=0) > 0.5
    which = jnp.argsort(jnp.where(along_held, jnp.inf, sizes))[: min(_PROBED, len(sizes))]
    size, direction, is_held = sizes[which], model.directions[:, which].T, along_held[which]
    shortest = jnp.maximum(_STEPS * left, _ULPS * jnp.finfo(sizes.dtype).eps * reach)
    distance = jnp.minimum(jnp.maximum(shortest, _ABOVE * rounding[which] / size), _FARTHEST * reach)
    distance = jnp.where(jnp.isfinite(distance), distance, _FARTHEST * reach)
    stiff = (sizes > 10 * size[:, None]) & (jnp.arange(len(sizes)) != which[:, None])

    def follow_valley(state):
        steps, *_, count = state
        slopes = jax.lax.map(lambda step: bound.slope_after(coordinates, step), steps)
        uphill = jnp.where(_twice(stiff), slopes @ model.directions, 0.0)
        beside = uphill / jnp.where(sizes > 0, model.curvatures, 1.0)
        off = jnp.any(jnp.linalg.norm(beside, axis=1) > _BESIDE_VALLEY * _twice(distance))
        along = jnp.sum(slopes * _twice(direction), axis=1)
        return steps - beside @ model.directions.T, along, jnp.linalg.norm(uphill, axis=1), off, count + 1

    steps = jnp.concatenate([distance[:, None] * direction, -distance[:, None] * direction])
    nothing = jnp.zeros(len(steps))
    start = (steps, nothing, nothing, jnp.array(True), jnp.array(0))
    go_on = lambda state: state[3] & (state[4] <= _CORRECTIONS)  # noqa: E731
    steps, slopes, uphill, *_ = jax.lax.while_loop(go_on, follow_valley, start)
    ahead, behind = jnp.split(slopes, 2)
    expected = model.curvatures[which] * distance
    off = jnp.maximum(jnp.abs(ahead - expected), jnp.abs(behind + expected))
    resolved = jnp.abs(expected) > 4 * rounding[which]
    harmonic = ((off <= _HARMONIC * jnp.abs(expected)) & resolved) | is_held
    # elsewhere the slope that is left uphill of the valley has a part along it, where the valley bends
    floor = 4 * rounding[which] + 10 * jnp.maximum(*jnp.split(uphill, 2))
    # a slope that grows along the way changes the action by no more than it ends at: beyond that, a jump
    changes = jax.lax.map(lambda step: bound.action(bound.moved(coordinates, step)), steps) - jnp.sum(terms)
    rounded = 1e3 * jnp.finfo(sizes.dtype).eps * jnp.sum(jnp.abs(terms))
    leaps = jnp.abs(changes) > _LEAP * jnp.abs(slopes) * _twice(distance) + rounded
    positive = jnp.where(harmonic, expected > 0, (ahead > floor) & (behind < -floor))
    negative = jnp.where(harmonic, expected < 0, (ahead < -floor) & (behind > floor))
    return _Probes(
        which,
        positive=positive,
        negative=negative,
        jumped=jnp.any(leaps.reshape(2, -1), axis=0) & (positive | negative) & ~harmonic,
        flat=(jnp.abs(ahead) <= floor) & (jnp.abs(behind) <= floor) & ~harmonic,
        harmonic=harmonic,
        bracket=jnp.max(jnp.where(harmonic, 0.0, distance)),
    )


def _twice(rows: Array) -> Array:
    return jnp.concatenate([rows, rows])


class _Roughness(eqx.Module):
    """What S does between neighbouring numbers.

    - `terms`: those of S at the point. `action_error`: rounding of their sum, and of what they are computed from.
    - `noise`: what terms leave that cancel in the gradient. `kinked`: gradient or action jump. `rises`: on all sides.
    """

    terms: Float[Array, " terms"]
    action_error: Float[Array, ""]
    noise: Float[Array, " coordinates"]
    kinked: Bool[Array, ""]
    rises: Bool[Array, ""]


def _roughness(bound: BoundAction, coordinates: Coordinates, local: "LocalModel") -> _Roughness:
    """Compare S and its gradient at neighbouring points.

    Noise is seen a few rounding errors away. Jumps are looked for a little farther off, on both sides along the lowest,
    the highest, and random directions: noise differs between two points on one side, and a jump does not.
    """
    model, reach, eps = local.model, Point.reach_of(coordinates), jnp.finfo(coordinates.dtype).eps
    random = jax.random.normal(jax.random.key(0), (_RANDOM, len(coordinates)), dtype=coordinates.dtype)
    directions = jnp.concatenate([model.directions[:, :1].T, model.directions[:, -1:].T, random])
    directions = directions / jnp.linalg.norm(directions, axis=1, keepdims=True)
    near = jnp.array([0.0, -8.0, -3.0, 3.0, 8.0])[:, None] * eps * jnp.maximum(jnp.abs(coordinates), 1.0)
    off = _ULPS * eps * reach * jnp.concatenate([directions, -directions])

    def around(step):
        moved = bound.moved(coordinates, step)
        return bound.slope_after(moved, jnp.zeros_like(step)), bound.terms(moved)

    slopes, terms = jax.lax.map(around, jnp.concatenate([near, off, 2 * off]))
    actions, few = jnp.sum(terms, axis=1), len(near)
    noise = jnp.max(jnp.abs(slopes[:few] - local.slope - near @ local.hessian), axis=0) / 2
    of_action = jnp.max(jnp.abs(actions[:few] - actions[0] - near @ local.slope))
    (first, second), (low, high) = jnp.split(slopes[few:], 2), jnp.split(actions[few:], 2)
    distance, summed = _ULPS * eps * reach, 4 * eps * jnp.sum(jnp.abs(terms[0]))
    smooth = jnp.linalg.norm(local.hessian) * distance
    rough = jnp.linalg.norm(second - first, axis=1) + 4 * eps * jnp.linalg.norm(local.magnitude) + eps * distance
    turned = jnp.linalg.norm(first - local.slope, axis=1) > _SHARP * (smooth + rough)
    allowed = _SHARP * (jnp.abs(high - low) + summed + (jnp.linalg.norm(local.slope) + smooth) * distance)
    jumped = jnp.abs(low - actions[0]) > allowed
    rises = jnp.all(jnp.sum(first * off, axis=1) > 0) & jnp.all(high >= actions[0]) & ~jnp.any(jumped)
    return _Roughness(terms[0], summed + of_action, noise, jnp.any(turned | jumped), rises)


class LocalModel(eqx.Module):
    """S to second order about a point.

    The curvature along a coordinate that is held on an edge is the one-sided second derivative there, or where S has a
    slope there, that: `slope_at_edge`. `unclear`: the curvature near the edge has no definite sign.
    """

    model: QuadraticModel
    slope: Coordinates
    magnitude: Coordinates
    hessian: Float[Array, "coordinates coordinates"]
    slope_at_edge: Coordinates
    unclear: Bool[Array, " coordinates"]


def local_model(bound: BoundAction, coordinates: Coordinates) -> LocalModel:
    """The model about a point."""
    slope, magnitude, hessian = bound.second_order(coordinates)
    curvature, at_edge, unclear = _nowhere(coordinates)
    if any(domain.has_edges for domain in bound.layout.domains):
        held = bound.free == 0
        curvature, at_edge, unclear = jax.lax.cond(
            jnp.any(held), lambda: _at_edges(bound, coordinates, hessian, held), lambda: _nowhere(coordinates)
        )
        hessian = hessian + jnp.diag(jnp.where(held, curvature - bound.scale, 0.0))
    model = QuadraticModel.of(Expansion(slope, hessian, jnp.eye(len(slope))))
    return LocalModel(model, slope, magnitude, hessian, at_edge, unclear)


def polished(bound: BoundAction, coordinates: Coordinates) -> tuple[Coordinates, LocalModel]:
    """The stationary point next to `coordinates`, by Newton steps while they get shorter, and the model there."""

    def step(state):
        at, length, local, _, count = state
        by = local.model.directions @ local.model.along_newton() * bound.free
        ahead = jnp.linalg.norm(by)
        goes = (ahead < length / 2) & jnp.all(jnp.isfinite(by)) & (count > 0)
        at = jnp.where(goes, bound.moved(at, by), at)
        return at, jnp.where(goes, ahead, length), local_model(bound, at), goes | (count == 0), count + 1

    shapes = jax.eval_shape(lambda: local_model(bound, coordinates))
    nothing = jax.tree.map(lambda leaf: jnp.ones(leaf.shape, leaf.dtype), shapes)
    start = (coordinates, jnp.array(jnp.inf), nothing, jnp.array(True), jnp.array(0))
    at, _, local, *_ = jax.lax.while_loop(lambda state: state[3] & (state[4] < _MOST_STEPS), step, start)
    return at, local


def _nowhere(coordinates: Coordinates) -> tuple[Array, Array, Array]:
    return jnp.zeros_like(coordinates), jnp.zeros_like(coordinates), jnp.zeros(len(coordinates), dtype=bool)


def _at_edges(
    bound: BoundAction, coordinates: Coordinates, local_hessian: Float[Array, "n n"], held: Array
) -> tuple[Array, Array, Array]:
    """One-sided second derivative on the edges, the slope inwards (zero if S is stationary), and what is unclear.

    Each order parameter is moved off its edge alone, the others that are on edges staying there: moved together, a
    product of two of them hides what S does along one. Free ones follow the valley (Schur complement of their Hessian).
    """
    side, layout, number = -jnp.sign(coordinates), bound.layout, len(coordinates)

    def of_edges(found: dict[str, Array]) -> Array:
        """The entries that belong to domains with edges, which are numbers; zero for others."""
        sizes = zip(layout.names, layout.domains, layout.sizes, strict=True)
        return jnp.concatenate(
            [found[name].reshape(1) if domain.has_edges else jnp.zeros(size) for name, domain, size in sizes]
        )

    def inwards(at: Coordinates) -> tuple[Array, Array, Array, Array]:
        values, by_coordinates = jax.jvp(layout.values, (at,), (jnp.ones(number),))
        slopes, magnitudes = bound.slopes(values)
        along_free = bound.slope_after(at, jnp.zeros(number))
        return side * of_edges(slopes), of_edges(magnitudes), along_free, jnp.abs(of_edges(by_coordinates))

    def beside(distance: float) -> Array:
        return jnp.where(jnp.eye(number, dtype=bool) & held, -side * distance, coordinates)

    inward, magnitudes, along_free, moved_by = jax.lax.map(
        inwards, jnp.concatenate([coordinates[None], *map(beside, _BESIDE)])
    )
    # lengths in units of the width of each domain
    width = jnp.where(held, jnp.diagonal(moved_by[1 : number + 1]) / jnp.exp(-_BESIDE[0]), 1.0)
    here, free = inward[0] * width, jnp.where(held[:, None] | held, jnp.eye(number), local_hessian)

    def hessian(rows: slice, distance: float) -> Array:
        change = (inward[rows] * width - here) / jnp.exp(-distance)
        beside_free = (along_free[rows] - along_free[0]) / jnp.exp(-distance)
        return jnp.where(held[:, None] & held, change - beside_free @ jnp.linalg.solve(free, beside_free.T), 0.0)

    near = hessian(slice(1, number + 1), _BESIDE[0])
    far = jnp.diagonal(hessian(slice(number + 1, None), _BESIDE[1]))
    curvature = jnp.diagonal(near)
    rounding = 100 * jnp.finfo(here.dtype).eps * magnitudes[0] * width
    first = jnp.abs(jnp.diagonal(inward[1 : number + 1])) * width
    is_stationary = jnp.abs(here) <= jnp.maximum(rounding, 1e-3 * first)
    # at a corner of edges from which S rises, a product of two order parameters that lowers it may outweigh squares;
    # the same where it falls
    signs = jnp.sign(curvature)
    others = jnp.where((signs[:, None] == signs) & ~jnp.eye(number, dtype=bool), signs[:, None] * near, 0.0)
    outweighed = jnp.any(others + others.T < 0)
    unclear = held & ((jnp.sign(curvature) != jnp.sign(far)) | (curvature == 0) | outweighed)
    curvature = jnp.where(is_stationary, curvature, here)
    slope = jnp.where(is_stationary, 0.0, here)
    return jnp.where(held, curvature, 0.0), jnp.where(held, slope, 0.0), unclear


def quadrature_error(
    bound: BoundAction, model: QuadraticModel, slope: Coordinates, coordinates: Coordinates
) -> Float[Array, ""]:
    """Length of the Newton step that the errors of Gaussian averages ask for.

    Stated errors of adaptive averages, the larger one of both sides; of others, what many nodes change.
    """
    if not bound.of.has_averages:
        return jnp.array(0.0)
    no_step = jnp.zeros_like(coordinates)

    def step(finer: BoundAction) -> Float[Array, ""]:
        change = finer.slope_after(coordinates, no_step) - slope
        moved = jnp.where(change == 0, 0.0, model.directions.T @ change / model.curvatures)
        return jnp.linalg.norm(jnp.where(jnp.isnan(moved), jnp.inf, moved))

    if not bound.of.is_refined:
        return 2 * step(bound.with_action(bound.of.checking))
    return jnp.max(jax.lax.map(lambda side: step(bound.with_stated_errors(side)), jnp.array([1.0, -1.0])))
