r"""Limiting spectral laws of large random matrices.

All laws reduce to one with two parameters: the free sum of a semicircle law of variance v
and a free Poisson law of rate c with jumps of size one. Its Stieltjes transform g solves

    x = 1/g + v g + c / (1 - g).

On the support, let g = r exp(-i phi) and m = |1 - g|. Since x is real,

    r = m / sqrt(c + v m^2),   x = v + c / m^2 - v m^2 + v r^2,

while the density r sin(phi) / pi follows from the triangle with sides 1, r and m. It
vanishes if m + r = 1 at the right edge, m - r = 1 at the left edge, and r - m = 1 at the
edges of a gap, which closes at v = (1 - c^(1/3))^3. So no digits are lost at close edges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from jax.lax import stop_gradient
from jaxtyping import Array

from ..symbolic.atoms import checked_scalar
from ..symbolic.numeric import NumericFunction

# Bisections that determine a double in its bracket.
_BISECTIONS = 60
# Nodes of the quadrature over each interval of the support, in units of its
# step.
_STEPS = np.linspace(-3.4, 3.4, 121)


class Edges(NamedTuple):
    """Values of m at the right edge, the edges of the gap (equal without one), and the left edge."""

    right: Array
    first: Array
    second: Array
    left: Array
    has_gap: Array


class Nodes(NamedTuple):
    """Quadrature nodes of a law, with the density and the logarithmic potential there."""

    positions: Array
    masses: Array
    density: Array
    potential: Array


def _radius(m: Array, v: Array, c: Array) -> Array:
    return m / jnp.sqrt(c + v * m**2)


def _position(m: Array, v: Array, c: Array) -> Array:
    return v + c / m**2 - v * m**2 + v * _radius(m, v, c) ** 2


def _root(miss: Callable, slope: Callable, low: Array, high: Array, *parameters: Array) -> Array:
    """Return the only root in a bracket of one sign, with three correct derivatives."""
    low, high = map(stop_gradient, (low, high))
    fixed = tuple(map(stop_gradient, parameters))
    sign = jnp.sign(low)
    low, high = jnp.log(jnp.abs(low)), jnp.log(jnp.abs(high))
    is_positive = miss(sign * jnp.exp(high), *fixed) > 0

    def halve(_, ends):
        low, high = ends
        middle = (low + high) / 2
        is_above = (miss(sign * jnp.exp(middle), *fixed) > 0) == is_positive
        return jnp.where(is_above, low, middle), jnp.where(is_above, middle, high)

    low, high = jax.lax.fori_loop(0, _BISECTIONS, halve, (low, high))
    root = sign * jnp.exp((low + high) / 2)
    # If k derivatives are correct, a Newton step makes it 2k + 1: here 0, then 1, then
    # 3.
    for _ in range(2):
        by = slope(root, *parameters)
        root = root - jnp.where(by == 0, 0.0, miss(root, *parameters) / jnp.where(by == 0, 1.0, by))
    return root


def _edge(a: int, b: int, low: Array, high: Array, v: Array, c: Array) -> Array:
    """Return the root of a m + b r(m) = 1 in a bracket."""
    miss = lambda m, v, c: a * m + b * _radius(m, v, c) - 1  # noqa: E731
    slope = lambda m, v, c: a + b * c / jnp.sqrt(c + v * m**2) ** 3  # noqa: E731
    return _root(miss, slope, low, high, v, c)


def _edges(v: Array, c: Array) -> Edges:
    root, one = jnp.sqrt(c), jnp.ones_like(c)
    right = _edge(1, 1, root / (1 + root), one, v, c)
    # For c < 1, there is a gap if r - m exceeds one at its peak.
    is_few = c < 1
    few = jnp.where(is_few, c, 0.5)
    closing = (1 - jnp.cbrt(few)) ** 3
    has_gap = is_few & (v < closing)
    peak = jnp.sqrt((jnp.cbrt(few) ** 2 - few) / v)
    left = _edge(1, -1, jnp.where(is_few, jnp.maximum(1.0, peak), 1.0), 1 + 1 / jnp.sqrt(v), v, c)
    is_inside = is_few & (peak > right) & (peak < left)
    split = stop_gradient(jnp.where(is_inside, peak, jnp.sqrt(right * left)))
    # Without a gap, the edges of another law are not used.
    own_v = jnp.where(has_gap, v, closing / 2)
    own_peak = jnp.sqrt((jnp.cbrt(few) ** 2 - few) / own_v)
    first = _edge(-1, 1, jnp.sqrt(few) / (1 - jnp.sqrt(few)), own_peak, own_v, few)
    second = _edge(-1, 1, own_peak, 1 / jnp.sqrt(own_v), own_v, few)
    return Edges(right, jnp.where(has_gap, first, split), jnp.where(has_gap, second, split), left, has_gap)


def _checked(v: Any, c: Any) -> tuple[Array, Array, Array]:
    """Return parameters that are positive, and zero or NaN to add to results."""
    v, c = jnp.broadcast_arrays(jnp.asarray(v, float), jnp.asarray(c, float))
    is_law = (v > 0) & (c > 0) & jnp.isfinite(v) & jnp.isfinite(c)
    return jnp.where(is_law, v, 1.0), jnp.where(is_law, c, 1.0), jnp.where(is_law, 0.0, jnp.nan)


def nodes(v: Any, c: Any) -> Nodes:
    """Return quadrature nodes along the first axis, NaN unless v > 0 and c > 0.

    The rule of Takahasi and Mori (1974) in log m resolves square roots at the ends, and
    singularities beyond them, such as the edges of a gap that almost closes.
    """
    v, c, nan = _checked(v, c)
    exponents = np.pi * np.sinh(_STEPS).reshape(-1, *(1 for _ in v.shape))
    # 1 - below would lose digits.
    below, above = 1 / (1 + np.exp(-exponents)), 1 / (1 + np.exp(exponents))
    weights = (_STEPS[1] - _STEPS[0]) * np.sqrt(np.pi**2 + exponents**2) * below * above
    edges, parts = _edges(v, c), []
    for low, high in ((edges.right, edges.first), (edges.second, edges.left)):
        length = jnp.log(high / low)
        m = jnp.where(below < 0.5, low * jnp.exp(length * below), high * jnp.exp(-length * above))
        parts.append((m, length * weights))
    m, weights = (jnp.concatenate(each) for each in zip(*parts, strict=True))
    r, x = _radius(m, v, c), _position(m, v, c)
    # Heron's formula for the area of the triangle gives the imaginary part of g.
    area = (1 + r + m) * (1 + r - m) * (m - (1 - r)) * (m + (1 - r))
    height = jnp.where(area > 0, jnp.sqrt(jnp.where(area > 0, area, 1.0)), 0.0) / 2 + nan
    # Minus the derivative of x by log m.
    speed = 2 * (c / m**2 + v * m**2) - 2 * c * v * m**2 / (c + v * m**2) ** 2
    # The real part of g, and the potential Re[x g - 1 - log g - v g^2 / 2 + c log(1 -
    # g)].
    real = (1 + r**2 - m**2) / 2
    potential = x * real - 1 - jnp.log(r) - v * (real**2 - height**2) / 2 + c * jnp.log(m)
    return Nodes(x, height / jnp.pi * speed * weights, height / jnp.pi, potential)


def _cube_of_density(v: Any, c: Any) -> Array:
    of_law = nodes(v, c)
    return jnp.sum(of_law.masses * of_law.density**2, axis=0)


def _log_energy(v: Any, c: Any) -> Array:
    of_law = nodes(v, c)
    return jnp.sum(of_law.masses * of_law.potential, axis=0)


def _stieltjes(z: Any, *law: Any) -> Array:
    if len(law) == 1:
        # Without a semicircle the equation is quadratic: z g^2 - (z + 1 - c) g + 1 = 0.
        (c,) = law
        b = z + 1 - c
        square = jnp.where(c > 0, b**2 - 4 * z, jnp.nan)
        root = jnp.sqrt(jnp.where(square > 0, square, jnp.nan))
        signed = jnp.where(z > (1 + jnp.sqrt(c)) ** 2, root, -root)
        return jnp.where(b * signed > 0, 2 / (b + signed), (b - signed) / (2 * z))
    z, v, c = jnp.broadcast_arrays(*(jnp.asarray(each, float) for each in (z, *law)))
    v, c, nan = _checked(v, c)
    edges = _edges(v, c)
    right, first, second, left = (_position(m, v, c) for m in edges[:4])
    is_right, is_left, is_between = z > right, z < left, edges.has_gap & (z < first) & (z > second)
    is_outside = is_right | is_left | is_between
    z = jnp.where(is_outside, z, 2 * right + 1)
    # On each part, x(g) is monotone between infinity and an edge, or between two edges.
    low = jnp.where(is_left, -1 / jnp.maximum(c - z, 1e-300), jnp.where(is_between, 1 + edges.first, 1 / jnp.abs(z)))
    high = jnp.where(is_left, 1 - edges.left, jnp.where(is_between, 1 + edges.second, 1 - edges.right))
    miss = lambda g, z, v, c: 1 / g + v * g + c / (1 - g) - z  # noqa: E731
    slope = lambda g, z, v, c: -1 / g**2 + v + c / (1 - g) ** 2  # noqa: E731
    return jnp.where(is_outside, _root(miss, slope, low, high, z, v, c), jnp.nan) + nan


def _log_potential(z: Any, *law: Any) -> Array:
    g, v, c = _stieltjes(z, *law), law[0] if len(law) == 2 else 0.0, law[-1]
    return z * g - 1 - jnp.log(jnp.abs(g)) - v * g**2 / 2 + c * jnp.log(jnp.abs(1 - g))


class OfLaw(NumericFunction):
    """Function of other numbers and the parameters v and c. Without v, the law is free Poisson."""

    symbol = ""
    # Number of arguments before the parameters of the law.
    places = 0

    def _notation(self, printer):
        texts = [printer._print(each) for each in self.args]
        name = rf"{self.symbol}_{{{', '.join(texts[self.places :])}}}"
        return name, "".join(rf"\left({text}\right)" for text in texts[: self.places])


class StieltjesTransform(OfLaw):
    """Mean of 1 / (z - x) for a real z outside the support, and NaN inside."""

    nargs = (2, 3)
    places = 1
    symbol = "g"
    implementation = staticmethod(_stieltjes)

    def fdiff(self, argindex=1):
        """Differentiate the root of the equation of the law."""
        g, v, c = self, self.args[1] if len(self.args) == 3 else sp.S.Zero, self.args[-1]
        # dg/dz without a pole at g = 0 or g = 1.
        square = (1 - g) ** 2
        slope = g**2 * square / (v * g**2 * square + c * g**2 - square)
        return (slope, *(() if v == 0 else (-g * slope,)), -slope / (1 - g))[argindex - 1]


class LogPotential(OfLaw):
    """Mean of log|z - x| for a real z outside the support, and NaN inside."""

    nargs = (2, 3)
    places = 1
    symbol = "U"
    implementation = staticmethod(_log_potential)

    def fdiff(self, argindex=1):
        """Differentiate at fixed g, in which the potential is stationary."""
        g = StieltjesTransform(*self.args)
        of_variance = () if len(self.args) == 2 else (-(g**2) / 2,)
        return (g, *of_variance, sp.log(sp.Abs(1 - g)))[argindex - 1]


class CubeOfDensity(OfLaw):
    """Integral of the cube of the density, for positive v and c."""

    nargs = 2
    symbol = r"\left\langle\mu^{2}\right\rangle"
    implementation = staticmethod(_cube_of_density)


class LogEnergy(OfLaw):
    """Mean of log|x - y| over independent x and y, for positive v and c."""

    nargs = 2
    symbol = r"\Sigma"
    implementation = staticmethod(_log_energy)

    def fdiff(self, argindex=1):
        """The derivative by v is the free Fisher information: Voiculescu, Inventiones mathematicae 132, 189 (1998)."""
        if argindex == 1 and not self.orders:
            return sp.Rational(2, 3) * sp.pi**2 * CubeOfDensity(*self.args)
        return super().fdiff(argindex)


@dataclass(frozen=True)
class SpectralLaw:
    """Law of the eigenvalues of a large random matrix.

    Add laws for the law of the sum of two independent matrices, and multiply by a
    positive number to scale the eigenvalues. The parameters may be expressions.

    - `variance`: variance of the semicircle law.
    - `rate`, `jump`: rate and size of the jumps of the free Poisson law.

    Example:
        >>> import theorykit
        >>> from theorykit.theories import marchenko_pastur, semicircle
        >>> theorykit.enable_float64()
        >>> law = marchenko_pastur(2) + semicircle(1)
        >>> law.stieltjes(6).evalf(8)
        0.21433299
    """

    variance: sp.Expr = sp.S.Zero
    rate: sp.Expr = sp.S.Zero
    jump: sp.Expr = sp.S.One

    def __add__(self, other: SpectralLaw) -> SpectralLaw:
        if not isinstance(other, SpectralLaw):
            return NotImplemented
        if self.rate != 0 and other.rate != 0 and self.jump != other.jump:
            sizes = f"{self.jump} and {other.jump}"
            raise ValueError(f"free Poisson laws in a sum must have one size of jumps, got {sizes}")
        jump = self.jump if self.rate != 0 else other.jump
        return SpectralLaw(self.variance + other.variance, self.rate + other.rate, jump)

    def __mul__(self, factor: Any) -> SpectralLaw:
        factor = _positive("the factor of a law", factor)
        return SpectralLaw(self.variance * factor**2, self.rate, self.jump * factor)

    __rmul__ = __mul__

    @property
    def _law(self) -> tuple[sp.Expr, ...]:
        """Return v and c of the law with jumps of size one, or c alone if v is zero."""
        return (self.rate,) if self.variance == 0 else (self.variance / self.jump**2, self.rate)

    def stieltjes(self, z: sp.Expr | float) -> sp.Expr:
        """Return the mean of 1 / (z - s) over eigenvalues s, for z outside the support."""
        z = checked_scalar("z", z)
        if self.rate == 0:
            return 2 / (z + sp.sign(z) * sp.sqrt(z**2 - 4 * self.variance))
        return StieltjesTransform(z / self.jump, *self._law) / self.jump

    def log_potential(self, z: sp.Expr | float | int) -> sp.Expr:
        """Return the mean of log|z - s| over eigenvalues s, for z outside the support."""
        z = checked_scalar("z", z)
        if self.rate == 0:
            g = self.stieltjes(z)
            return z * g - 1 - sp.log(sp.Abs(g)) - self.variance * g**2 / 2
        return LogPotential(z / self.jump, *self._law) + sp.log(self.jump)

    def cube_of_density(self) -> sp.Expr:
        """Return the integral of the cube of the density, without an atom."""
        c = self.rate
        if c == 0:
            return 3 / (4 * sp.pi**2 * self.variance)
        if self.variance == 0:
            return 3 * sp.Min(1, c) ** 2 / (4 * sp.pi**2 * sp.Abs(1 - c)) / self.jump**2
        return CubeOfDensity(*self._law) / self.jump**2

    def log_energy(self) -> sp.Expr:
        """Return the mean of log|s - t| over independent eigenvalues: the free entropy."""
        c = self.rate
        if c == 0:
            return sp.log(self.variance) / 2 - sp.Rational(1, 4)
        if self.variance == 0:
            # The energy of an atom is log 0.
            atom = sp.log(sp.Max(0, c - 1)) if c.free_symbols else -sp.oo
            rest = -((c - 1) ** 2) * sp.atanh(1 / (2 * c - 1))
            cases = sp.Piecewise((atom, c < 1), (0, c <= 1), (rest, True))
            return c / 2 - 1 + sp.log(c) / 2 + sp.log(self.jump) + cases
        return LogEnergy(*self._law) + sp.log(self.jump)


def _positive(what: str, number: Any) -> sp.Expr:
    number = checked_scalar(what, number)
    if number.is_positive is False:
        raise ValueError(f"{what} must be positive, got {number}")
    return number


def marchenko_pastur(ratio: sp.Expr | float) -> SpectralLaw:
    """Return the law of the mean of n = ratio * d matrices w w^T, for standard normal w in R^d.

    For a ratio below one it has an atom of mass 1 - ratio at zero.

    Raises:
        ValueError: the ratio is known not to be positive.
    """
    ratio = _positive("the ratio of a Marchenko-Pastur law", ratio)
    return SpectralLaw(rate=ratio, jump=1 / ratio)


def semicircle(variance: sp.Expr | float) -> SpectralLaw:
    """Return the law of a large symmetric d x d matrix with independent entries.

    Their variance is `variance` / d.

    Raises:
        ValueError: the variance is known not to be positive.
    """
    return SpectralLaw(variance=_positive("the variance of a semicircle law", variance))
