"""Solve replica actions on grids with the certified solver and with damped iteration.

    python benchmarks/replicas.py [--only NAME ...] [--repeats 3]

Each action has 256 parameters, some close to a transition or at small ridge, and a
method solves them in one batch: ours compiled, the iteration in vectorised NumPy and
compiled by JAX. If the action has averages, the iteration also runs with 256 quadrature
nodes, and with kinks, with a rule that is split there. An answer counts as

- missed if it has not converged: the iteration, with damping 0.5, needs a step below
  1e-10 within 10,000 steps.
- silently wrong if it has converged, but its error exceeds 1e-6 of the true value and
  1e-9. The true value is a closed form, or a root by Brent's method with adaptive
  quadrature, of lowest free energy.

Times are medians over fresh processes without a cache; only the first call compiles.
Actions that are not run again keep their results in results/replicas.json.
"""

import os
import statistics
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from types import ModuleType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from problems import medians, parser_of, record
from scipy.integrate import quad
from scipy.optimize import brentq, root
from scipy.special import erfc, log_ndtr, roots_hermitenorm
from sympy import Max, log, sqrt, symbols

import theorykit
from theorykit.saddle import Action, Between, Positive, Real, minimise, stationary
from theorykit.symbolic import gaussian_average, log_cosh, log_normal_cdf
from theorykit.theories import empirical_risk

DAMPING, SETTLED, MOST = 0.5, 1e-10, 10_000
RELATIVE, ABSOLUTE = 1e-6, 1e-9
# Quadrature nodes of the iteration, and per piece of a rule split at kinks
FEW, MANY, PER_PIECE = 64, 256, 8


class Rule:
    """A rule for averages over a standard normal variable."""

    def __init__(self, nodes: int):
        self.nodes, weights = roots_hermitenorm(nodes)
        self.weights = weights / np.sqrt(2 * np.pi)

    def mean(self, values: np.ndarray) -> np.ndarray:
        return values @ self.weights


m, m_hat, h, kappa, z = symbols("m m_hat h kappa z", real=True)
q, q_hat, V, V_hat = symbols("q q_hat V V_hat", positive=True)
alpha, beta, ridge, noise = symbols("alpha beta lambda_ sigma2", positive=True)


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


def _grid(**axes: np.ndarray) -> dict[str, np.ndarray]:
    return {name: values.ravel() for name, values in zip(axes, np.meshgrid(*axes.values()), strict=True)}


def _with_critical(low: float, high: float) -> np.ndarray:
    """Return 16 values, of which four are next to a transition at one, where the iteration converges slowly."""
    return np.concatenate([np.linspace(low, high, 12), 1 + np.array([-1e-2, -1e-3, 1e-3, 1e-2])])


def _average(function: Callable[[float], float], scale: float) -> float:
    """Return E[function(z)], for functions that change within `scale` of zero."""
    points = sorted({0.0, *(sign * min(scale * 2.0**k, 9.0) for sign in (-1, 1) for k in range(6))})
    density = lambda x: np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)  # noqa: E731
    pieces = zip([-12.0, *points], [*points, 12.0], strict=True)
    return sum(
        quad(lambda x: density(x) * function(x), a, b, epsabs=1e-15, epsrel=1e-13, limit=200)[0] for a, b in pieces
    )


def curie_weiss() -> Problem:
    action = Action(m**2 / 2 - log_cosh(beta * (m + h)) / beta, {m: Real()}, [beta, h])

    def truth(beta: float, h: float) -> float:
        if h == 0 and beta <= 1:
            return 0.0
        return brentq(lambda at: at - np.tanh(beta * (at + h)), 1e-12, 1.0, xtol=1e-15, rtol=1e-14)

    return Problem(
        action,
        0,
        {"m": 1.0},
        _grid(beta=_with_critical(0.5, 1.5), h=np.concatenate([[0.0], np.geomspace(1e-6, 0.5, 15)])),
        lambda at, of, xp, _: {"m": xp.tanh(of["beta"] * (at["m"] + of["h"]))},
        "m",
        truth,
    )


def sherrington_kirkpatrick() -> Problem:
    average = gaussian_average(log_cosh(beta * (sqrt(q) * z + h)), z)
    action = Action(-(beta**2) * (1 - q) ** 2 / 4 - average, {q: Between(0, 1)}, [beta, h])

    def overlap(at: float, beta: float, h: float) -> float:
        return _average(lambda x: np.tanh(beta * (np.sqrt(at) * x + h)) ** 2, 1 / (beta * np.sqrt(at)))

    def truth(beta: float, h: float) -> float:
        if h == 0 and beta <= 1:
            return 0.0
        low = 1e-12 if h == 0 else min(0.1 * (beta * h) ** 2, 0.5)
        return brentq(lambda at: at - overlap(at, beta, h), low, 1.0, xtol=1e-14, rtol=1e-12)

    return Problem(
        action,
        1,
        {"q": 0.5},
        _grid(beta=_with_critical(0.4, 2.0), h=np.concatenate([[0.0], np.geomspace(1e-4, 0.5, 15)])),
        lambda at, of, xp, rule: {
            "q": rule.mean(
                xp.tanh(of["beta"][:, None] * (xp.sqrt(at["q"])[:, None] * rule.nodes + of["h"][:, None])) ** 2
            )
        },
        "q",
        truth,
    )


def spherical_spins() -> Problem:
    """Return the replica-symmetric spherical 3-spin model in a field."""
    expression = beta**2 * (1 - q**3) / 4 + beta**2 * h**2 * (1 - q) / 2 + (log(1 - q) + q / (1 - q)) / 2

    def truth(beta: float, h: float) -> float:
        def equation(at: float) -> float:
            return at / (1 - at) ** 2 - 1.5 * beta**2 * at**2 - beta**2 * h**2

        if h == 0:
            return 0.0
        # Take the branch that continues from high temperature.
        high = min(1.0, 2 * (beta * h) ** 2 + 1e-12)
        while equation(high) < 0:
            high = (1 + high) / 2
        return brentq(equation, 0.0, high, xtol=1e-16, rtol=1e-13)

    return Problem(
        Action(expression, {q: Between(0, 1)}, [beta, h]),
        0,
        {"q": 0.01},
        _grid(beta=np.linspace(0.3, 1.5, 16), h=np.concatenate([[0.0], np.geomspace(1e-3, 0.4, 15)])),
        lambda at, of, *_: {
            "q": (1 - at["q"]) ** 2 * (1.5 * of["beta"] ** 2 * at["q"] ** 2 + (of["beta"] * of["h"]) ** 2)
        },
        "q",
        truth,
    )


def ridge_regression() -> Problem:
    overlaps = m * m_hat - (q * V_hat - V * q_hat) / 2
    of_prior = (m_hat**2 + q_hat) / (2 * (ridge + V_hat))
    of_examples = alpha * (1 - 2 * m + q + noise) / (2 * (1 + V))
    domains = {m: Real(), m_hat: Real(), **{symbol: Positive() for symbol in (q, q_hat, V, V_hat)}}

    def iterate(at: dict, of: dict, *_: ModuleType | Rule) -> dict:
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

    grid = _grid(alpha=_with_critical(0.3, 3.0), lambda_=np.geomspace(1e-7, 1.0, 16))
    return Problem(
        Action(overlaps - of_prior + of_examples, domains, [alpha, ridge, noise]),
        3,
        {"m": 0.5, "m_hat": 0.5, "q": 1.0, "q_hat": 1.0, "V": 1.0, "V_hat": 1.0},
        {**grid, "sigma2": np.full(256, 0.25)},
        iterate,
        "V",
        truth,
    )


def perceptron() -> Problem:
    """Return Gardner's perceptron with a margin; its order parameter is the overlap of two solutions."""
    average = gaussian_average(log_normal_cdf(-(kappa + sqrt(q) * z) / sqrt(1 - q)), z)
    action = Action(alpha * average + log(1 - q) / 2 + q / (2 * (1 - q)), {q: Between(0, 1)}, [alpha, kappa])

    def hazard(x: np.ndarray, xp: ModuleType = np) -> np.ndarray:
        """Return the hazard rate of a standard normal variable: its density at x over its probability above x."""
        log_probability = log_ndtr if xp is np else jax.scipy.special.log_ndtr
        return xp.exp(-(x**2) / 2 - log_probability(-x)) / np.sqrt(2 * np.pi)

    def truth(alpha: float, kappa: float) -> float:
        def equation(at: float) -> float:
            square = lambda x: hazard((kappa + np.sqrt(at) * x) / np.sqrt(1 - at)) ** 2  # noqa: E731
            return at - alpha * (1 - at) * _average(square, np.sqrt((1 - at) / at))

        return brentq(equation, 1e-9, 1 - 1e-9, xtol=1e-14, rtol=1e-12)

    def iterate(at: dict, of: dict, xp: ModuleType, rule: Rule) -> dict:
        root, rest = xp.sqrt(at["q"])[:, None], xp.sqrt(1 - at["q"])[:, None]
        rate = hazard((of["kappa"][:, None] + root * rule.nodes) / rest, xp)
        return {"q": of["alpha"] * (1 - at["q"]) * rule.mean(rate**2)}

    capacity = lambda k: 1 / quad(lambda x: np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi) * (x + k) ** 2, -k, 12)[0]  # noqa: E731
    margins, loads = np.meshgrid(np.linspace(0, 1, 16), np.linspace(0.05, 0.97, 16))
    loads = loads * np.vectorize(capacity)(margins)
    grid = {"alpha": loads.ravel(), "kappa": margins.ravel()}
    return Problem(action, 0, {"q": 0.5}, grid, iterate, "q", truth)


_gauss_legendre = cache(np.polynomial.legendre.leggauss)


def hinge_regression() -> Problem:
    """Return a support vector machine with a linear teacher, without its conjugates, which are eliminated."""
    x, y = symbols("x y", real=True)

    def conjugates(at: dict, of: dict, z: np.ndarray, weights: np.ndarray, xp: ModuleType) -> tuple:
        """Return m_hat, q_hat and V_hat at the nodes z of a quadrature rule, Eq. (9) of Aubin et al. (2020)."""
        m, s, V = (each[..., None] for each in (at["m"], at["s"], at["V"]))
        field = xp.sqrt(m**2 + s) * z
        force = xp.clip((1 - field) / V, 0.0, 1.0)
        # Twice the probability of the label given the student's field, and the derivative in the teacher's mean.
        erfc_ = erfc if xp is np else jax.scipy.special.erfc
        odds = erfc_(-m * z / xp.sqrt(2 * s))
        density = xp.exp(-(m**2) * z**2 / (2 * s)) * xp.sqrt(2 * (m**2 + s) / (np.pi * s))
        mean = lambda values: xp.sum(weights * values, axis=-1)  # noqa: E731
        # The mean slope of the force by parts, because the slope jumps.
        rises = (density * m / xp.sqrt(m**2 + s) - z * odds) * force / xp.sqrt(m**2 + s)
        return tuple(of["alpha"] * mean(each) for each in (density * force, odds * force**2, rises))

    def step(at: dict, of: dict, hats: tuple) -> dict:
        V = 1 / (of["lambda_"] + hats[2])
        return {"m": hats[0] * V, "s": hats[1] * V**2, "V": V}

    def split(at: dict, of: dict, nodes: int, end: float) -> dict:
        """Make a step with Gauss-Legendre nodes in pieces between the kinks and the steep part of `odds`."""
        points, weights = _gauss_legendre(nodes)
        width, steep = np.sqrt(at["m"] ** 2 + at["s"]), np.sqrt(at["s"]) / at["m"]
        places = [-end, -2.0, 2.0, end, (1 - at["V"]) / width, 1 / width, *(steep * k for k in (-6, -2, 2, 6))]
        edges = np.sort(np.clip(np.stack(np.broadcast_arrays(*places), axis=-1), -end, end), axis=-1)
        half, middle = np.diff(edges)[..., None] / 2, (edges[..., 1:] + edges[..., :-1])[..., None] / 2
        z = (middle + half * points).reshape(*edges.shape[:-1], -1)
        density = (half * weights).reshape(z.shape) * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
        return step(at, of, conjugates(at, of, z, density, np))

    def truth(alpha: float, lambda_: float, sigma2: float) -> float:
        """Return the variance V: iterate, then solve, with a rule that is exact between the kinks."""

        def ahead(point: np.ndarray) -> np.ndarray:
            at = dict(zip(("m", "s", "V"), np.exp(point), strict=True))
            return np.log(list(split(at, {"alpha": alpha, "lambda_": lambda_}, 100, 12.0).values()))

        point = np.zeros(3)
        for _ in range(300):
            point = (point + ahead(point)) / 2
        return float(np.exp(root(lambda at: at - ahead(at), point, tol=1e-13).x[2]))

    grid = _grid(alpha=np.linspace(0.5, 6, 16), lambda_=np.geomspace(1e-3, 1, 16))
    return Problem(
        empirical_risk.action(Max(0, 1 - x * y), x, y),
        1,
        {"m": 0.5, "s": 0.5, "V": 1.0},
        {**grid, "sigma2": np.zeros(256)},
        lambda at, of, xp, rule: step(at, of, conjugates(at, of, rule.nodes, rule.weights, xp)),
        "V",
        truth,
        # Beyond six standard deviations the density is below the tolerance.
        lambda at, of, *_: split(at, of, PER_PIECE, 6.0),
    )


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
    rule, size = Rule(nodes), len(next(iter(problem.grid.values())))
    at = {name: np.full(size, value) for name, value in problem.start.items()}
    with np.errstate(all="ignore"):
        for _ in range(MOST):
            at, change = damped(problem, at, problem.grid, np, rule)
            if not np.any(change > SETTLED):
                break
    return at[problem.order_parameter], change <= SETTLED


def by_jax(problem: Problem) -> Callable:
    """Return `by_numpy`, compiled by JAX."""
    rule = Rule(FEW)

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

    return lambda: tuple(map(np.asarray, solve(problem.grid)))


def certified(problem: Problem) -> Callable:
    """Return a solver of the grid by theorykit, compiled once."""
    method = partial(stationary, index=problem.index) if problem.index else minimise

    @jax.jit
    @jax.vmap
    def solve(values):
        found = method(problem.action, values, initial=problem.start)
        return found[problem.order_parameter], found.converged

    return lambda: tuple(map(np.asarray, solve(problem.grid)))


def measure(name: str) -> dict:
    """Return values, where they converged, and seconds of both calls, by method."""
    theorykit.enable_float64()
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
        times = []
        for _ in range(4):
            begun, busy = time.perf_counter(), time.process_time()
            values, converged = work()
            times.append((time.perf_counter() - begun, time.process_time() - busy))
        again = [statistics.median(column) for column in zip(*times[1:], strict=True)]
        calls = {"first": times[0], "again": again}
        found[who] = {"values": values, "converged": converged, "calls": calls}
    return found


def row(name: str, repeats: int) -> dict:
    problem, runs = PROBLEMS[name](), []
    columns = zip(*problem.grid.values(), strict=True)
    points = [dict(zip(problem.grid, values, strict=True)) for values in columns]
    truth = np.array([problem.truth(**point) for point in points])
    for _ in range(repeats):
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            runs.append(process.submit(measure, name).result())
    result = {"points": len(points)}
    for who, of in runs[0].items():
        off, converged = np.abs(of["values"] - truth), of["converged"]
        wrong = converged & ~((off <= RELATIVE * np.abs(truth)) | (off <= ABSOLUTE))
        result[who] = {
            "missed": int(np.sum(~converged)),
            "silently wrong": int(np.sum(wrong)),
            "largest error": float(np.max(off[converged])),
            **medians([run[who]["calls"] for run in runs]),
        }
    return result


def main() -> None:
    parser = parser_of(__doc__, "replicas", PROBLEMS)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    theorykit.enable_float64()
    for name in options.only:
        found = row(name, options.repeats)
        for who, each in found.items():
            print(name, who, each, flush=True)
        record(options.json, name, found)


if __name__ == "__main__":
    main()
