"""How the kernel of a function is computed over the variances at hand, and how far off that is.

A rule is chosen once per function and range of variances, on the host: panels that resolve the function, as many terms
of Mehler's sum as its remainder asks for, and panels for pairs where no number of terms is enough.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from itertools import product

import mpmath
import numpy as np

from ...codegen import interpret
from ...symbolic.functions import many_digits
from ..specification.activations import CORRELATION, NAMED, OTHER, OWN, UNIT, Activation
from . import measured, pair_averages
from .pair_averages import NODES, PAIR_NODES, Rule
from .panels import host_function, kinks, panels, tried

Function = Callable[[np.ndarray], np.ndarray]
# relative errors, of the root of both mean squares: above the one a kernel is warned of, above the other refused
WARNED, REFUSED = 1e-10, 1e-3
# variances of hidden units where none are known yet
_RANGE = 2.0**-10, 2.0**10
# a closed form is used as it is where rounding leaves it as good
_EXACT = 1e-11
# share of a mean square that may be left out
_ENOUGH = 1e-12
# terms of Mehler's sum that are tried; where none is enough, pairs with a correlation near one go to panels
_TERMS, _BESIDE_PANELS = (32, 64, 128, 256, 512, 1024, 2048, 4096), 1024
# more panels than these cost more than anyone waits for
_MOST_EDGES = 64
# variances of the range at which a rule is measured
_SAMPLE = 9
# the function may be this many standard deviations wide
_MOST_STRETCH = 6.0
_PROBED = (-0.99, 0.999, 0.99999, 1.0)


def rule_over(activation: Activation, variances: Iterable[float] | None) -> tuple[Rule | None, float]:
    """The rule for variances between the least and the largest of these, by default any usual ones, and its error.

    None is the closed form. The error is an upper estimate, relative to sqrt(E[phi(x)^2] E[phi(y)^2]). Raises
    `ValueError` for a function that is not square integrable there.
    """
    if variances is None:
        return _chosen(activation, *_RANGE)
    positive = [float(each) for each in variances if each > 0] or [1.0]
    # one rule serves similar data
    return _chosen(activation, 2.0 ** np.floor(np.log2(min(positive))), 2.0 ** np.ceil(np.log2(max(positive))))


def joint(one: Rule | None, other: Rule | None) -> Rule | None:
    """A rule for the variances of both."""
    if one is None or one == other:
        return one
    least, most = min(one.least, other.least), max(one.most, other.most)
    return _chosen(one.activation, least, most)[0]


@lru_cache(maxsize=256)
def _chosen(activation: Activation, least: float, most: float) -> tuple[Rule | None, float]:
    if activation in NAMED.values():
        return None, 1e-15
    try:
        _check_growth(activation, most)
        if activation.kernel_of_correlation is None:
            return _numerical(activation, least, most)
        off = _of_closed_form(activation, least, most)
        if off < _EXACT:
            return None, off
        try:
            rule, of_rule = _numerical(activation, least, most)
        except ValueError:
            return None, off
        return (rule, of_rule) if of_rule < off else (None, off)
    except ValueError as error:
        raise ValueError(
            f"the function {activation.name} is not finite, or not square integrable, under the Gaussian of hidden "
            f"units of variance {most:.3g}, which these inputs have: {error}"
        ) from None


def _of_closed_form(activation: Activation, least: float, most: float) -> float:
    """How far rounding carries the closed form, by fifty digits."""
    formula = activation.kernel_of_correlation
    symbols, ratios, worst = (OWN, CORRELATION, OTHER), (-1.0, -0.6, 0.95, 1.0), 0.0
    at_ratio = {ratio: formula.subs(CORRELATION, ratio) for ratio in ratios}
    exact = many_digits(symbols, formula)
    with mpmath.workdps(50), np.errstate(all="ignore"):
        for v, w, ratio in product((least, np.sqrt(least * most), most), (least, most), ratios):
            root = mpmath.sqrt(exact(mpmath.mpf(v), 1, mpmath.mpf(v)) * exact(mpmath.mpf(w), 1, mpmath.mpf(w)))
            if not np.isfinite(float(root)):
                raise ValueError(f"its mean square is beyond the largest number, 10^{int(mpmath.log10(root))}")
            found = float(interpret(at_ratio[ratio], {OWN.name: v, OTHER.name: w}))
            truth = mpmath.re(exact(*map(mpmath.mpf, (v, ratio, w))))
            worst = max(worst, float(abs(found - truth) / root) if np.isfinite(found) else np.inf)
    return 2 * worst + 1e-15


def _numerical(activation: Activation, least: float, most: float) -> tuple[Rule, float]:
    stretch = _stretch(activation, most)
    variances = np.geomspace(least, most, _SAMPLE)
    reach = pair_averages.REACH * stretch * np.sqrt(most)
    edges, resolved = panels(activation, reach, _scale(activation, variances), float(np.sqrt(least)))
    places = kinks(activation.function, reach)
    rule = Rule(
        activation=activation,
        least=least,
        most=most,
        edges=edges,
        crossings=_crossings(edges, places),
        terms=_TERMS[-1],
        parity=_parity(activation, reach),
        stretch=stretch,
        uses_panels=False,
    )
    value = host_function(activation)
    fits = resolved and max(len(edges), len(rule.crossings) // 4) <= _MOST_EDGES
    found, squares, left = measured.series(
        rule, value, variances, NODES, patient=not fits and len(edges) <= 2 * _MOST_EDGES
    )
    terms = next((terms for terms in _TERMS if left[min(terms, len(left)) - 1] < _ENOUGH), None)
    off = _of_quadrature(rule, value, variances, found, squares) if resolved else np.inf
    if terms:
        return replace(rule, terms=terms), float(2 * (off + left[min(terms, len(left)) - 1]) + 1e-14)
    if not fits:
        return replace(rule, terms=len(left)), float(min(2 * (off + left[-1]), 1.0))
    rule = replace(rule, terms=_BESIDE_PANELS, uses_panels=True)
    return rule, float(2 * (off + pair_averages.TOLERANCE + _of_panels(rule, value, variances, squares)) + 1e-14)


def _of_quadrature(rule: Rule, value: Function, variances: np.ndarray, found: np.ndarray, squares: np.ndarray) -> float:
    """How far coefficients and mean squares are from those of more nodes."""
    finer, of_finer, _ = measured.series(rule, value, variances, NODES + 8, len(found[0]))
    whole = np.where(of_finer > 0, of_finer, 1.0)
    moved = np.sqrt(np.sum((finer - found) ** 2, axis=1) / whole)
    return float(np.max(2 * moved + np.abs(of_finer - squares) / whole))


def _of_panels(rule: Rule, value: Function, variances: np.ndarray, squares: np.ndarray) -> float:
    """How far pairs by panels are from those of more nodes."""
    roots, worst = np.sqrt(squares), 0.0
    for (i, j), ratio in product(((0, 0), (4, 4), (4, -1), (-1, -1)), _PROBED):
        pair = variances[i], variances[j], ratio
        coarse, fine = (measured.pair(rule, value, *pair, nodes) for nodes in (PAIR_NODES, PAIR_NODES + 4))
        worst = max(worst, abs(fine - coarse) / max(roots[i] * roots[j], 1e-300))
    return worst


def _parity(activation: Activation, reach: float) -> int:
    """The symmetry that the function has, where values about its kinks bear it out."""
    parity, value = activation.parity, host_function(activation)
    points = tried(kinks(activation.function, reach), reach)
    left, right = value(-points), value(points)
    return parity if np.all(np.abs(left - parity * right) <= 1e-12 * np.abs(right)) else 0


def _scale(activation: Activation, variances: np.ndarray) -> float:
    """The least root mean square of the function over the variances, roughly."""
    points = np.linspace(-6, 6, 601)
    points = points[points != 0]
    values = host_function(activation)(np.sqrt(variances)[:, None] * points)
    if not np.all(np.isfinite(values)):
        at = (np.sqrt(variances)[:, None] * points)[~np.isfinite(values)].flat[0]
        raise ValueError(f"it is not finite at h = {at:.6g}")
    weights = np.exp(-(points**2) / 2)
    return float(np.min(np.sqrt(np.sum(weights * values**2, axis=1) / np.sum(weights))))


def _crossings(edges: tuple[float, ...], places: tuple[float, ...]) -> tuple[tuple[float, float], ...]:
    """Pairs of edges: each with every kink, and with the places about which panels are finest."""
    inner = np.asarray(edges[1:-1])
    widths = np.minimum(np.diff(edges)[:-1], np.diff(edges)[1:])
    centres = list(places)
    for place, width in sorted(zip(inner, widths, strict=True), key=lambda each: (each[1], abs(each[0]))):
        if width < 0.1 * edges[-1] and all(abs(place - centre) > 16 * width for centre in centres):
            centres.append(float(place))
    centres = centres or [0.0]
    pairs = {(float(edge), centre) for edge in inner for centre in centres}
    return tuple(sorted(pairs | {(centre, edge) for edge, centre in pairs}))


def _logarithm(activation: Activation, variance: float) -> Callable[[float], float]:
    """The logarithm of the square times the density, some standard deviations out to either side.

    In numbers of any exponent: what a function grows like far out decides, not values at some nodes.
    """
    function = many_digits(UNIT, activation.function)
    deviation = mpmath.sqrt(variance)

    def logarithm(z: float) -> float:
        value = mpmath.mpmathify(function(deviation * z))
        if abs(mpmath.im(value)) > 0:
            raise ValueError(f"it is not real at h = {float(deviation * z):.6g}")
        size = abs(mpmath.re(value))
        return float(2 * mpmath.log(size) - z**2 / 2) if size > 0 else -np.inf

    return lambda z: max(logarithm(sign * z * factor) for sign in (-1, 1) for factor in (0.97, 1.0, 1.03))


def _check_growth(activation: Activation, variance: float) -> None:
    """Raise `ValueError` for a square whose average is infinite by its growth."""
    largest = _logarithm(activation, variance)
    if largest(300.0) > -1e-6 * 300.0**2 or largest(300.0) > largest(30.0):
        raise ValueError("its square grows as fast as the Gaussian density falls, or faster")


def _stretch(activation: Activation, variance: float) -> float:
    """How much wider than the density the square of the function times the density is."""
    largest = _logarithm(activation, variance)
    peak = max(largest(z) for z in np.linspace(0.25, 8, 32))
    stretch = 1.0
    while largest(pair_averages.REACH * stretch) > peak - pair_averages.REACH**2 / 2 + 12:
        stretch *= 1.25
        if stretch > _MOST_STRETCH:
            raise ValueError(f"its square times the density is wider than {_MOST_STRETCH:.0f} standard deviations")
    return stretch
