"""Minimise random actions at random parameters; check each certified minimum against its expression in 30 digits.

    python benchmarks/random_actions.py [--first 0] [--count 100] [--values 10]

A structure adds three to six random terms: polynomials, logarithms, exponentials, rational functions, kinks, Gaussian
averages and functions of a matrix, in one to three order parameters of random domains. Scales of parameters cover six
orders of magnitude. A solve ends in one of three ways: certified, flagged (with a warning that gives the reason), or
refused (with an error that gives the reason). A certified minimum is wrong if S, evaluated by mpmath without the
toolkit's code, differs from the stated value or is lower at one of 8 points nearby. Prints counts, and the seed,
values and reason of each solve that is not certified.
"""

import argparse
import traceback
import warnings
from collections import Counter
from collections.abc import Mapping

import jax
import mpmath
import numpy as np
import sympy
from sympy import Abs, Expr, Max, Symbol, Trace, cosh, exp, log, sqrt, symbols, tanh
from tqdm import tqdm

import theorykit
from theorykit import saddle
from theorykit.symbolic import GaussianAverage, gaussian_average, log_cosh, log_det, positive_definite
from theorykit.symbolic.atoms import LogDet
from theorykit.symbolic.functions import LogCosh

A, B, C = PARAMETERS = symbols("a b c", positive=True)
Z = Symbol("z", real=True)
SIZE = 2
MATRIX = positive_definite("K", SIZE)
# Radius of the points nearby, relative to the distance between a minimum and the edge of its domain.
NEARBY = (1e-3, 1e-1)
POINTS, DIGITS = 8, 30


def structure(seed: int) -> saddle.Action:
    """Make the action of a seed. A quadratic term bounds it from below, in most cases."""
    rng = np.random.default_rng(seed)
    domains = {}
    for name in "xyw"[: rng.integers(1, 4)]:
        kind = int(rng.integers(4))
        symbol = Symbol(name, positive=True) if kind >= 2 else Symbol(name, real=True)
        domains[symbol] = (saddle.Real(), saddle.Real(), saddle.Positive(), saddle.Between(0, 1))[kind]
    numbers = list(domains)
    terms = [C * sum(number**2 for number in numbers) / 2] if rng.random() < 0.9 else []
    terms += [term(rng, numbers, domains) for _ in range(rng.integers(2, 6))]
    if rng.random() < 0.25:
        domains[MATRIX] = saddle.PositiveDefinite()
        terms.append(A * Trace(MATRIX) / 2 - (1 + B) * log_det(MATRIX) / 2)
        if rng.random() < 0.5:
            terms.append(numbers[0] * Trace(MATRIX * MATRIX) / (1 + numbers[0] ** 2))
    expression = sum(terms[1:], terms[0])
    for symbol in [symbol for symbol in domains if symbol not in expression.free_symbols]:
        expression += C * symbol**2
    return saddle.Action(expression, domains, [each for each in PARAMETERS if each in expression.free_symbols])


def term(rng: np.random.Generator, numbers: list[Symbol], domains: Mapping) -> Expr:
    """A random term in two of the order parameters."""
    u, v = (numbers[int(rng.integers(len(numbers)))] for _ in range(2))
    a, b = (PARAMETERS[int(rng.integers(3))] for _ in range(2))
    sign = int(rng.choice([-1, 1]))
    size = sqrt(u) if u.is_positive else u
    terms = [
        a * u**4 / 4,
        sign * a * u * v,
        sign * b * u,
        -log(2 * cosh(a * u + sign * b)),
        log(1 + exp(-a * u + sign * b * v)),
        sign * a * u / (1 + v**2),
        sqrt(1 + (a * u - b * v) ** 2),
        sign * tanh(a * u) * v,
        -a * log(u) if u.is_positive else a * log(1 + u**2),
        -log(1 - u) if isinstance(domains[u], saddle.Between) else exp(-a * u**2),
        a * Abs(u - b) if rng.random() < 0.4 else a * (u - b) ** 2,
        a * Max(0, 1 - b * u) if rng.random() < 0.4 else a * exp(-b * u),
        -gaussian_average(log_cosh(a * size * Z + sign * b * v), Z),
        a * gaussian_average(log(1 + exp(size * Z + sign * v)), Z),
    ]
    return terms[int(rng.integers(len(terms)))]


def exact(action: saddle.Action):
    """Return S as a function of values by symbol, which mpmath evaluates with DIGITS digits."""
    entries = sympy.Matrix(SIZE, SIZE, symbols(f"k:{SIZE}:{SIZE}"))
    averages = {}

    def apart(expression):
        """Write the toolkit's functions in SymPy's, and averages as new symbols."""
        expression = expression.replace(LogCosh, lambda number: log(cosh(number)))
        expression = expression.replace(LogDet, lambda matrix: log(matrix.subs(MATRIX, entries).as_explicit().det()))
        return expression.replace(Trace, lambda matrix: sympy.Trace(matrix.subs(MATRIX, entries)).doit())

    for average in action.expression.atoms(GaussianAverage):
        averages[average] = sympy.Dummy()
    numbers = [each for each in (*action.order_parameters, *action.parameters) if each != MATRIX]
    symbols_of_s = [*numbers, *entries, *averages.values()]
    whole = sympy.lambdify(symbols_of_s, apart(action.expression.xreplace(averages)), "mpmath")
    parts = [sympy.lambdify([average.variable, *numbers], apart(average.integrand), "mpmath") for average in averages]

    def value(at: Mapping) -> mpmath.mpf:
        with mpmath.workdps(DIGITS):
            own = [mpmath.mpf(float(at[number])) for number in numbers]
            matrix = [mpmath.mpf(float(each)) for each in np.ravel(at.get(MATRIX, np.eye(SIZE)))]
            means = [mean(lambda z, part=part: part(z, *own)) for part in parts]
            return whole(*own, *matrix, *means)

    return value


def mean(function, panel: tuple[float, float] = (-14.0, 14.0)) -> mpmath.mpf:
    """Average a function of a standard normal number. Panels are halved around kinks and steep places."""
    whole, error = mpmath.quad(lambda z: function(z) * mpmath.npdf(z), panel, error=True, maxdegree=5)
    if error <= 1e-17 * (1 + abs(whole)) or panel[1] - panel[0] < 1e-9:
        return whole
    middle = sum(panel) / 2
    return mean(function, (panel[0], middle)) + mean(function, (middle, panel[1]))


def outcome(action: saddle.Action, value, rng: np.random.Generator) -> tuple[str, str]:
    """Minimise at random parameters. Return the kind of outcome, and the values with what is wrong."""
    at = {symbol: 10.0 ** rng.uniform(-3, 3) for symbol in action.parameters}
    initial = {symbol: random_point(rng, domain, 1.0) for symbol, domain in action.order_parameters.items()}
    given = {"initial": initial} if rng.random() < 0.5 else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            solution = saddle.minimise(action, at, **given)
        except ValueError as refusal:
            return "refused", f"{at}: {refusal}"
        except Exception:
            return "crashed", f"{at}, {given}: {traceback.format_exc()}"
    if not solution.converged:
        return ("flagged" if solution.diagnosis else "crashed"), f"{at}, {given}: {solution.diagnosis}"
    point = {symbol: np.asarray(solution[symbol]) for symbol in action.order_parameters}
    stated, error = float(solution.action), float(solution.action_error)
    try:
        own = float(value({**at, **point}))
    except (ValueError, ZeroDivisionError):
        # Terms such as x log x have no value on an edge, only a limit.
        own = stated if solution.edges else float("nan")
    if not abs(own - stated) <= 2 * error + 1e-14 * (1 + abs(own)):
        return "wrong", f"{at}, {given}: S is {own!r}, not {stated!r} +- {error:.1e}, at {point}"
    for _ in range(POINTS):
        size = 10 ** rng.uniform(*np.log10(NEARBY))
        near = {
            symbol: neighbour(rng, domain, point[symbol], size) for symbol, domain in action.order_parameters.items()
        }
        lower = float(value({**at, **near})) - stated
        if lower < -(2 * error + 1e-13 * (1 + abs(stated))):
            return "wrong", f"{at}, {given}: S is lower by {-lower:.1e} at {near} than at {point}"
    return "certified", ""


def random_point(rng: np.random.Generator, domain, scale: float):
    """A random point of the domain."""
    number = rng.normal() * scale
    if isinstance(domain, saddle.PositiveDefinite):
        factor = rng.normal(size=(SIZE, SIZE))
        return factor @ factor.T + 0.1 * np.eye(SIZE)
    if isinstance(domain, saddle.Positive):
        return np.exp(number)
    return 1 / (1 + np.exp(-number)) if isinstance(domain, saddle.Between) else number


def neighbour(rng: np.random.Generator, domain, point: np.ndarray, size: float):
    """A point of the domain within `size` of a point, relative to its size or its distance to an edge."""
    step = size * rng.uniform(-1, 1)
    if isinstance(domain, saddle.PositiveDefinite):
        factor = np.linalg.cholesky(point) @ (np.eye(SIZE) + step * rng.normal(size=(SIZE, SIZE)))
        return factor @ factor.T
    point = float(point)
    if isinstance(domain, saddle.Positive):
        return point * np.exp(step) if point > 0 else abs(step)
    if isinstance(domain, saddle.Between):
        return point + step * min(point, 1 - point) if 0 < point < 1 else abs(point - abs(step))
    return point + step * max(abs(point), 1e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100, help="number of structures")
    parser.add_argument("--values", type=int, default=10, help="number of solves of each structure")
    arguments = parser.parse_args()
    theorykit.enable_float64()
    counts = Counter()
    for seed in tqdm(range(arguments.first, arguments.first + arguments.count), desc="structures", dynamic_ncols=True):
        action, rng = structure(seed), np.random.default_rng((seed, 1))
        value = exact(action)
        for _ in range(arguments.values):
            kind, text = outcome(action, value, rng)
            counts[kind] += 1
            if kind != "certified":
                print(f"seed {seed}, {kind}: {text}\n    {action.expression}")
        print(seed, dict(counts), flush=True)
        jax.clear_caches()


if __name__ == "__main__":
    main()
