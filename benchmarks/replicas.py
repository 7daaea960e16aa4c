"""Solve replica actions over grids of parameters with the certified solver and with a damped fixed-point iteration.

    python benchmarks/replicas.py [--output FOLDER] [--only NAME ...]

Each action is solved at 256 parameters, some near criticality or at small ridge. Both methods solve the grid in one
batch, compiled or vectorised. Times are the median of three calls of the certified solver after compilation and a
single second call of the iteration; the first call is recorded too. An answer counts as

- missed if it has not converged. The iteration, with damping 0.5, has converged if a step is below 1e-10 within 10,000
  steps.
- silently wrong if it has converged, but its error exceeds both 1e-6 of the true value and 1e-9.

The true value is a closed form, or a root of the saddle-point equation by Brent's method with adaptive quadrature.
Writes replicas.json into FOLDER (benchmarks/results by default).
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import log_ndtr
from sympy import log, sqrt, symbols

import theorykit
from theorykit.saddle import Action, Between, Positive, Real, minimise, stationary
from theorykit.symbolic import gaussian_average, log_cosh, log_normal_cdf

DAMPING, SETTLED, MOST = 0.5, 1e-10, 10_000
RELATIVE, ABSOLUTE = 1e-6, 1e-9
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(64)
WEIGHTS = WEIGHTS / np.sqrt(2 * np.pi)

m, m_hat, h, kappa, z = symbols("m m_hat h kappa z", real=True)
q, q_hat, V, V_hat = symbols("q q_hat V V_hat", positive=True)
alpha, beta, ridge, noise = symbols("alpha beta lambda_ sigma2", positive=True)


class Problem(NamedTuple):
    """An action and a grid of its parameters.

    `iterate` is the fixed-point map from the literature. It takes arrays by name: order parameters, then parameters.
    `truth` returns the true value of `order_parameter` at one point of the grid.
    """

    action: Action
    index: int
    start: dict[str, float]
    grid: dict[str, np.ndarray]
    iterate: Callable[[dict, dict], dict]
    order_parameter: str
    truth: Callable[..., float]


def _grid(**axes: np.ndarray) -> dict[str, np.ndarray]:
    return {name: values.ravel() for name, values in zip(axes, np.meshgrid(*axes.values()), strict=True)}


def _mean(values: np.ndarray) -> np.ndarray:
    return values @ WEIGHTS


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
        _grid(beta=np.linspace(0.5, 1.5, 16), h=np.concatenate([[0.0], np.geomspace(1e-6, 0.5, 15)])),
        lambda at, of: {"m": np.tanh(of["beta"] * (at["m"] + of["h"]))},
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
        _grid(beta=np.linspace(0.4, 2.0, 16), h=np.concatenate([[0.0], np.geomspace(1e-4, 0.5, 15)])),
        lambda at, of: {
            "q": _mean(np.tanh(of["beta"][:, None] * (np.sqrt(at["q"])[:, None] * NODES + of["h"][:, None])) ** 2)
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
        lambda at, of: {"q": (1 - at["q"]) ** 2 * (1.5 * of["beta"] ** 2 * at["q"] ** 2 + (of["beta"] * of["h"]) ** 2)},
        "q",
        truth,
    )


def ridge_regression() -> Problem:
    overlaps = m * m_hat - (q * V_hat - V * q_hat) / 2
    of_prior = (m_hat**2 + q_hat) / (2 * (ridge + V_hat))
    of_examples = alpha * (1 - 2 * m + q + noise) / (2 * (1 + V))
    domains = {m: Real(), m_hat: Real(), **{symbol: Positive() for symbol in (q, q_hat, V, V_hat)}}

    def iterate(at: dict, of: dict) -> dict:
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

    grid = _grid(alpha=np.linspace(0.3, 3.0, 16), lambda_=np.geomspace(1e-7, 1.0, 16))
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

    def hazard(x: np.ndarray) -> np.ndarray:
        """Return the hazard rate of a standard normal variable: its density at x over its probability above x."""
        return np.exp(-(x**2) / 2 - log_ndtr(-x)) / np.sqrt(2 * np.pi)

    def truth(alpha: float, kappa: float) -> float:
        def equation(at: float) -> float:
            square = lambda x: hazard((kappa + np.sqrt(at) * x) / np.sqrt(1 - at)) ** 2  # noqa: E731
            return at - alpha * (1 - at) * _average(square, np.sqrt((1 - at) / at))

        return brentq(equation, 1e-9, 1 - 1e-9, xtol=1e-14, rtol=1e-12)

    def iterate(at: dict, of: dict) -> dict:
        root, rest = np.sqrt(at["q"])[:, None], np.sqrt(1 - at["q"])[:, None]
        return {"q": of["alpha"] * (1 - at["q"]) * _mean(hazard((of["kappa"][:, None] + root * NODES) / rest) ** 2)}

    capacity = lambda k: 1 / quad(lambda x: np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi) * (x + k) ** 2, -k, 12)[0]  # noqa: E731
    margins, loads = np.meshgrid(np.linspace(0, 1, 16), np.linspace(0.05, 0.97, 16))
    loads = loads * np.vectorize(capacity)(margins)
    grid = {"alpha": loads.ravel(), "kappa": margins.ravel()}
    return Problem(action, 0, {"q": 0.5}, grid, iterate, "q", truth)


PROBLEMS = {
    "Curie-Weiss": curie_weiss,
    "SK": sherrington_kirkpatrick,
    "spherical 3-spin": spherical_spins,
    "ridge regression": ridge_regression,
    "perceptron": perceptron,
}


def fixed_point(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Iterate with damping; return the order parameter over the grid, and where it has converged."""
    size = len(next(iter(problem.grid.values())))
    at = {name: np.full(size, value) for name, value in problem.start.items()}
    change = np.inf
    with np.errstate(all="ignore"):
        for _ in range(MOST):
            ahead = problem.iterate(at, problem.grid)
            moved = {name: (1 - DAMPING) * at[name] + DAMPING * ahead[name] for name in at}
            change = np.max([np.abs(moved[name] - at[name]) for name in at], axis=0)
            at = moved
            if not np.any(change > SETTLED):
                break
    return at[problem.order_parameter], change <= SETTLED


def certified(problem: Problem) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    """Return a solver of the grid by theorykit, compiled once; it returns what `fixed_point` does."""

    @jax.jit
    def solve(grid):
        def one(values):
            call = {"initial": problem.start}
            found = (
                stationary(problem.action, values, index=problem.index, **call)
                if problem.index
                else minimise(problem.action, values, **call)
            )
            return found[problem.order_parameter], found.converged

        return jax.vmap(one)(grid)

    return lambda: tuple(map(np.asarray, jax.block_until_ready(solve(problem.grid))))


def timed(work: Callable, repeats: int) -> tuple[tuple[np.ndarray, np.ndarray], float, float]:
    """Return the result of `work`, the seconds of the first call, and the median seconds of the later calls."""
    begun = time.perf_counter()
    found = work()
    first, times = time.perf_counter() - begun, []
    for _ in range(repeats):
        begun = time.perf_counter()
        found = work()
        times.append(time.perf_counter() - begun)
    return found, first, float(np.median(times)) if times else first


def row(name: str) -> dict:
    problem = PROBLEMS[name]()
    points = [dict(zip(problem.grid, values, strict=True)) for values in zip(*problem.grid.values(), strict=True)]
    truth = np.array([problem.truth(**point) for point in points])
    result = {"points": len(points)}
    for who, work, repeats in (("certified", certified(problem), 3), ("fixed point", lambda: fixed_point(problem), 1)):
        (values, converged), first, seconds = timed(work, repeats)
        off = np.abs(values - truth)
        wrong = converged & ~((off <= RELATIVE * np.abs(truth)) | (off <= ABSOLUTE))
        result[who] = {
            "missed": int(np.sum(~converged)),
            "silently wrong": int(np.sum(wrong)),
            "largest error": float(np.max(off[converged])),
            "first": first,
            "seconds": seconds,
        }
        for at in np.flatnonzero(~converged if who == "certified" else [])[:5]:
            print("  missed", points[at], "truth", truth[at], "found", values[at])
        for at in np.flatnonzero(wrong if who == "certified" else [])[:5]:
            print("  wrong", points[at], "truth", truth[at], "found", values[at])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--only", nargs="+", choices=tuple(PROBLEMS), default=tuple(PROBLEMS))
    options = parser.parse_args()
    theorykit.enable_float64()
    warnings.simplefilter("ignore")
    path = options.output / "replicas.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    for name in options.only:
        results[name] = row(name)
        for who in ("certified", "fixed point"):
            print(name, who, results[name][who], flush=True)
        path.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
