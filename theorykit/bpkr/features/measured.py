"""The same averages in NumPy, a few at a time and with any number of nodes: what the error of a rule is measured by."""

from collections.abc import Callable

import numpy as np

from . import pair_averages
from .pair_averages import Rule

Function = Callable[[np.ndarray], np.ndarray]
# terms that leave as much are not followed by fewer than a user would wait for
_SLOW = 1024, 1e-7


def series(
    rule: Rule, value: Function, variances: np.ndarray, nodes: int, terms: int | None = None, *, patient: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coefficients a_n(v), mean squares, and the largest share of these in terms beyond the n-th.

    Of `terms` terms, or as many as have something left, up to `rule.terms`; unless `patient`, no more either where the
    sum falls as a power, as with a kink.
    """
    most = pair_averages.REACH * rule.stretch
    width = pair_averages.width_for(terms or rule.terms)
    points, weights = zip(
        *(_panelled(_edges(np.asarray(rule.edges) / np.sqrt(v), most, width), nodes) for v in variances), strict=True
    )
    longest = max(map(len, points))
    # a point of weight zero does no harm where the function is finite
    points, weights = (
        np.array([np.pad(row, (0, longest - len(row)), constant_values=fill) for row in rows])
        for rows, fill in ((points, most / 3), (weights, 0.0))
    )
    values = value(np.sqrt(variances)[:, None] * points)
    squares = np.sum(weights * np.exp(-(points**2) / 2) / np.sqrt(2 * np.pi) * values**2, axis=1)
    root = np.exp(-(points**2) / 4) / (2 * np.pi) ** 0.25
    weighted = weights * root * values
    before, now, found = np.zeros_like(root), root, []
    left, shares = squares.copy(), []
    for n in range(terms or rule.terms):
        found.append(np.sum(weighted * now, axis=1))
        before, now = now, (points * now - np.sqrt(n) * before) / np.sqrt(n + 1)
        left = left - found[-1] ** 2
        shares.append(np.max(left / np.where(squares > 0, squares, 1.0)))
        if terms is None and _is_enough(n, shares[-1], patient):
            break
    shares = np.array(shares)
    # what rounding leaves of the sum is not beyond the last term
    shares = np.maximum(shares - np.maximum(shares[-1], -1e-13) * (np.abs(shares[-1]) < 1e-13), 0.0)
    return np.array(found).T, squares, shares


def _is_enough(n: int, share: float, patient: bool) -> bool:
    return bool((n > 32 and share < 1e-15) or (not patient and n == _SLOW[0] and share > _SLOW[1]))


def pair(rule: Rule, value: Function, own: float, other: float, correlation: float, nodes: int) -> float:
    """E[phi(x) phi(y)] by panels in rotated coordinates."""
    flipped, x, y = np.where(correlation < 0, -1.0, 1.0), np.sqrt(own), np.sqrt(other)
    square = max((1 - abs(correlation)) / 2, 1e-32)
    c, s = np.sqrt(1 - square), np.sqrt(square)
    most = pair_averages.OF_DENSITY * pair_averages.REACH * rule.stretch
    pairs, edges = np.asarray(rule.crossings), np.asarray(rule.edges)
    width = pair_averages.WIDTH
    crossings = (pairs[:, 0] / x - flipped * pairs[:, 1] / y) / (2 * s)
    outer, of_outer = _panelled(_edges(crossings, most, width), nodes)
    inner = []
    for q in outer:
        places = np.concatenate([(edges / x - s * q) / c, (flipped * edges / y + s * q) / c])
        inner.append(_panelled(_edges(places, most, width), nodes))
    count = [len(p) for p, _ in inner]
    p, of_inner = (np.concatenate(each) for each in zip(*inner, strict=True))
    q = np.repeat(outer, count)
    weights = of_inner * np.repeat(of_outer, count) * np.exp(-(p**2 + q**2) / 2) / (2 * np.pi)
    kept = weights > 0
    p, q = p[kept], q[kept]
    return float(np.sum(weights[kept] * value(x * (c * p + s * q)) * value(flipped * y * (c * p - s * q))))


def _edges(places: np.ndarray, most: float, width: float) -> np.ndarray:
    grid = np.linspace(-most, most, int(np.ceil(2 * most / width)) + 1)
    return np.unique(np.concatenate([np.clip(places, -most, most), grid]))


def _panelled(edges: np.ndarray, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    points, weights = np.polynomial.legendre.leggauss(nodes)
    left, half = edges[:-1, None], np.diff(edges)[:, None] / 2
    return (left + half * (1 + points)).ravel(), (half * weights).ravel()
