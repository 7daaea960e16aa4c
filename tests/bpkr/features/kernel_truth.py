"""E[f(x) f(y)] of thirty-four functions to thirty digits, written by `python -m tests.bpkr.features.kernel_truth`.

Panels with 24 Gauss-Legendre nodes in rotated coordinates, of widths that double with the distance to every kink and to
every place about which a function changes; closed forms where they are known, from the literature.
"""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import mpmath as mp
import sympy
from mpmath.calculus.quadrature import GaussLegendre
from sympy import Abs, Heaviside, Max, Min, S, Symbol, atan, cos, cosh, erf, exp, log, sign, sin, sqrt, tanh

FILE = Path(__file__).parents[2] / "data" / "kernels" / "kernels.json"
h = Symbol("h", real=True)
DIGITS = 30
# (c_xx, c_yy, rho)
POINTS = (
    (1e-3, 1e-3, 0.9),
    (0.3, 0.3, 0.999999),
    (1.0, 1.0, 1.0),
    (1.0, 2.0, 0.3),
    (20.0, 20.0, 1.0),
    (20.0, 3.0, 0.999),
    (5.0, 5.0, -1.0),
    (1e3, 1e3, 0.9999),
    (1e3, 1.0, -0.999999),
    (1e3, 1e3, -1.0),
    (200.0, 1e3, 0.0),
    (1e3, 1e3, 1.0),
)


class Case(NamedTuple):
    """A function, where it has kinks or changes, how fast it changes there, and its kernel where that is known."""

    function: sympy.Expr
    places: tuple[float, ...] = (0.0,)
    width: float = 1.0
    exact: Callable | None = None


def _angle(v, w, c):
    return mp.acos(max(-1, min(1, c / mp.sqrt(v * w))))


def _relu(v, w, c):
    t = _angle(v, w, c)
    return mp.sqrt(v * w) * (mp.sin(t) + (mp.pi - t) * mp.cos(t)) / (2 * mp.pi)


def _leaky(v, w, c):
    # h/10 + 9/10 relu(h), with E[x relu(y)] = c/2
    return c / 100 + 2 * mp.mpf(9) / 100 * c / 2 + mp.mpf(81) / 100 * _relu(v, w, c)


def _sine(scale):
    return lambda v, w, c: (mp.exp(-(scale**2) * (v + w - 2 * c) / 2) - mp.exp(-(scale**2) * (v + w + 2 * c) / 2)) / 2


CASES = {
    "tanh": Case(tanh(h)),
    "tanh(3h)": Case(tanh(3 * h), width=0.4),
    "atan": Case(atan(h)),
    "softsign": Case(h / sqrt(1 + h**2)),
    "witch": Case(h / (1 + h**2)),
    "cubic": Case(h**3 - h, exact=lambda v, w, c: 9 * v * w * c + 6 * c**3 - 3 * c * (v + w) + c),
    "sin": Case(sin(h), exact=_sine(1)),
    "erf": Case(erf(h), exact=lambda v, w, c: 2 / mp.pi * mp.asin(2 * c / mp.sqrt((1 + 2 * v) * (1 + 2 * w)))),
    "h gauss": Case(h * exp(-(h**2)), exact=lambda v, w, c: c / ((1 + 2 * v) * (1 + 2 * w) - 4 * c**2) ** 1.5),
    "gauss": Case(exp(-(h**2)), exact=lambda v, w, c: 1 / mp.sqrt((1 + 2 * v) * (1 + 2 * w) - 4 * c**2)),
    "lorentz": Case(1 / (1 + h**2)),
    "hyperbola": Case(sqrt(1 + h**2)),
    "log": Case(log(1 + h**2)),
    "sech": Case(1 / cosh(h)),
    "h tanh": Case(h * tanh(h)),
    "sign": Case(sign(h), exact=lambda v, w, c: 1 - 2 * _angle(v, w, c) / mp.pi),
    "step": Case(Heaviside(h - S.Half), (0.5,)),
    "window": Case(sign(h**2 - 1), (-1.0, 1.0)),
    "relu": Case(Max(h, 0), exact=_relu),
    "shifted relu": Case(Max(h - 1, 0), (1.0,)),
    "hard tanh": Case(Max(-1, Min(1, h)), (-1.0, 1.0)),
    "leaky": Case(Max(h, h / 10), exact=_leaky),
    "elu": Case(Max(h, 0) + exp(Min(h, 0)) - 1),
    "hard swish": Case(h * Min(1, Max(0, h / 6 + S.Half)), (-3.0, 3.0)),
    "laplace": Case(exp(-Abs(h))),
    "relu squared": Case(Max(h, 0) ** 2),
    "softplus": Case(log(1 + exp(h))),
    "silu": Case(h / (1 + exp(-h))),
    "sigmoid": Case(1 / (1 + exp(-h))),
    "gelu": Case(h * (1 + erf(h / sqrt(2))) / 2),
    "h^2 tanh": Case(h**2 * tanh(h)),
    "exponential": Case(exp(h / 4), exact=lambda v, w, c: mp.exp((v + w + 2 * c) / 32)),
    "fast sine": Case(sin(10 * h), exact=_sine(10)),
    "chirp": Case(cos(5 * h) * tanh(h) / (1 + h**2), width=0.5),
}


def truth(case: Case, own: float, other: float, correlation: float) -> mp.mpf:
    """The kernel at a variance of either and a correlation."""
    with mp.workdps(DIGITS + 8):
        v, w, rho = mp.mpf(own), mp.mpf(other), mp.mpf(correlation)
        if case.exact is not None:
            return case.exact(v, w, rho * mp.sqrt(v) * mp.sqrt(w))
        f, gauss = sympy.lambdify(h, case.function, "mpmath"), GaussLegendre(mp.mp).calc_nodes(4, mp.mp.prec)
        x, y = mp.sqrt(v), mp.sqrt(w)
        if rho == 0:
            return _single(f, x, case, gauss) * _single(f, y, case, gauss)
        flip = 1 if rho > 0 else -1
        c, s = mp.sqrt((1 + abs(rho)) / 2), mp.sqrt((1 - abs(rho)) / 2)
        places = _graded(case, 12 * max(x, y))

        def inner(q):
            at = [(k / x - s * q) / c for k in places] + [(flip * k / y + s * q) / c for k in places]
            return _integral(lambda p: f(x * (c * p + s * q)) * f(flip * y * (c * p - s * q)), at, gauss)

        if s == 0:
            return inner(mp.mpf(0))
        # lines on which one factor changes cross those of the other
        crossings = [(a / x - flip * b / y) / (2 * s) for a in places for b in case.places]
        crossings += [(b / x - flip * a / y) / (2 * s) for a in places for b in case.places]
        if abs(abs(f(-mp.e)) - abs(f(mp.e))) < mp.mpf(10) ** -DIGITS:
            # of an even or an odd function the product is the same at (-p, -q)
            return 2 * _integral(lambda q: inner(q) if q > 0 else mp.mpf(0), [*crossings, mp.mpf(0)], gauss)
        return _integral(inner, crossings, gauss)


def _single(f, x, case, gauss):
    return _integral(lambda p: f(x * p), [k / x for k in _graded(case, 12 * x)], gauss)


def _graded(case: Case, reach) -> list:
    found = set()
    for place in case.places:
        found.add(mp.mpf(place))
        step = mp.mpf(case.width)
        while step < reach:
            found |= {place + step, place - step}
            step *= 2
    return sorted(found)


def _integral(function, places, gauss):
    """The average over a standard normal number, by panels between these places and a grid."""
    edges = sorted({*(mp.mpf(k) for k in range(-12, 13, 2)), *(k for k in places if -12 < k < 12)})
    edges = [edges[0], *(b for a, b in pairwise(edges) if b - a > mp.mpf(10) ** -40)]
    total, negligible = mp.mpf(0), mp.mpf(10) ** -(DIGITS + 2)
    for a, b in pairwise(edges):
        middle, half = (a + b) / 2, (b - a) / 2
        total += half * mp.fsum(
            weight * density * function(at)
            for point, weight in gauss
            for at in (middle + half * point,)
            for density in (mp.exp(-(at**2) / 2),)
            if density > negligible
        )
    return total / mp.sqrt(2 * mp.pi)


def main() -> None:
    """Write the file, function by function; those that it has are kept."""
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name, case in CASES.items():
        if name not in known:
            known[name] = [mp.nstr(truth(case, *point), DIGITS) for point in POINTS]
            FILE.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
