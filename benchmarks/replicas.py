"""Solve replica actions on grids with the certified solver and with damped iteration.

    python benchmarks/replicas.py [--only NAME ...] [--repeats 3]

Each action has 256 parameters, some close to a transition or at small ridge, and a
method solves them in one batch: ours compiled, the iteration in vectorised NumPy and
compiled by JAX. If the action has averages, the iteration also runs with 256 quadrature
nodes, and with kinks, with a rule that is split there. An answer counts as

- missed if it has not converged: the iteration, with damping 0.5, needs a step below
  1e-10 within 10,000 steps.
- silently wrong if it has converged, but its error exceeds 1e-6 of the true value and
  1e-9. The true value is a closed form, or a root of the same equations with a rule of
  4800 nodes or one that is split at kinks.

Times are medians over fresh processes without a cache; only the first call compiles.
Actions that are not run again keep their results in results/replicas.json.
"""

import os
import statistics
import warnings
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from problems import in_process, medians, run, timed
from scipy.optimize import brentq, root
from scipy.special import erfc, log_ndtr, roots_hermitenorm
from scipy.stats import norm
from sympy import Max, log, sqrt, symbols

from tests.saddle.textbook import CURIE_WEISS, GLASS, RIDGE
from theorykit.saddle import Action, Between, minimise, stationary
from theorykit.symbolic import gaussian_average, log_normal_cdf
from theorykit.theories import empirical_risk

DAMPING, SETTLED, MOST = 0.5, 1e-10, 10_000
RELATIVE, ABSOLUTE = 1e-6, 1e-9
# Quadrature nodes of the iteration, and per piece of a rule split at kinks
FEW, MANY, PER_PIECE = 64, 256, 8


class Rule(NamedTuple):
    """A rule for averages over a standard normal variable."""

    nodes: np.ndarray
    weights: np.ndarray


def gauss_hermite(nodes: int) -> Rule:
    places, weights = roots_hermitenorm(nodes)
    return Rule(places, weights / np.sqrt(2 * np.pi))


def in_pieces(edges: np.ndarray, nodes: int) -> Rule:
    """Return a rule with Gauss-Legendre nodes between edges (..., edges)."""
    points, weights = np.polynomial.legendre.leggauss(nodes)
    half, middle = np.diff(edges)[..., None] / 2, (edges[..., 1:] + edges[..., :-1])[..., None] / 2
    z = (middle + half * points).reshape(*edges.shape[:-1], -1)
    return Rule(z, (half * weights).reshape(z.shape) * norm.pdf(z))


FINE = in_pieces(np.linspace(-12, 12, 241), 20)


class Problem(NamedTuple):
    """An action and a grid of its parameters.

    - `iterate`: the fixed-point map from the literature, of order parameters and
      parameters by name, NumPy or jax.numpy, and a quadrature rule.
    - `truth`: the true value of `order_parameter` at one point of the grid.
    - `iterate_split`: `iterate` with a rule that is split at kinks, if there are any.
    """

    action: Action
    index: int
    start: dict[str, float]
    grid: dict[str, np.ndarray]
    iterate: Callable[[dict, dict, ModuleType, Rule], dict]
    order_parameter: str
    truth: Callable[..., float]
    iterate_split: Callable[[dict, dict, ModuleType, Rule], dict] | None = None


def grid_of(**axes: np.ndarray) -> dict[str, np.ndarray]:
    values = np.meshgrid(*axes.values())
    return {name: each.ravel() for name, each in zip(axes, values, strict=True)}


def with_critical(low: float, high: float) -> np.ndarray:
    """Return 16 values, of which four are next to a transition at one, where the iteration converges slowly."""
    return np.concatenate([np.linspace(low, high, 12), 1 + np.array([-1e-2, -1e-3, 1e-3, 1e-2])])


def with_zero(low: float, high: float) -> np.ndarray:
    return np.append(0.0, np.geomspace(low, high, 15))


def fixed_point(iterate: Callable, name: str, critical: float, **point: float) -> float:
    """Return the only positive root, or zero without a field up to a critical beta."""
    if point.get("h") == 0 and point["beta"] <= critical:
        return 0.0
    of = {key: np.array([value]) for key, value in point.items()}

    def change(at: float) -> float:
        return at - iterate({name: np.array([at])}, of, np, FINE)[name].item()

    return brentq(change, 1e-14, 1 - 1e-9, xtol=1e-16, rtol=1e-13)


def curie_weiss() -> Problem:
    def iterate(at, of, xp, rule):
        return {"m": xp.tanh(of["beta"] * (at["m"] + of["h"]))}

    grid = grid_of(beta=with_critical(0.5, 1.5), h=with_zero(1e-6, 0.5))
    truth = partial(fixed_point, iterate, "m", 1.0)
    return Problem(CURIE_WEISS, 0, {"m": 1.0}, grid, iterate, "m", truth)


def sherrington_kirkpatrick() -> Problem:
    def iterate(at, of, xp, rule):
        field = xp.sqrt(at["q"])[:, None] * rule.nodes + of["h"][:, None]
        return {"q": xp.tanh(of["beta"][:, None] * field) ** 2 @ rule.weights}

    grid = grid_of(beta=with_critical(0.4, 2.0), h=with_zero(1e-4, 0.5))
    truth = partial(fixed_point, iterate, "q", 1.0)
    return Problem(GLASS, 1, {"q": 0.5}, grid, iterate, "q", truth)


def spherical_spins() -> Problem:
    """Return the replica-symmetric spherical 3-spin model in a field."""
    beta, h, q = symbols("beta h q", positive=True)
    expression = beta**2 * (1 - q**3) / 4 + beta**2 * h**2 * (1 - q) / 2 + (log(1 - q) + q / (1 - q)) / 2

    def iterate(at, of, xp, rule):
        q, beta = at["q"], of["beta"]
        return {"q": (1 - q) ** 2 * (1.5 * beta**2 * q**2 + (beta * of["h"]) ** 2)}

    action = Action(expression, {q: Between(0, 1)}, [beta, h])
    grid = grid_of(beta=np.linspace(0.3, 1.5, 16), h=with_zero(1e-3, 0.4))
    truth = partial(fixed_point, iterate, "q", 1.5)
    return Problem(action, 0, {"q": 0.01}, grid, iterate, "q", truth)


def ridge_regression() -> Problem:
    def iterate(at, of, xp, rule):
        hat = of["alpha"] / (1 + at["V"])
        misfit = 1 - 2 * at["m"] + at["q"] + of["sigma2"]
        inverse = 1 / (of["lambda_"] + at["V_hat"])
        return {
            "m": at["m_hat"] * inverse,
            "q": (at["m_hat"] ** 2 + at["q_hat"]) * inverse**2,
            "V": inverse,
            "m_hat": hat,
            "q_hat": hat * misfit / (1 + at["V"]),
            "V_hat": hat,
        }

    def truth(alpha: float, lambda_: float, sigma2: float) -> float:
        """Return the variance V: the resolvent of the Marchenko-Pastur law, without cancellation."""
        b = lambda_ + alpha - 1
        root = np.sqrt(b**2 + 4 * lambda_)
        return 2 / (b + root) if b > 0 else (root - b) / (2 * lambda_)

    start = {"m": 0.5, "m_hat": 0.5, "q": 1.0, "q_hat": 1.0, "V": 1.0, "V_hat": 1.0}
    grid = grid_of(alpha=with_critical(0.3, 3.0), lambda_=np.geomspace(1e-7, 1.0, 16))
    grid["sigma2"] = np.full(256, 0.25)
    return Problem(RIDGE, 3, start, grid, iterate, "V", truth)


def perceptron() -> Problem:
    """Return Gardner's perceptron with a margin; its order parameter is the overlap of two solutions."""
    q, alpha = symbols("q alpha", positive=True)
    kappa, z = symbols("kappa z", real=True)
    average = gaussian_average(log_normal_cdf(-(kappa + sqrt(q) * z) / sqrt(1 - q)), z)
    action = Action(alpha * average + log(1 - q) / 2 + q / (2 * (1 - q)), {q: Between(0, 1)}, [alpha, kappa])

    def iterate(at, of, xp, rule):
        root, rest = xp.sqrt(at["q"])[:, None], xp.sqrt(1 - at["q"])[:, None]
        x = (of["kappa"][:, None] + root * rule.nodes) / rest
        log_probability = log_ndtr if xp is np else jax.scipy.special.log_ndtr
        hazard = xp.exp(-(x**2) / 2 - log_probability(-x)) / np.sqrt(2 * np.pi)
        return {"q": of["alpha"] * (1 - at["q"]) * (hazard**2 @ rule.weights)}

    grid = grid_of(kappa=np.linspace(0, 1, 16), alpha=np.linspace(0.05, 0.97, 16))
    k = grid["kappa"]  # loads are shares of the capacity
    grid["alpha"] /= (1 + k**2) * norm.cdf(k) + k * norm.pdf(k)
    truth = partial(fixed_point, iterate, "q", 0.0)
    return Problem(action, 0, {"q": 0.5}, grid, iterate, "q", truth)


def hinge_regression() -> Problem:
    """Return a support vector machine with a linear teacher, without its conjugates, which are eliminated."""
    x, y = symbols("x y", real=True)

    def iterate(at: dict, of: dict, xp: ModuleType, rule: Rule) -> dict:
        """Compute m_hat, q_hat and V_hat, Eq. (9) of Aubin et al. (2020), then the order parameters."""
        m, s, V = (each[..., None] for each in (at["m"], at["s"], at["V"]))
        z = rule.nodes
        field = xp.sqrt(m**2 + s) * z
        force = xp.clip((1 - field) / V, 0.0, 1.0)
        # Twice the probability of the label given the student's field, and the derivative in the teacher's mean.
        erfc_ = erfc if xp is np else jax.scipy.special.erfc
        odds = erfc_(-m * z / xp.sqrt(2 * s))
        density = xp.exp(-(m**2) * z**2 / (2 * s)) * xp.sqrt(2 * (m**2 + s) / (np.pi * s))
        # The mean slope of the force by parts, because the slope jumps.
        rises = (density * m / xp.sqrt(m**2 + s) - z * odds) * force / xp.sqrt(m**2 + s)
        means = (xp.sum(rule.weights * each, axis=-1) for each in (density * force, odds * force**2, rises))
        m_hat, q_hat, V_hat = (of["alpha"] * each for each in means)
        V = 1 / (of["lambda_"] + V_hat)
        return {"m": m_hat * V, "s": q_hat * V**2, "V": V}

    def split(at: dict, of: dict, nodes: int, end: float) -> dict:
        """Make a step with Gauss-Legendre nodes in pieces between the kinks and the steep part of `odds`."""
        width, steep = np.sqrt(at["m"] ** 2 + at["s"]), np.sqrt(at["s"]) / at["m"]
        places = [-end, -2.0, 2.0, end, (1 - at["V"]) / width, 1 / width, *(steep * k for k in (-6, -2, 2, 6))]
        edges = np.sort(np.clip(np.stack(np.broadcast_arrays(*places), axis=-1), -end, end), axis=-1)
        return iterate(at, of, np, in_pieces(edges, nodes))

    def truth(alpha: float, lambda_: float, sigma2: float) -> float:
        """Return the variance V: iterate, then solve, with a rule that is exact between the kinks."""

        def ahead(point: np.ndarray) -> np.ndarray:
            at = dict(zip(("m", "s", "V"), np.exp(point), strict=True))
            return np.log(list(split(at, {"alpha": alpha, "lambda_": lambda_}, 100, 12.0).values()))

        point = np.zeros(3)
        for _ in range(300):
            point = (point + ahead(point)) / 2
        return float(np.exp(root(lambda at: at - ahead(at), point, tol=1e-13).x[2]))

    start = {"m": 0.5, "s": 0.5, "V": 1.0}
    grid = grid_of(alpha=np.linspace(0.5, 6, 16), lambda_=np.geomspace(1e-3, 1, 16))
    grid["sigma2"] = np.zeros(256)
    action = empirical_risk.action(Max(0, 1 - x * y), x, y)
    # Beyond six standard deviations the density is below the tolerance.
    pieces = lambda at, of, *_: split(at, of, PER_PIECE, 6.0)  # noqa: E731
    return Problem(action, 1, start, grid, iterate, "V", truth, pieces)


PROBLEMS = {
    "Curie-Weiss": curie_weiss,
    "SK": sherrington_kirkpatrick,
    "spherical 3-spin": spherical_spins,
    "ridge regression": ridge_regression,
    "perceptron": perceptron,
    "hinge regression": hinge_regression,
}


def damped(problem: Problem, at: dict, grid: dict, xp: ModuleType, rule: Rule) -> tuple:
    """Take one damped step; return the order parameters, and the largest changes."""
    ahead = problem.iterate(at, grid, xp, rule)
    moved = {name: (1 - DAMPING) * at[name] + DAMPING * ahead[name] for name in at}
    return moved, xp.max(xp.array([xp.abs(moved[name] - at[name]) for name in at]), axis=0)


def by_numpy(problem: Problem, nodes: int = FEW) -> tuple[np.ndarray, np.ndarray]:
    """Return the order parameter over the grid, and where it has converged."""
    rule, size = gauss_hermite(nodes), len(next(iter(problem.grid.values())))
    at = {name: np.full(size, value) for name, value in problem.start.items()}
    with np.errstate(all="ignore"):
        for _ in range(MOST):
            at, change = damped(problem, at, problem.grid, np, rule)
            if not np.any(change > SETTLED):
                break
    return at[problem.order_parameter], change <= SETTLED


def by_jax(problem: Problem) -> Callable:
    """Return `by_numpy`, compiled by JAX."""
    rule = gauss_hermite(FEW)

    @jax.jit
    def solve(grid):
        def goes_on(state):
            return jnp.any(state[1] > SETTLED) & (state[2] < MOST)

        def step(state):
            return *damped(problem, state[0], grid, jnp, rule), state[2] + 1

        size = len(next(iter(grid.values())))
        at = {name: jnp.full(size, value) for name, value in problem.start.items()}
        start = at, jnp.full(size, jnp.inf), 0
        at, change, _ = jax.lax.while_loop(goes_on, step, start)
        return at[problem.order_parameter], change <= SETTLED

    return partial(solve, problem.grid)


def certified(problem: Problem) -> Callable:
    """Return a solver of the grid by theorykit, compiled once."""
    method = partial(stationary, index=problem.index) if problem.index else minimise

    @jax.jit
    @jax.vmap
    def solve(values):
        found = method(problem.action, values, initial=problem.start)
        return found[problem.order_parameter], found.converged

    return partial(solve, problem.grid)


def measure(name: str) -> dict:
    """Return values, where they converged, and seconds of both calls, by method."""
    os.environ["THEORYKIT_CACHE"] = "off"
    warnings.simplefilter("ignore")
    problem, found = PROBLEMS[name](), {}
    jnp.zeros(3).block_until_ready()  # starts threads
    methods = {
        "certified": certified(problem),
        "NumPy": partial(by_numpy, problem),
        "JAX": by_jax(problem),
    }
    if problem.action.nodes:
        methods[f"NumPy, {MANY} nodes"] = partial(by_numpy, problem, MANY)
    if problem.iterate_split:
        split = problem._replace(iterate=problem.iterate_split)
        methods["NumPy, split at kinks"] = partial(by_numpy, split)
    for who, work in methods.items():
        runs = [timed(work) for _ in range(4)]
        (values, converged), first = runs[0]
        again = [statistics.median(column) for column in zip(*(times for _, times in runs[1:]), strict=True)]
        found[who] = np.asarray(values), np.asarray(converged), {"first": first, "again": again}
    return found


def row(options, name: str) -> dict:
    problem = PROBLEMS[name]()
    truth = np.vectorize(problem.truth)(**problem.grid)
    runs = [in_process(measure, name) for _ in range(options.repeats)]
    result = {"points": len(truth)}
    for who, (values, converged, _) in runs[0].items():
        off = np.abs(values - truth)
        wrong = converged & ~((off <= RELATIVE * np.abs(truth)) | (off <= ABSOLUTE))
        result[who] = {
            "missed": int(np.sum(~converged)),
            "silently wrong": int(np.sum(wrong)),
            "largest error": float(np.max(off[converged])),
            **medians([run[who][2] for run in runs]),
        }
    return result


if __name__ == "__main__":
    cases = {name: partial(row, name=name) for name in PROBLEMS}
    run(__doc__, "replicas", cases, repeats={"type": int, "default": 3})
