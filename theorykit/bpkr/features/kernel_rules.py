"""Choose rules that compute the kernel of a function over a range of variances, with error estimates.

A rule is chosen once per function and range of variances, on the host. It has panels that resolve the function, enough
terms of Mehler's sum to make its remainder negligible, and panels for pairs for which no number of terms is enough. To
estimate the error of a rule, we compute some averages again with more nodes.

Panels are split at kinks and steps of the function, and halved until they resolve the function. Their edges are values
of the preactivation h, so they are valid at any variance. Quadrature over standard normal numbers divides the edges by
the standard deviation.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache, lru_cache, partial
from itertools import product

import jax
import mpmath
import numpy as np
import scipy
from sympy import Abs, Expr, Heaviside, Max, Min, Piecewise, ceiling, floor, pi, sign, sin
from sympy.core.relational import Relational

from ...codegen import interpret
from ...symbolic.functions import many_digits
from ..specification.activations import CORRELATION, NAMED, OTHER, OWN, UNIT, Activation, apply_to
from . import pair_averages
from .pair_averages import NODES, PAIR_NODES, Rule

Function = Callable[[np.ndarray], np.ndarray]
# Error of a kernel, relative to sqrt(E[phi(x)^2] E[phi(y)^2]), above which we warn.
WARNED = 1e-10
# Relative error above which we raise an error.
REFUSED = 1e-3
# Default range of the variances of hidden units.
_RANGE = 2.0**-10, 2.0**10
# Use the closed form if its rounding errors are below this.
_EXACT = 1e-11
# Fraction of a mean square that Mehler's sum may omit.
_ENOUGH = 1e-12
# Numbers of terms of Mehler's sum to try.
_TERMS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
# Number of terms if none of these is enough. Panels then compute pairs with correlations near one.
_BESIDE_PANELS = 1024
# Largest number of edges of panels, because a rule with more would be too slow.
_MOST_EDGES = 64
# Number of variances in the range at which the error of a rule is estimated.
_SAMPLE = 9
# Largest width of the integrand in standard deviations.
_MOST_STRETCH = 6.0
# Averages by panels are computed again with more nodes for these pairs of indices into the sample of variances.
_PROBED_VARIANCES = ((0, 0), (4, 4), (4, -1), (-1, -1))
# Correlations at which these averages are computed. Panels are used near one.
_PROBED = (-0.99, 0.999, 0.99999, 1.0)
# A sum converges too slowly if after this many terms more than this fraction of the mean square is left.
_SLOW = 1024, 1e-7
# Number of nodes per panel.
_PANEL_NODES = 14
# Largest relative error of the function on a panel. The error of an integral over two factors is its square.
_RESOLVED = 3e-7
# Errors below this fraction of the typical size of the function do not matter.
_NEGLIGIBLE = 1e-14
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(_PANEL_NODES)
_COEFFICIENTS = (np.polynomial.legendre.legvander(_POINTS, _PANEL_NODES - 1) * _WEIGHTS[:, None]).T
_COEFFICIENTS *= (2 * np.arange(_PANEL_NODES)[:, None] + 1) / 2
# Numbers of values per call of the function. Two fixed sizes avoid recompilation.
_AT_ONCE = 2**12, 2**16
# Number of panels at which halving stops, and the function counts as unresolved.
_MOST_PANELS = 400
# Smallest panel as a fraction of the range. If the square of the function is large even there, its integral diverges.
_SMALLEST = 2.0**-60


def rule_over(activation: Activation, variances: Iterable[float] | None) -> tuple[Rule | None, float]:
    """Choose a rule for the range of the given variances, or for a default range, and estimate its error.

    The rule None stands for the closed form. The error is an upper estimate relative to sqrt(E[phi(x)^2] E[phi(y)^2]).
    Raises `ValueError` if the function is not square integrable.
    """
    if variances is None:
        return _chosen(activation, *_RANGE)
    positive = [float(each) for each in variances if each > 0] or [1.0]
    # Round, so that similar data share a rule.
    return _chosen(activation, 2.0 ** np.floor(np.log2(min(positive))), 2.0 ** np.ceil(np.log2(max(positive))))


def joint(one: Rule | None, other: Rule | None) -> Rule | None:
    """Return a rule for the union of the ranges of two rules."""
    if one is None or one == other:
        return one
    least, most = min(one.least, other.least), max(one.most, other.most)
    return _chosen(one.activation, least, most)[0]


@lru_cache(maxsize=256)
def _chosen(activation: Activation, least: float, most: float) -> tuple[Rule | None, float]:
    if activation in NAMED.values():
        return None, 1e-15
    try:
        stretch = _stretch(activation, most)
        if activation.kernel_of_correlation is None:
            return _numerical(activation, least, most, stretch)
        # Compare the closed form with fifty digits.
        formula, symbols = activation.kernel_of_correlation, (OWN, CORRELATION, OTHER)
        ratios, worst, exact = (-1.0, -0.6, 0.95, 1.0), 0.0, many_digits(symbols, formula)
        at_ratio = {ratio: formula.subs(CORRELATION, ratio) for ratio in ratios}
        with mpmath.workdps(50), np.errstate(all="ignore"):
            for v, w, ratio in product((least, np.sqrt(least * most), most), (least, most), ratios):
                root = mpmath.sqrt(exact(mpmath.mpf(v), 1, mpmath.mpf(v)) * exact(mpmath.mpf(w), 1, mpmath.mpf(w)))
                if not np.isfinite(float(root)):
                    raise ValueError(f"its mean square, 10^{int(mpmath.log10(root))}, exceeds double precision")
                found = float(interpret(at_ratio[ratio], {OWN.name: v, OTHER.name: w}))
                truth = mpmath.re(exact(*map(mpmath.mpf, (v, ratio, w))))
                worst = max(worst, float(abs(found - truth) / root) if np.isfinite(found) else np.inf)
        off = 2 * worst + 1e-15
        if off < _EXACT:
            return None, off
        try:
            rule, of_rule = _numerical(activation, least, most, stretch)
        except ValueError:
            return None, off
        return (rule, of_rule) if of_rule < off else (None, off)
    except ValueError as error:
        raise ValueError(
            f"the function {activation.name} is not finite or not square integrable for Gaussian hidden units of "
            f"variance {most:.3g}, which occurs for these inputs: {error}"
        ) from None


def _numerical(activation: Activation, least: float, most: float, stretch: float) -> tuple[Rule, float]:
    if stretch > _MOST_STRETCH:
        raise ValueError(f"its square times the density is wider than {_MOST_STRETCH:.0f} standard deviations")
    variances, value = np.geomspace(least, most, _SAMPLE), _host_function(activation)
    reach = pair_averages.REACH * stretch * np.sqrt(most)
    normals = np.linspace(-6, 6, 601)
    normals = normals[normals != 0]
    values, weights = _finite(value, np.sqrt(variances)[:, None] * normals), np.exp(-(normals**2) / 2)
    scale = float(np.min(np.sqrt(np.sum(weights * values**2, axis=1) / np.sum(weights))))
    edges, resolved = _panels(activation, reach, scale, float(np.sqrt(least)))
    places = _kinks(activation.function, reach)
    # Split the outer integral at all pairs of an edge and a kink, or of an edge and a point about which panels are
    # finest.
    inner = np.asarray(edges[1:-1])
    widths, centres = np.minimum(np.diff(edges)[:-1], np.diff(edges)[1:]), list(places)
    for place, width in sorted(zip(inner, widths, strict=True), key=lambda each: (each[1], abs(each[0]))):
        if width < 0.1 * edges[-1] and all(abs(place - centre) > 16 * width for centre in centres):
            centres.append(float(place))
    pairs = {(float(edge), centre) for edge in inner for centre in centres or [0.0]}
    # Keep the symmetry of the function only if its values near the kinks have it.
    points, parity = _tried(places, reach), activation.parity
    right = value(points)
    if np.any(np.abs(value(-points) - parity * right) > 1e-12 * np.abs(right)):
        parity = 0
    rule = Rule(
        activation=activation,
        least=least,
        most=most,
        edges=edges,
        crossings=tuple(sorted(pairs | {(centre, edge) for edge, centre in pairs})),
        terms=_TERMS[-1],
        parity=parity,
        stretch=stretch,
        uses_panels=False,
    )
    fits = resolved and max(len(edges), len(rule.crossings) // 4) <= _MOST_EDGES
    found, squares, left = _series(rule, value, variances, NODES, patient=not fits and len(edges) <= 2 * _MOST_EDGES)
    terms = next((terms for terms in _TERMS if left[min(terms, len(left)) - 1] < _ENOUGH), None)
    off = np.inf
    if resolved:
        # Compare coefficients and mean squares with a finer quadrature.
        finer, of_finer, _ = _series(rule, value, variances, NODES + 8, len(found[0]))
        whole = np.where(of_finer > 0, of_finer, 1.0)
        moved = np.sqrt(np.sum((finer - found) ** 2, axis=1) / whole)
        off = float(np.max(2 * moved + np.abs(of_finer - squares) / whole))
    if terms:
        return replace(rule, terms=terms), float(2 * (off + left[min(terms, len(left)) - 1]) + 1e-14)
    if not fits:
        return replace(rule, terms=len(left)), float(min(2 * (off + left[-1]), 1.0))
    rule, roots = replace(rule, terms=_BESIDE_PANELS, uses_panels=True), np.sqrt(squares)
    i, j, ratios = map(np.array, zip(*((*at, ratio) for at, ratio in product(_PROBED_VARIANCES, _PROBED)), strict=True))
    average = jax.jit(partial(pair_averages.panel_average, rule), static_argnums=3)
    with jax.ensure_compile_time_eval():
        coarse, fine = (average(variances[i], variances[j], ratios, nodes) for nodes in (PAIR_NODES, PAIR_NODES + 4))
    worst = np.max(np.abs(fine - coarse) / np.maximum(roots[i] * roots[j], 1e-300))
    return rule, float(2 * (off + pair_averages.TOLERANCE + worst) + 1e-14)


def _stretch(activation: Activation, variance: float) -> float:
    """Return the factor by which to widen the Gaussian integration range so that it covers phi^2 times the density.

    The factor depends on the growth of phi at large arguments, so it is computed with mpmath, which does not overflow.
    """
    function, deviation = many_digits(UNIT, activation.function), mpmath.sqrt(variance)

    def logarithm(z: float) -> float:
        value = mpmath.mpmathify(function(deviation * z))
        if abs(mpmath.im(value)) > 0:
            raise ValueError(f"it is not real at h = {float(deviation * z):.6g}")
        size = abs(mpmath.re(value))
        return float(2 * mpmath.log(size) - z**2 / 2) if size > 0 else -np.inf

    def largest(z: float) -> float:
        return max(logarithm(sign * z * factor) for sign in (-1, 1) for factor in (0.97, 1.0, 1.03))

    if largest(300.0) > -1e-6 * 300.0**2 or largest(300.0) > largest(30.0):
        raise ValueError("its square grows at least as fast as the Gaussian density falls")
    peak = max(largest(z) for z in np.linspace(0.25, 8, 32))
    stretch = 1.0
    while stretch <= _MOST_STRETCH and (
        largest(pair_averages.REACH * stretch) > peak - pair_averages.REACH**2 / 2 + 12
    ):
        stretch *= 1.25
    return stretch


def _series(
    rule: Rule, value: Function, variances: np.ndarray, nodes: int, terms: int | None = None, *, patient: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return coefficients a_n(v), mean squares, and the largest fraction of a mean square in terms beyond the n-th.

    The number of terms is `terms`, or at most `rule.terms` until little of the mean square is left. Unless `patient`,
    the sum also stops if its terms decay only as a power of n, as for functions with kinks.
    """
    rule = rule if terms is None else replace(rule, terms=terms)
    with jax.ensure_compile_time_eval():
        points, weights = map(np.asarray, pair_averages.nodes_of(rule, jax.numpy.asarray(variances), nodes))
    values = value(np.sqrt(variances)[:, None] * points)
    squares = np.sum(weights * np.exp(-(points**2) / 2) / np.sqrt(2 * np.pi) * values**2, axis=1)
    root = np.exp(-(points**2) / 4) / (2 * np.pi) ** 0.25
    weighted = weights * root * values
    before, now, found = np.zeros_like(root), root, []
    # The mean square minus the squared coefficients so far (Parseval) bounds the remaining terms.
    left, shares = squares.copy(), []
    for n in range(rule.terms):
        # For a function with a parity, the nodes cover only the half-line, which is correct for terms of this parity.
        found.append(np.sum(weighted * now, axis=1) * (rule.parity in (0, (-1) ** n)))
        before, now = now, (points * now - np.sqrt(n) * before) / np.sqrt(n + 1)
        left = left - found[-1] ** 2
        shares.append(np.max(left / np.where(squares > 0, squares, 1.0)))
        enough = (n > 32 and shares[-1] < 1e-15) or (not patient and n == _SLOW[0] and shares[-1] > _SLOW[1])
        if terms is None and enough:
            break
    shares = np.array(shares)
    # Subtract the part of the remainder that is only a rounding error.
    shares = np.maximum(shares - np.maximum(shares[-1], -1e-13) * (np.abs(shares[-1]) < 1e-13), 0.0)
    return np.array(found).T, squares, shares


def _host_function(activation: Activation) -> Callable[[np.ndarray], np.ndarray]:
    """Return phi as a function of NumPy arrays, which also works during tracing."""

    def evaluate(points: np.ndarray) -> np.ndarray:
        count = _AT_ONCE[points.size > 4 * _AT_ONCE[0]]
        flat = np.ones(-(-points.size // count) * count)
        flat[: points.size] = points.ravel()
        with jax.ensure_compile_time_eval():
            values = [np.asarray(apply_to(activation, jax.numpy.asarray(part))) for part in flat.reshape(-1, count)]
        return np.concatenate(values)[: points.size].reshape(points.shape)

    return evaluate


@cache
def _kinks(function: Expr, reach: float) -> tuple[float, ...]:
    """Find kinks and steps within `reach` of zero, from sign changes of arguments of Abs, Heaviside, Max and so on."""
    found: set[float] = set()
    for switch in _switches(function):
        numerator = switch.as_numer_denom()[0]
        if numerator.is_polynomial(UNIT) and numerator.as_poly(UNIT).degree() == 1:
            slope, offset = numerator.as_poly(UNIT).all_coeffs()
            found.add(float(-offset / slope))
            continue
        value = _host_function(Activation(str(switch), switch))
        near = np.geomspace(reach * 1e-6, reach, 2000)
        points = np.unique(np.concatenate([-near, np.linspace(-reach, reach, 4001), near]))
        values = value(points)
        found.update(points[values == 0].tolist())
        for i in np.flatnonzero(values[:-1] * values[1:] < 0):
            ends = points[i : i + 2]
            root = scipy.optimize.brentq(lambda at, value=value: value(np.array([at]))[0], *ends, xtol=1e-300)
            found.add(float(root))
    return tuple(sorted(place for place in found if abs(place) < reach))


def _switches(function: Expr) -> Iterator[Expr]:
    for node in function.atoms(Abs, sign, Heaviside, Max, Min, Piecewise, floor, ceiling):
        if isinstance(node, (Max, Min)):
            yield from (a - b for i, a in enumerate(node.args) for b in node.args[:i])
        elif isinstance(node, Piecewise):
            yield from (each.lhs - each.rhs for _, condition in node.args for each in condition.atoms(Relational))
        else:
            yield sin(pi * node.args[0]) if isinstance(node, (floor, ceiling)) else node.args[0]


def _panels(activation: Activation, reach: float, scale: float, finest: float) -> tuple[tuple[float, ...], bool]:
    """Return the edges of panels from -reach to `reach`, and whether the panels resolve the function.

    `scale` is the typical size of the function. The standard deviation of hidden units is at least `finest`, so panels
    that are much narrower are halved only if the function is large there. Raises `ValueError` if the function is not
    finite or its square has no integral.
    """
    value, places = _host_function(activation), _kinks(activation.function, reach)
    trials = _tried(places, reach)
    of_trials = _finite(value, trials)
    edges = np.unique([-reach, *places, 0.0, reach])
    left, right, done = edges[:-1], edges[1:], []
    while len(left) and len(done) + len(left) <= _MOST_PANELS:
        middle, half = (left + right)[:, None] / 2, (right - left)[:, None] / 2
        values = _finite(value, middle + half * _POINTS)
        size = np.max(np.abs(values), axis=1)
        # The last three Legendre coefficients show whether the panel resolves the function.
        coefficients = values @ _COEFFICIENTS.T
        error = np.max(np.abs(coefficients[:, -3:]), axis=1)
        # The nodes may miss a narrow feature, so compare with the interpolant at additional points.
        for i, (a, b) in enumerate(zip(left, right, strict=True)):
            inside = slice(*np.searchsorted(trials, [np.nextafter(a, b), b]))
            at = (trials[inside] - middle[i]) / half[i]
            missed = np.abs(np.polynomial.legendre.legval(at, coefficients[i]) - of_trials[inside])
            error[i] = max(error[i], np.max(missed, initial=0.0))
        rough = error > np.maximum(_RESOLVED * size, _NEGLIGIBLE * scale)
        rough &= error * half[:, 0] > _NEGLIGIBLE * scale * finest
        narrow = half[:, 0] < _SMALLEST * reach
        if np.any(rough & narrow & (size**2 * half[:, 0] > 1e-9 * scale**2)):
            at = float(middle[rough & narrow][0, 0])
            raise ValueError(f"it is infinite at h = {at:.6g}")
        again = rough & ~narrow
        done += list(left[~again])
        left, right = (
            np.concatenate([left[again], middle[again, 0]]),
            np.concatenate([middle[again, 0], right[again]]),
        )
    return tuple(sorted({*done, *left.tolist(), reach})), not len(left)


def _tried(places: tuple[float, ...], reach: float) -> np.ndarray:
    """Return points for tests of panels, dense near zero, near kinks of the function, and for |h| of order one."""
    away = np.geomspace(reach * 1e-9, reach, 500)
    about = np.concatenate([[0.0], *([place + away, place - away] for place in (0.0, *places[:20]))], axis=None)
    points = np.concatenate([about, np.linspace(-8, 8, 1601), np.linspace(-reach, reach, 1601)])
    # Leave out steps of the function, where either value is valid.
    points = np.setdiff1d(points, places)
    return points[np.abs(points) < reach]


def _finite(value: Function, points: np.ndarray) -> np.ndarray:
    values = value(points)
    if not np.all(np.isfinite(values)):
        raise ValueError(f"it is not finite at h = {points[~np.isfinite(values)].flat[0]:.6g}")
    return values
