"""Evidence about the end point of a solve, and the resulting verdict.

A point is a solution only if all of the following holds. The gradient vanishes to its tolerance. The remaining Newton
step and the rounding errors of the gradient move the point by a negligible distance. The action is smooth there. The
gradient a short distance away, on both sides along every soft direction, has the sign of the requested signature.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..symbolic import GaussianAverage
from .action import SIDE
from .bound_action import BoundAction
from .problem import Coordinates, Expansion, reach_of
from .solvers.quadratic_model import QuadraticModel

SOLVED, NOT_FINITE, SLOPING, FAR, ROUNDED, KINKED, FLAT, INFLECTED, OTHER_INDEX, AT_EDGE, UNKNOWN_AVERAGE = range(11)
"""Verdicts about an end point. If several apply, the list in `evidence` decides which one is given.

- `SOLVED`: the point is a solution.
- `NOT_FINITE`: the action or a derivative is not finite.
- `SLOPING`: the gradient is too large.
- `FAR`: a Newton step would leave the point.
- `ROUNDED`: rounding errors leave the point unknown.
- `KINKED`: the action has a kink or a jump at the point.
- `FLAT`: the action is constant along a direction.
- `INFLECTED`: the action rises on one side only along a direction.
- `OTHER_INDEX`: the number of negative curvatures differs from the requested index.
- `AT_EDGE`: the slope at an edge of a domain is not zero.
- `UNKNOWN_AVERAGE`: quadrature errors of an average leave the point unknown.
"""

# A point is known if its error is at most this fraction of its largest coordinate.
NEAR = 1e-6
# Probe this many of the softest directions, on both sides.
_PROBED = 8
# The probe distance is the largest of three. The first is this multiple of the remaining Newton step.
_STEPS = 10.0
# The second is this multiple of the distance at which the slope exceeds its rounding error.
_ABOVE = 1e3
# The third is this multiple of the rounding error of the coordinates.
_ULPS = 1e3
# The probe distance is at most this fraction of the largest coordinate, so that the probe remains local.
_FARTHEST = 0.1
# Maximum number of Newton steps that bring a probe back to the valley.
_CORRECTIONS = 30
# A probe is in the valley if its distance from the valley is below this fraction of the probe distance.
_BESIDE_VALLEY = 1e-12
# A probe is harmonic if its slope deviates from curvature times distance by at most this fraction.
_HARMONIC = 0.5
# A smooth action changes by at most this multiple of the slope at a probe times its distance.
_LEAP = 2.0
# Number of random directions that are searched for kinks, in addition to the lowest and the highest.
_RANDOM = 2
# A change of S or of its gradient is a kink or a jump if it exceeds smooth changes by this factor.
_SHARP = 1e3
# Coordinates next to an edge at which one-sided derivatives are taken. Their signs must agree at both.
_BESIDE = (16.0, 12.0)


class LocalModel(eqx.Module):
    """S to second order about a point.

    The curvature along a coordinate fixed on an edge is the one-sided second derivative there, or the slope of S if
    that is not zero.

    - `model`: the quadratic model of S.
    - `slope` (coordinates,): the gradient of S in steps.
    - `magnitude` (coordinates,): the sum of the absolute values of the terms in each entry of the gradient.
    - `hessian` (coordinates, coordinates): the Hessian of S in steps.
    - `slope_at_edge` (coordinates,): the inward slope of S for coordinates fixed on an edge, and otherwise zero.
    - `unclear` (coordinates,): whether the curvature near the edge has no definite sign.
    """

    model: QuadraticModel
    slope: Coordinates
    magnitude: Coordinates
    hessian: Float[Array, "coordinates coordinates"]
    slope_at_edge: Coordinates
    unclear: Bool[Array, " coordinates"]


@eqx.filter_jit
def local_model(bound: BoundAction, coordinates: Coordinates) -> LocalModel:
    """Make the model about a point."""
    here = bound.expansion(coordinates)
    nowhere = jnp.zeros_like(coordinates), jnp.zeros_like(coordinates), jnp.zeros(len(coordinates), dtype=bool)
    hessian, (curvature, at_edge, unclear) = here.hessian, nowhere
    if any(domain.has_edges for domain in bound.domains.values()):
        held = bound.free == 0
        curvature, at_edge, unclear = jax.lax.cond(
            jnp.any(held), lambda: _at_edges(bound, coordinates, hessian, held), lambda: nowhere
        )
        hessian = hessian + jnp.diag(jnp.where(held, curvature - bound.scale, 0.0))
    model = QuadraticModel.of(Expansion(here.gradient, hessian, here.metric))
    return LocalModel(model, here.gradient, here.magnitude, hessian, at_edge, unclear)


class Evidence(eqx.Module):
    """Evidence about an end point.

    - `verdict`: one of the verdicts above.
    - `terms` (terms,): the terms of S.
    - `action_error`: rounding error of the terms and of their sum.
    - `gradient_norm`: norm of the gradient per scale.
    - `model`: the quadratic model of S about the point.
    - `error`: bound on the shift of the point by rounding and by the remaining Newton step, in the metric of the
      domains.
    - `slope` (coordinates,): the gradient of S in steps.
    """

    verdict: Int[Array, ""]
    terms: Float[Array, " terms"]
    action_error: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    model: QuadraticModel
    error: Float[Array, ""]
    slope: Coordinates


def evidence(bound: BoundAction, coordinates: Coordinates, local: LocalModel, index: int, tolerance: Array) -> Evidence:
    """Judge whether `coordinates`, about which S has the model `local`, are a stationary point of this index."""
    model, reach, eps = local.model, reach_of(coordinates), jnp.finfo(coordinates.dtype).eps
    left, gradient_norm = model.newton_length(), jnp.linalg.norm(local.slope) / bound.scale

    # Compare S and its gradient at neighbouring points. Noise is measured a few rounding errors away. Jumps are
    # searched for slightly farther away, on both sides along the lowest, the highest, and random directions. Noise
    # differs between two points on one side, whereas a jump is the same at both.
    random = jax.random.normal(jax.random.key(0), (_RANDOM, len(coordinates)), dtype=coordinates.dtype)
    directions = jnp.concatenate([model.directions[:, :1].T, model.directions[:, -1:].T, random])
    directions = directions / jnp.linalg.norm(directions, axis=1, keepdims=True)
    near = jnp.array([0.0, -8.0, -3.0, 3.0, 8.0])[:, None] * eps * jnp.maximum(jnp.abs(coordinates), 1.0)
    off = _ULPS * eps * reach * jnp.concatenate([directions, -directions])

    def around(step):
        moved = bound.moved(coordinates, step)
        return bound.slopes(moved, jnp.zeros_like(step))[0], bound.terms(moved)

    slopes, terms = bound.over(around)(jnp.concatenate([near, off, 2 * off]))
    actions, terms, few = jnp.sum(terms, axis=1), terms[0], len(near)
    noise = jnp.max(jnp.abs(slopes[:few] - local.slope - near @ local.hessian), axis=0) / 2
    noise_of_action = jnp.max(jnp.abs(actions[:few] - actions[0] - near @ local.slope))
    within_terms, within_slopes = bound.rounding(coordinates)
    noise_of_action = noise_of_action + eps * within_terms
    (first, second), (low, high) = jnp.split(slopes[few:], 2), jnp.split(actions[few:], 2)
    apart, summed = _ULPS * eps * reach, 4 * eps * jnp.sum(jnp.abs(terms))
    smooth = jnp.linalg.norm(local.hessian) * apart
    rough = jnp.linalg.norm(second - first, axis=1) + 4 * eps * jnp.linalg.norm(local.magnitude) + eps * apart
    turned = jnp.linalg.norm(first - local.slope, axis=1) > _SHARP * (smooth + rough)
    allowed = _SHARP * (jnp.abs(high - low) + summed + (jnp.linalg.norm(local.slope) + smooth) * apart)
    jumped = jnp.abs(low - actions[0]) > allowed
    rises = jnp.all(jnp.sum(first * off, axis=1) > 0) & jnp.all(high >= actions[0]) & ~jnp.any(jumped)
    # A kink of a function of one number is a minimum if S rises on both sides of it.
    one_sided = (len(coordinates) == 1) & (index == 0) & rises
    rounding = (4 * eps * local.magnitude + eps * within_slopes + noise) * bound.free
    along = jnp.abs(model.directions).T @ rounding
    moved_by_rounding = jnp.linalg.norm(jnp.where(along == 0, 0.0, along / jnp.abs(model.curvatures)))

    # Probe the slope of S a short distance away, on both sides along the softest directions of the model. The probes
    # follow the valley, that is, Newton steps bring the slope along stiffer directions to zero. A degenerate point is
    # therefore judged by the action reduced to its soft direction (Lyapunov-Schmidt reduction), and not by the sign of
    # a curvature that is zero within its error.
    sizes = jnp.abs(model.curvatures)
    # A fixed coordinate has separate evidence.
    along_held = jnp.sum((model.directions * (1 - bound.free)[:, None]) ** 2, axis=0) > 0.5
    which = jnp.argsort(jnp.where(along_held, jnp.inf, sizes))[: min(_PROBED, len(sizes))]
    size, direction, is_held = sizes[which], model.directions[:, which].T, along_held[which]
    shortest = jnp.maximum(_STEPS * left, _ULPS * eps * reach)
    distance = jnp.minimum(jnp.maximum(shortest, _ABOVE * along[which] / size), _FARTHEST * reach)
    distance = jnp.where(jnp.isfinite(distance), distance, _FARTHEST * reach)
    stiff = (sizes > 10 * size[:, None]) & (jnp.arange(len(sizes)) != which[:, None])
    directions, distances, stiff = (jnp.concatenate([rows, rows]) for rows in (direction, distance, stiff))

    def follow_valley(state):
        steps, *_, last, _, count = state
        slopes = bound.over(lambda step: bound.slopes(coordinates, step)[0])(steps)
        uphill = jnp.where(stiff, slopes @ model.directions, 0.0)
        beside = uphill / jnp.where(sizes > 0, model.curvatures, 1.0)
        far, forwards = jnp.linalg.norm(beside, axis=1), jnp.sum(slopes * directions, axis=1)
        # Rounding may keep a probe from coming nearer. The slope that remains across the valley is then accounted for.
        nears = jnp.any((far > _BESIDE_VALLEY * distances) & ~(far > last / 2))
        return steps - beside @ model.directions.T, forwards, jnp.linalg.norm(uphill, axis=1), far, nears, count + 1

    steps = jnp.concatenate([distance[:, None] * direction, -distance[:, None] * direction])
    nothing = jnp.zeros(len(steps))
    start = (steps, nothing, nothing, nothing + jnp.inf, jnp.array(True), jnp.array(0))
    go_on = lambda state: state[4] & (state[5] <= _CORRECTIONS)  # noqa: E731
    steps, slopes, uphill, *_ = jax.lax.while_loop(go_on, follow_valley, start)
    ahead, behind = jnp.split(slopes, 2)
    expected = model.curvatures[which] * distance
    miss = jnp.maximum(jnp.abs(ahead - expected), jnp.abs(behind + expected))
    resolved = jnp.abs(expected) > 4 * along[which]
    harmonic = ((miss <= _HARMONIC * jnp.abs(expected)) & resolved) | is_held
    # If the valley bends, the slope that remains across it has a component along it.
    floor = 4 * along[which] + 10 * jnp.maximum(*jnp.split(uphill, 2))
    # If the slope grows with distance, the change of S is at most the slope at the probe times its distance. A larger
    # change is a jump.
    changes = bound.over(lambda step: jnp.sum(bound.terms(bound.moved(coordinates, step))))(steps) - jnp.sum(terms)
    rounded = 1e3 * eps * jnp.sum(jnp.abs(terms))
    leaps = jnp.abs(changes) > _LEAP * jnp.abs(slopes) * distances + rounded
    positive = jnp.where(harmonic, expected > 0, (ahead > floor) & (behind < -floor))
    negative = jnp.where(harmonic, expected < 0, (ahead < -floor) & (behind > floor))
    flat = (jnp.abs(ahead) <= floor) & (jnp.abs(behind) <= floor) & ~harmonic
    leaped = jnp.any(leaps.reshape(2, -1), axis=0) & (positive | negative) & ~harmonic

    soft = model.curvatures[which]
    below_zero = jnp.sum(model.curvatures < 0) + jnp.sum(negative & (soft >= 0)) - jnp.sum(positive & (soft < 0))
    finite = jnp.all(jnp.isfinite(terms)) & jnp.isfinite(gradient_norm) & jnp.all(jnp.isfinite(model.curvatures))
    all_harmonic = jnp.all(harmonic)
    wrong = [
        (NOT_FINITE, ~finite),
        # No gradient is smaller than its rounding, whose effect on the point is judged separately.
        (SLOPING, ~(gradient_norm <= jnp.maximum(tolerance, jnp.linalg.norm(rounding) / bound.scale))),
        (KINKED, (jnp.any(turned | jumped) | jnp.any(leaped)) & ~one_sided),
        (FAR, ~(left <= NEAR * reach)),
        (FLAT, ~one_sided & jnp.any(flat)),
        (INFLECTED, ~one_sided & jnp.any(~(positive | negative | flat)) | (jnp.sum(~harmonic) > 1)),
        (ROUNDED, ~(moved_by_rounding <= NEAR * reach) & all_harmonic),
        (AT_EDGE, jnp.any((bound.free == 0) & ((local.slope_at_edge != 0) | local.unclear))),
        (OTHER_INDEX, below_zero != index),
    ]
    verdict = jnp.array(SOLVED)
    for name, holds in reversed(wrong):
        verdict = jnp.where(holds, name, verdict)
    # The slope of a harmonic probe is accurate to a factor of two, and so is the Newton step.
    bracket = jnp.max(jnp.where(harmonic, 0.0, distance))
    error = jnp.where(all_harmonic, moved_by_rounding + left / (1 - _HARMONIC), bracket)
    return Evidence(verdict, terms, summed + noise_of_action, gradient_norm, model, error, local.slope)


def _at_edges(
    bound: BoundAction, coordinates: Coordinates, local_hessian: Float[Array, "n n"], held: Array
) -> tuple[Array, Array, Array]:
    """Return the one-sided second derivative on edges, the inward slope (zero if S is stationary), and unclear cases.

    Each order parameter is moved off its edge alone, while the others stay on their edges. If they moved together, a
    product of two order parameters could hide the change of S along one of them. Free order parameters follow the
    valley (Schur complement of their Hessian).
    """
    side, number = -jnp.sign(coordinates), len(coordinates)

    def of_edges(found: dict[str, Array]) -> Array:
        """Return the entries of domains with edges, which are numbers, and zero for others."""
        pairs = zip(bound.domains.items(), bound.lengths, strict=True)
        return jnp.concatenate(
            [found[name].reshape(1) if domain.has_edges else jnp.zeros(size) for (name, domain), size in pairs]
        )

    def inwards(at: Coordinates) -> tuple[Array, Array, Array, Array]:
        _, by_coordinates = jax.jvp(bound.values, (at,), (jnp.ones(number),))
        _, pull = jax.vjp(lambda step: bound.values(bound.moved(at, step)), jnp.zeros(number))
        slopes, magnitudes = bound.slopes(at)
        return side * of_edges(slopes), of_edges(magnitudes), pull(slopes)[0], jnp.abs(of_edges(by_coordinates))

    beside = [jnp.where(jnp.eye(number, dtype=bool) & held, -side * distance, coordinates) for distance in _BESIDE]
    inward, magnitudes, along_free, moved_by = bound.over(inwards)(jnp.concatenate([coordinates[None], *beside]))
    # Lengths are in units of the width of each domain.
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
    # S may rise when each order parameter is moved off its edge alone, and still fall when two are moved together,
    # because their cross term is negative. Report such corners as unclear, and likewise with all signs reversed.
    signs = jnp.sign(curvature)
    others = jnp.where((signs[:, None] == signs) & ~jnp.eye(number, dtype=bool), signs[:, None] * near, 0.0)
    outweighed = jnp.any(others + others.T < 0)
    unclear = held & ((jnp.sign(curvature) != jnp.sign(far)) | (curvature == 0) | outweighed)
    curvature = jnp.where(is_stationary, curvature, here)
    slope = jnp.where(is_stationary, 0.0, here)
    return jnp.where(held, curvature, 0.0), jnp.where(held, slope, 0.0), unclear


def quadrature_errors(
    bound: BoundAction, known: LocalModel | Evidence, coordinates: Coordinates
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the length of the Newton step caused by errors of averages, from the `known` model, and the error of S.

    The errors of adaptive averages are their error bounds, with the sign that gives the longer step. The errors of
    other averages are estimated as twice the change with many nodes.
    """
    action, model = bound.of, known.model
    if not action.expression.has(GaussianAverage):
        return jnp.array(0.0), jnp.array(0.0)
    here = jnp.sum(known.terms) if isinstance(known, Evidence) else bound.action(coordinates)

    def changes(finer: BoundAction) -> tuple[Float[Array, ""], Float[Array, ""]]:
        change = finer.slopes(coordinates, jnp.zeros_like(coordinates))[0] - known.slope
        moved = jnp.where(change == 0, 0.0, model.directions.T @ change / model.curvatures)
        step, off = jnp.linalg.norm(moved), jnp.abs(finer.action(coordinates) - here)
        return tuple(jnp.where(jnp.isnan(each), jnp.inf, each) for each in (step, off))

    if action.fixed_averages:
        step, off = changes(replace(bound, of=action.checking))
        return 2 * step, 2 * off
    sides = jax.lax.map(
        lambda side: changes(replace(bound, of=action.bounds, parameters={**bound.parameters, SIDE.name: side})),
        jnp.array([1.0, -1.0]),
    )
    return jnp.max(sides[0]), jnp.max(sides[1])
