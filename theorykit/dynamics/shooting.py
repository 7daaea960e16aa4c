"""Multiple shooting: the equations that all points of a cycle obey together, and Newton's method for them.

The unknowns are all points of the cycle, and the parameter. The equations are then as well conditioned as one step of
the map; those of the map iterated over a period of a chaotic orbit would not be.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jax.typing import ArrayLike
from jaxtyping import Array, Complex, Float

from ..checks import checked_array, checked_function, checked_number, first_line
from ..compilation import jit
from ..precision import require_float64

Step = Callable[[Array, Array], Array]
"""One step of a smooth map: (state, parameter) to state, a vector; the parameter is a number."""

# largest defect of a cycle that counts as solved, in units of `scale`
SOLVED = 1e-12
# evaluations of the map after which Newton's method has failed
_MOST_EVALUATIONS = 100
# changes that are rounding, in units of the machine's
_ROUNDING = 4.0
# fraction of a Newton step below which shortening it further is useless
_SHORTEST = 2.0**-12


class Unknowns(eqx.Module):
    """The points of a cycle in order, and the parameter of the map; or changes of these."""

    points: Float[Array, "period state"]
    parameter: Float[Array, ""]

    def move(self, change: "Unknowns", length: ArrayLike = 1.0) -> "Unknowns":
        """These unknowns after `length` times a change."""
        return jax.tree.map(lambda here, by: here + length * by, self, change)

    @property
    def first(self) -> Float[Array, " coordinates"]:
        """The first point, then the parameter: coordinates (state + 1,) of the plane in which arclength is measured."""
        return jnp.append(self.points[0], self.parameter)


class Linearisation(eqx.Module):
    """Derivatives of the map at each point of a cycle: in the state, `jacobians`, and in the parameter, `drifts`."""

    jacobians: Float[Array, "period state state"]
    drifts: Float[Array, "period state"]

    @classmethod
    def about(cls, step: Step, at: Unknowns) -> "Linearisation":
        """Derivatives of `step`, by forward differentiation."""
        of_point = jax.jacfwd(step, argnums=(0, 1))
        return cls(*jax.vmap(of_point, in_axes=(0, None))(at.points, at.parameter))

    def condense(self, defects: Float[Array, "period state"]) -> tuple[Array, Array, Array]:
        """(P, c, d): changes x of the first point and m of the parameter map to P x + c m + d after one period."""

        def through(affine, one):
            jacobian, drift, defect = one
            return (jacobian @ affine).at[:, -2].add(drift).at[:, -1].add(defect), None

        start = jnp.eye(defects.shape[1], defects.shape[1] + 2)
        affine, _ = jax.lax.scan(through, start, (self.jacobians, self.drifts, defects))
        return affine[:, :-2], affine[:, -2], affine[:, -1]

    def spread(self, defects: Float[Array, "period state"], change: Float[Array, " coordinates"]) -> Unknowns:
        """The change of every point, from `change`, that of the first point and of the parameter."""
        first, parameter = change[:-1], change[-1]

        def through(here, one):
            jacobian, drift, defect = one
            return jacobian @ here + drift * parameter + defect, here

        _, points = jax.lax.scan(through, first, (self.jacobians, self.drifts, defects))
        return Unknowns(points, parameter)


class Shooting(eqx.Module):
    """The equations x_{i+1} = step(x_i), cyclic, and direction . `Unknowns.first` = target.

    A direction along the parameter's axis fixes the parameter; the tangent of a branch of cycles, the arclength.
    """

    step: Step
    direction: Float[Array, " coordinates"]
    target: Float[Array, ""]

    def defects(self, at: Unknowns) -> tuple[Float[Array, "period state"], Float[Array, ""]]:
        """What the equations are off by: zero at the solution."""
        images = jax.vmap(self.step, in_axes=(0, None))(at.points, at.parameter)
        return images - jnp.roll(at.points, -1, axis=0), self.direction @ at.first - self.target

    def newton_change(self, at: Unknowns, defects: tuple[Array, Array]) -> Unknowns:
        """Newton's step: for changes of the first point and the parameter, then propagated to the other points."""
        of_cycle, of_direction = defects
        linearisation = Linearisation.about(self.step, at)
        monodromy, drift, defect = linearisation.condense(of_cycle)
        change = jnp.linalg.solve(self.border(monodromy, drift), -jnp.append(defect, of_direction))
        return linearisation.spread(of_cycle, change)

    def border(
        self, monodromy: Float[Array, "state state"], drift: Float[Array, " state"]
    ) -> Float[Array, "coordinates coordinates"]:
        """Jacobian of the condensed equations, bordered by `direction`: regular also at a fold of the branch."""
        of_cycle = jnp.column_stack([monodromy - jnp.eye(len(drift)), drift])
        return jnp.vstack([of_cycle, self.direction])


class _NewtonState(eqx.Module):
    proposal: Unknowns
    change: Unknowns
    length: Float[Array, ""]
    size: Float[Array, ""]


class ShootingNewton(optx.AbstractRootFinder):
    """Newton's method for a `Shooting`, passed as `args`; halves steps that do not reduce the defects.

    It stops where changes are rounding; whether the equations are solved there is for the caller to check.
    """

    rtol: float = 0.0
    atol: float = 0.0
    norm: Callable = optx.max_norm

    def init(self, fn, y, args, options, f_struct, aux_struct, tags):
        everywhere = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.inf), y)
        return _NewtonState(y, everywhere, jnp.array(1.0), jnp.array(jnp.inf))

    def step(self, fn, y, args, options, state, tags):
        defects = args.defects(state.proposal)
        size = optx.two_norm(defects)
        better = size < state.size
        here = jax.tree.map(lambda new, old: jnp.where(better, new, old), state.proposal, y)
        change = jax.lax.cond(better, lambda: args.newton_change(here, defects), lambda: state.change)
        length = jnp.where(better, 1.0, state.length / 2)
        size = jnp.where(better, size, state.size)
        return here, _NewtonState(here.move(change, length), change, length, size), None

    def terminate(self, fn, y, args, options, state, tags):
        moves = state.length * optx.max_norm(state.change)
        rounding = _ROUNDING * jnp.finfo(moves.dtype).eps * jnp.maximum(1.0, optx.max_norm(y))
        # not (>): a singular linearisation moves by NaN
        done = ~(moves > rounding) | (state.length < _SHORTEST)
        return done, optx.RESULTS.successful

    def postprocess(self, fn, y, aux, args, options, state, tags, result):
        return y, aux, {}


class BranchPoint(eqx.Module):
    """The end of a Newton correction: a point on a branch of cycles if `solved`.

    `multipliers` are by decreasing modulus; of a conjugate pair, that of the upper half plane is first. `tangent` is
    along the branch, of length one in the coordinates of `Unknowns.first`, and has a positive product with the
    `direction` of the correction.
    """

    at: Unknowns
    residual: Float[Array, ""]
    multipliers: Complex[np.ndarray, " state"]
    tangent: Unknowns

    @property
    def scale(self) -> float:
        """The unit of distances between states: the largest coordinate of a point, at least one."""
        return max(1.0, float(np.max(np.abs(self.at.points))))

    @property
    def solved(self) -> bool:
        """Whether the equations hold. The tangent may still be NaN, exactly where branches meet or this one turns."""
        return bool(np.all(np.isfinite(self.multipliers))) and float(self.residual) <= SOLVED * self.scale


def correct(
    step: Step, guess: Unknowns, direction: Float[Array, " coordinates"], target: Float[Array, ""]
) -> BranchPoint:
    """The cycle at `target` along `direction` that Newton's method finds from `guess`."""
    at, residual, monodromy, tangent = _correct(step, guess, direction, target)
    return BranchPoint(at, residual, multipliers_of(monodromy), tangent)


@jit
def _correct(step: Step, guess: Unknowns, direction: Array, target: Array) -> tuple[Unknowns, Array, Array, Unknowns]:
    """The cycle, its residual, the product of the Jacobians, and the tangent."""
    shooting = Shooting(step, direction, target)
    found = optx.root_find(
        lambda at, shooting: shooting.defects(at),
        ShootingNewton(),
        guess,
        shooting,
        max_steps=_MOST_EVALUATIONS,
        throw=False,
    ).value
    of_cycle, _ = shooting.defects(found)
    linearisation = Linearisation.about(step, found)
    monodromy, drift, _ = linearisation.condense(of_cycle)
    along = jnp.linalg.solve(shooting.border(monodromy, drift), jnp.zeros_like(direction).at[-1].set(1.0))
    tangent = linearisation.spread(jnp.zeros_like(of_cycle), along / jnp.linalg.norm(along))
    return found, jnp.max(jnp.abs(of_cycle)), monodromy, tangent


def multipliers_of(monodromy: Float[Array, "state state"]) -> Complex[np.ndarray, " state"]:
    """Eigenvalues in the order of `BranchPoint.multipliers`; NaN if an entry is not finite."""
    product = np.asarray(monodromy)
    if not np.all(np.isfinite(product)):
        return np.full(len(product), complex(np.nan))
    eigenvalues = np.linalg.eigvals(product).astype(complex)
    return eigenvalues[np.lexsort((-eigenvalues.imag, -np.abs(eigenvalues)))]


def at_parameter(step: Step, guess: Unknowns, sign: int = 1) -> BranchPoint:
    """The cycle at the parameter of `guess`; its tangent is towards larger parameters, smaller for a `sign` of -1."""
    axis = jnp.zeros(guess.points.shape[1] + 1).at[-1].set(float(sign))
    return correct(step, guess, axis, sign * guess.parameter)


def checked_step(step: Step, state: ArrayLike, parameter: ArrayLike, name: str) -> tuple[Array, Array]:
    """`state` (..., state), an argument called `name`, and `parameter` () as float64 arrays, checked to fit `step`."""
    require_float64()
    checked_function("step", step)
    states = jnp.asarray(checked_array(name, state))
    number = jnp.asarray(checked_number("parameter", parameter), dtype=jnp.float64)
    if states.ndim == 0 or 0 in states.shape:
        raise ValueError(f"{name} must be (state,), or such states, got shape {states.shape}")
    one = jax.ShapeDtypeStruct(states.shape[-1:], states.dtype)
    try:
        image = eqx.filter_eval_shape(step, one, number)
    except Exception as error:
        raise ValueError(
            f"step fails for {name} of shape {one.shape}: {type(error).__name__}: {first_line(error)}"
        ) from error
    found = getattr(image, "shape", None), getattr(image, "dtype", None)
    if found != (one.shape, one.dtype):
        raise ValueError(
            f"step must take {name} to a state of the same size and float64, but from shape {one.shape} it goes to "
            f"{found[1]}{found[0]}"
        )
    return states, number
