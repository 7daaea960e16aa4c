"""Order parameters, overlaps of path weights: coordinates, metric and exact law.

Every order parameter is U_l = C_l C_l^T. Weight blocks of layer l have the prior
covariance W_l W_l^T with W_l = chol(covariance) (x) C_{l+1}. The factors are

    readout             C_{L+1} = sigma_a B
    layer               C_l = W_l B_l
    skip connection     C_l = [gain C_{l+1}, 0; W_l R_l, W_l B_l]

with a lower trapezoidal B of positive diagonal. Coordinates, from the readout to U_1:
the triangle of B with the logarithm of its diagonal, the rows of B below, and R.

Solvers use square B. Every real vector is then a point, and zero the Gaussian-process
limit. A step multiplies, B -> B T and R -> R + B r, so that its metric is of order one.

Under the prior of the weights, N_l^(1/2) R and N_l^(1/2) B below the diagonal are
standard normal, and N_l B_ii^2 is chi^2 distributed (Bartlett). If a layer has fewer
units than partial paths, B has fewer columns than rows, and U_l is singular.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import block_diag, solve_triangular
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from .. import checks
from .._compat import require_float64
from .._jit import usual_settings
from ..saddle.diagnosis import AbstractOutcome, report
from ..saddle.domains import entries_of_factor, filled_factor
from ..saddle.problem import Coordinates, Tangent
from ..symbolic.documents import DisplayMixin, Table, brief
from .specification.architecture import Architecture, check_fits, checked_architecture, layer_row, require_finite_widths
from .specification.layers import covariance_root, evaluate_form, prior_means

Number = Float[Array, ""]
Matrix = Float[Array | np.ndarray, "_ _"]
# Relative rounding error of a block across a skip connection.
_CONSISTENCY = 1e-8


def _matrices(values: Iterable[ArrayLike]) -> tuple[Array, ...]:
    given = enumerate(checks.checked_sequence("matrices", values, "matrices U_1, ..., U_L"))
    checked = (checks.numeric_array(f"matrices[{i}]", each, "rows columns") for i, each in given)
    return tuple(map(jnp.asarray, checked))


def _readout(value: ArrayLike) -> Array:
    require_float64()
    array = jnp.asarray(checks.numeric_array("readout", value))
    if array.ndim not in (0, 2):
        raise ValueError(f"readout must be a number or a matrix, got shape {array.shape}")
    return array


class OrderParameters(DisplayMixin, eqx.Module):
    """The order parameters (U_1, ..., U_L) and u = U_{L+1}.

    - `matrices`: U_l (n_l, n_l) from the input side, positive definite, with rows
      (path, output), the output fastest. If layer l has a skip connection of gain
      s, U_l begins with s^2 U_{l+1}.
    - `readout`: u > 0, or a positive definite matrix (outputs, outputs); with separate
      weights per token, rows are (token, output). Without layers it is U_1.
    """

    matrices: tuple[Float[Array, "_ _"], ...] = eqx.field(converter=_matrices)
    readout: Float[Array, "..."] = eqx.field(converter=_readout)

    def _view(self):
        yield Table(tuple(order_parameter_rows(self)))

    @property
    def first(self) -> Float[Array, "n n"]:
        """U_1, which determines the kernel."""
        return to_overlaps(self)[0]


def of_kernel(architecture: Architecture, point: OrderParameters) -> Matrix:
    """Return U_1, or a block per level that the kernel reads."""
    if not architecture.between:
        return point.first
    overlaps = to_overlaps(point)
    return block_diag(*(overlaps[level] for level in architecture.kernel_levels))


def add_of_kernel(architecture: Architecture, slopes: OrderParameters, slope: Matrix) -> OrderParameters:
    overlaps, start = to_overlaps(slopes), 0
    for level in architecture.kernel_levels:
        end = start + len(overlaps[level])
        overlaps[level] = overlaps[level] + slope[start:end, start:end]
        start = end
    return from_overlaps(overlaps)


def order_parameter_rows(point: OrderParameters) -> Iterator[tuple[str, str]]:
    names = *(f"$U_{layer}$" for layer in range(1, len(point.matrices) + 1)), "$u$"
    yield from zip(names, map(brief, jax.tree.leaves(point)), strict=True)


PointLike = OrderParameters | AbstractOutcome


def to_overlaps(order_parameters: OrderParameters) -> list[Matrix]:
    """Return [U_1, ..., U_{L+1}], all as matrices."""
    readout = order_parameters.readout
    return [*order_parameters.matrices, readout.reshape(1, 1) if readout.ndim == 0 else readout]


def from_overlaps(overlaps: Iterable[Array | np.ndarray]) -> OrderParameters:
    *matrices, readout = overlaps
    return OrderParameters(tuple(matrices), readout[0, 0] if len(readout) == 1 else readout)


def gp_limit(architecture: Architecture) -> OrderParameters:
    """Return the prior means of the order parameters, their values at infinite width."""
    require_float64()
    sizes = checked_architecture(architecture).overlap_sizes
    size, outer = sizes[0], sizes[-1]
    # Three copies are in memory, measured.
    check_fits(architecture, f"making U_1, {size:,} x {size:,}", 3 * size**2)
    readout = checks.on_host(architecture.prior_variances[-1]) * np.eye(outer)
    matrices = prior_means(architecture.forms, architecture.layer_numbers(), readout)
    return from_overlaps((*matrices, readout))


def checked_order_parameters(
    architecture: Architecture, point: Any, name: str = "order_parameters", *, singular: bool = False
) -> OrderParameters:
    """Require order parameters that fit and are positive (semi)definite.

    The result of a solve has them; if it failed, there is a warning.
    """
    is_solution = isinstance(point, AbstractOutcome)
    given = point.order_parameters if is_solution else point
    checks.checked_instance(name, given, OrderParameters, "such as the result of bpkr.solve")
    sizes = checked_architecture(architecture).overlap_sizes
    found = tuple(map(len, to_overlaps(given)))
    if found != sizes:
        raise ValueError(f"{name}: U_1, ..., u must have {sizes} rows for this architecture, got {found}")
    if is_solution:
        # Numbers, such as the temperature, may differ.
        both = point.architecture, architecture
        kinds = [(jax.tree.structure(each.layers), each.embedding, each.outputs) for each in both]
        if kinds[0] != kinds[1]:
            lines = (f"outputs={each.outputs}, {layer_row(each)}" for each in both)
            raise ValueError(f"{name} solve another architecture: {'; not '.join(lines)}")
        report(point, throw=False, stacklevel=3)
        return given
    names = [*(f"{name}: U_{layer}" for layer in range(1, len(sizes))), f"{name}: u"]
    check = partial(checks.checked_positive_definite, singular=singular)
    overlaps = list(map(check, names, to_overlaps(jax.tree.map(checks.on_host, point)), sizes))
    numbers = architecture.layer_numbers()
    for i, form in enumerate(architecture.forms):
        if form.has_skip:
            expected = evaluate_form(form.gain, numbers) ** 2 * overlaps[i + 1]
            block = overlaps[i][: len(expected), : len(expected)]
            largest = jnp.max(jnp.abs(expected))
            is_block = checks.on_host(jnp.max(jnp.abs(block - expected)) <= _CONSISTENCY * largest)
            message = f"{names[i]} must begin with U_{i + 2} times the squared gain of the skip"
            overlaps[i] = checks.require(overlaps[i], [checks.Requirement(message, is_block)])
    return from_overlaps(overlaps)


class Level(NamedTuple):
    """Sizes of B (rows x columns) and R (rows x crossing) of one order parameter."""

    rows: int
    columns: int
    crossing: int

    @property
    def rank(self) -> int:
        return self.crossing + self.columns

    @property
    def triangle(self) -> int:
        return self.columns * (self.columns + 1) // 2

    @property
    def coordinates(self) -> int:
        below = (self.rows - self.columns) * self.columns
        return self.triangle + below + self.rows * self.crossing

    @property
    def own(self) -> np.ndarray:
        """Ones, with zeros in the block of U_l that is U_{l+1}."""
        nested = np.arange(self.crossing + self.rows) < self.crossing
        return 1.0 - np.outer(nested, nested)


def levels_of(architecture: Architecture, widths: tuple[float, ...] | None = None) -> tuple[Level, ...]:
    """Return the sizes from the readout to U_1: of square B, or at `widths`."""
    *widths, last = widths or (math.inf,) * (architecture.depth + 1)
    outer = architecture.overlap_sizes[-1]
    layers = zip(architecture.forms, architecture.branches, widths, strict=True)
    levels = [Level(outer, int(min(outer, last)), 0)]
    for form, branches, width in reversed(list(layers)):
        crossing = form.has_skip * levels[-1].rank
        rows = branches * levels[-1].rank - crossing
        levels.append(Level(rows, int(min(rows, width - crossing)), crossing))
    return tuple(levels)


def gp_coordinates(architecture: Architecture) -> Coordinates:
    return jnp.zeros(sum(level.coordinates for level in levels_of(architecture)))


def _parts(levels: Iterable[Level], coordinates, step=None) -> list:
    """Return pairs (B, R), from the readout, at `coordinates` or after a `step`."""
    if step is not None:
        pairs = zip(_parts(levels, coordinates), _parts(levels, step), strict=True)
        return [(b @ turn, r + b @ shift) for (b, r), (turn, shift) in pairs]
    parts = []
    for level in levels:
        below = level.rows - level.columns
        ends = np.cumsum([level.triangle, below * level.columns, level.rows * level.crossing])
        triangle, trapezoid, crossing, coordinates = jnp.split(coordinates, ends)
        blocks = filled_factor(triangle, level.columns)
        if below:
            blocks = jnp.concatenate([blocks, trapezoid.reshape(below, level.columns)])
        parts.append((blocks, crossing.reshape(level.rows, level.crossing)))
    return parts


def _factors_of(architecture: Architecture, parts: Sequence) -> list[Matrix]:
    numbers, ((readout, _), *layers) = architecture.layer_numbers(), parts
    factors = [jnp.sqrt(architecture.prior_variances[-1]) * readout]
    for form, (blocks, crossing) in zip(reversed(architecture.forms), layers, strict=True):
        outer = factors[0]
        whitening = jnp.kron(covariance_root(form, numbers), outer)
        factor = whitening @ blocks
        if form.has_skip:
            nested = evaluate_form(form.gain, numbers) * outer
            above = jnp.pad(nested, ((0, 0), (0, blocks.shape[1])))
            factor = jnp.concatenate([above, jnp.hstack([whitening @ crossing, factor])])
        factors.insert(0, factor)
    return factors


def factors_at(architecture: Architecture, *coordinates: Coordinates) -> list[Matrix]:
    """Return [C_1, ..., C_{L+1}] at coordinates, or after a step from them."""
    return _factors_of(architecture, _parts(levels_of(architecture), *coordinates))


def moved(architecture: Architecture, coordinates: Coordinates, step: Coordinates) -> Coordinates:
    """Return the coordinates after a step, with T and r in the places of B and R."""
    parts = _parts(levels_of(architecture), coordinates, step)
    return jnp.concatenate([piece for b, r in parts for piece in (entries_of_factor(b), r.ravel())])


def of_factors(factors: Iterable[Matrix]) -> OrderParameters:
    return from_overlaps(factor @ factor.T for factor in factors)


def to_order_parameters(architecture: Architecture, coordinates: Coordinates) -> OrderParameters:
    return of_factors(factors_at(architecture, coordinates))


def from_order_parameters(architecture: Architecture, order_parameters: OrderParameters) -> Coordinates:
    numbers = architecture.layer_numbers()
    *matrices, readout = to_overlaps(order_parameters)
    outer = jnp.linalg.cholesky(readout)
    pieces = [entries_of_factor(outer / jnp.sqrt(architecture.prior_variances[-1]))]
    for form, matrix in zip(reversed(architecture.forms), reversed(matrices), strict=True):
        factor = jnp.linalg.cholesky(matrix)
        skip = len(outer) if form.has_skip else 0
        whitening = jnp.kron(covariance_root(form, numbers), outer)
        white = solve_triangular(whitening, factor[skip:], lower=True)
        pieces += [entries_of_factor(white[:, skip:]), white[:, :skip].ravel()]
        outer = factor
    return jnp.concatenate(pieces)


def log_volume(architecture: Architecture, coordinates: Coordinates) -> Number:
    """Return log |dU/dtheta| of the free entries up to a constant."""
    parts = _parts(levels_of(architecture), coordinates)
    total = jnp.zeros(())
    for (blocks, crossing), factor in zip(parts, reversed(_factors_of(architecture, parts)), strict=True):
        rows, nested = crossing.shape
        of_factor, of_blocks = (jnp.log(jnp.diagonal(each)) for each in (factor, blocks))
        # diag(C_l) = diag(W_l) diag(B).
        log_whitening = jnp.sum(of_factor[nested:]) - jnp.sum(of_blocks)
        total += jnp.sum((rows + 1 - np.arange(rows)) * of_blocks)  # d(B B^T)
        total += (rows + 1 + nested) * log_whitening + rows * jnp.sum(of_factor[:nested])
    return total


# Tangents dU_l = C_l dW_l C_l^T have the length |dW_l|. A block U_{l+1} counts there.


def gradient_length(architecture: Architecture, factors: Sequence[Matrix], gradient: OrderParameters) -> Number:
    """Return the length |C^T (dS/dU) C| of a gradient, over all U = C C^T."""
    square, inherited = jnp.zeros(()), 0.0
    levels = reversed(levels_of(architecture))
    for level, factor, slope in zip(levels, factors, to_overlaps(gradient), strict=True):
        whitened = factor.T @ slope @ factor + inherited
        nested = level.crossing
        inherited = whitened[:nested, :nested] if nested else 0.0
        square += jnp.sum((whitened * level.own) ** 2)
    return jnp.sqrt(square)


def metric(architecture: Architecture, factors: Sequence[Matrix], changes: Sequence[Array]) -> Matrix:
    """Return the inner products of `changes` of the `factors`, stacked along axis 0."""
    products = jnp.zeros(())
    levels = reversed(levels_of(architecture))
    for level, factor, change in zip(levels, factors, changes, strict=True):
        # C^-1 A for every change A, side by side.
        size = len(factor)
        side_by_side = change.swapaxes(0, 1).reshape(size, -1)
        white = solve_triangular(factor, side_by_side, lower=True)
        white = white.reshape(size, -1, size).swapaxes(0, 1)
        flat = ((white + white.swapaxes(1, 2)) * level.own).reshape(len(white), -1)
        products = products + flat @ flat.T
    return products


def displaced(architecture: Architecture, point: OrderParameters, tangent: Tangent) -> OrderParameters:
    """Return C_l (I + dW_l) C_l^T, given the orthonormal components of all dW_l."""
    found, change = [], jnp.zeros(())
    overlaps = reversed(to_overlaps(point))
    for level, overlap in zip(levels_of(architecture), overlaps, strict=True):
        rows, columns = np.nonzero(np.triu(level.own))
        components, tangent = jnp.split(jnp.asarray(tangent), [len(rows)])
        weight = np.where(rows == columns, 0.5, 0.5**0.5)
        # That of U_{l+1} fills the block across a skip connection.
        nested = level.crossing
        inner = jnp.pad(change[:nested, :nested], (0, level.rows)) if nested else 0.0
        upper = jnp.zeros(overlap.shape).at[rows, columns].set(weight * components)
        change = inner + upper + upper.T
        factor = jnp.linalg.cholesky(overlap)
        found.insert(0, overlap + factor @ change @ factor.T)
    return from_overlaps(found)


class FiniteWidthLaw(eqx.Module):
    """The law of the order parameters under the prior, made by `finite_width_law`.

    Its coordinates are those of N_l^(1/2) B, with the diagonal log(1 + exp(t)), and
    N_l^(1/2) R.
    """

    architecture: Architecture
    levels: tuple[Level, ...] = eqx.field(static=True)

    @property
    def dimension(self) -> int:
        return sum(level.coordinates for level in self.levels)

    @property
    def diagonal(self) -> np.ndarray:
        places, start = [], 0
        for level in self.levels:
            # In the order of `filled_factor`.
            triangle = start + np.arange(level.triangle)
            filled = np.concatenate([triangle[level.columns :], triangle[::-1]])
            places.append(filled[:: level.columns + 1])
            start += level.coordinates
        return np.concatenate(places)

    @property
    def degrees(self) -> Float[Array, " diagonal"]:
        """Degrees of freedom of the squared diagonals of all B."""
        pairs = zip(reversed(self.architecture.widths), self.levels, strict=True)
        return jnp.concatenate([width - each.crossing - np.arange(each.columns) for width, each in pairs])

    @usual_settings()
    def log_prior(self, coordinates: Coordinates) -> Number:
        coordinates = self._checked(coordinates)
        degrees = self.degrees
        t = coordinates[self.diagonal]
        diagonal = jax.nn.softplus(t)
        chi = (degrees - 1) * jnp.log(diagonal) - diagonal**2 / 2
        chi -= (degrees / 2 - 1) * np.log(2.0)
        chi += jax.nn.log_sigmoid(t) - jax.scipy.special.gammaln(degrees / 2)  # dB/dt
        normal = jnp.delete(coordinates, self.diagonal, assume_unique_indices=True)
        return jnp.sum(chi) - jnp.sum(normal**2 + np.log(2 * np.pi)) / 2

    @usual_settings()
    def sample(self, key: PRNGKeyArray) -> Coordinates:
        require_float64()
        chi_key, normal_key = jax.random.split(key)
        diagonal = jnp.sqrt(2 * jax.random.gamma(chi_key, self.degrees / 2))
        normal = jax.random.normal(normal_key, (self.dimension,))
        return normal.at[self.diagonal].set(from_positive(diagonal))

    @usual_settings()
    def order_parameters(self, coordinates: Coordinates) -> OrderParameters:
        """Return the order parameters at `coordinates`; they may be singular."""
        coordinates = self._checked(coordinates)
        logarithms = jnp.log(jax.nn.softplus(coordinates[self.diagonal]))
        parts = _parts(self.levels, coordinates.at[self.diagonal].set(logarithms))
        roots = map(jnp.sqrt, reversed(self.architecture.widths))
        scaled = [(b / root, r / root) for (b, r), root in zip(parts, roots, strict=True)]
        return of_factors(_factors_of(self.architecture, scaled))

    def _checked(self, coordinates: Coordinates) -> Coordinates:
        require_float64()
        shape = jnp.shape(coordinates)
        size = self.dimension
        if shape != (size,):
            raise ValueError(f"coordinates must have shape {(size,)}, got {shape}")
        return jnp.asarray(coordinates)


def finite_width_law(architecture: Architecture) -> FiniteWidthLaw:
    """Return the exact law of the order parameters at the widths of `architecture`.

    Raises:
        ValueError: a width is traced, or below the number of partial paths and not
            a whole number.
    """
    require_finite_widths(checked_architecture(architecture), "the law of the order parameters")
    if checks.is_traced(architecture.widths):
        raise ValueError("widths must not be traced")
    widths = tuple(map(float, architecture.widths))
    law = FiniteWidthLaw(architecture, levels_of(architecture, widths))
    check_fits(architecture, "one set of coordinates", law.dimension)
    for level, width in zip(law.levels, reversed(widths), strict=True):
        if level.columns < level.rows and not width.is_integer():
            raise ValueError(f"widths below the number of paths must be whole, got {width}")
    return law


def from_positive(diagonal: Array) -> Array:
    """Return the coordinate t of a diagonal entry B_ii = log(1 + exp(t))."""
    return diagonal + jnp.log(-jnp.expm1(-diagonal))
