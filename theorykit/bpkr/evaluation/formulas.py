"""The action as functions of arrays, and its energy as a function of U_1."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float
from sympy import Expr, MatrixSymbol

from ...checks import checked_instance
from ...codegen import compile_expressions
from ...codegen.compiled import CompiledFunction
from ..action.action import Action
from ..action.derivation import derive
from ..action.symbols import ActionSymbols
from ..data.canonical import Examples
from ..features.kernels import PathMatrix
from ..order_parameters import Number, OrderParameters, from_overlaps
from ..specification.architecture import Architecture

EPS = float(np.finfo(np.float64).eps)
# Covers nearly all rounding errors, which are estimated with random signs.
MARGIN = 4.0
# Stop sweeps at this change relative to the first pass, or after so many passes.
_SETTLED, _PASSES = 0.03, 30


class BoundAction(eqx.Module):
    architecture: Architecture
    action: Action = eqx.field(static=True)

    def __call__(self, values: Mapping[Expr, Any], **expressions: Expr) -> dict[str, Array]:
        """Evaluate expressions, given the `values` of all other symbols."""
        return compiled(self.action, **expressions).call_from(self.numbers() | values)

    @property
    def symbols(self) -> ActionSymbols:
        return self.action.symbols

    def numbers(self) -> dict[Expr, Array | int]:
        """Return numbers and sizes, except sigma_0^2, which is in the features."""
        values = self.architecture.layer_numbers()
        symbols = self.symbols
        found = {each: jnp.asarray(values[each.name], float) for each in symbols.numbers}
        return found | {each: values[each.name] for each in symbols.sizes}

    def point(self, order_parameters: OrderParameters) -> dict[Expr, Array]:
        matrices = order_parameters.matrices
        # Without layers, the readout is the matrix U_1 even if it has one entry.
        readout = order_parameters.readout if matrices else order_parameters.first
        return dict(zip(self.symbols.order_parameters, (*matrices, readout), strict=True))

    def data(self, features: Array, labels: Array) -> dict[Expr, Array]:
        flat = flat_features(self.architecture, features)
        return {self.symbols.features: flat, self.symbols.labels: labels.reshape(-1, 1)}

    def entropy(self, order_parameters: OrderParameters) -> Number:
        """Return S_a + S_1 + ... + S_L, undivided."""
        return self(self.point(order_parameters), entropy=self.action.entropy)["entropy"]


def bind(architecture: Architecture) -> BoundAction:
    return BoundAction(architecture, derive(architecture))


@lru_cache
def compiled(action: Action, **expressions: Expr) -> CompiledFunction:
    """Compile a function of all symbols, except sizes that follow from shapes."""
    symbols = action.symbols
    scalars = {*symbols.free, *symbols.numbers}
    free = set().union(*(each.free_symbols for each in expressions.values()))
    needed = (each for each in free if isinstance(each, MatrixSymbol) or each in scalars)
    arguments = symbols.completed(tuple(sorted(needed, key=lambda symbol: symbol.name)))
    return compile_expressions("_".join(expressions), expressions, arguments)


@lru_cache
def compiled_terms(action: Action) -> CompiledFunction:
    outputs = entropies_by_name(action) | {"energy": action.energy, "total": action.total}  # Eq. (32)
    return compile_expressions("action", outputs, action.symbols.arguments)


def entropies_by_name(action: Action) -> dict[str, Expr]:
    names = [f"entropy_{layer}" for layer in range(1, len(action.entropies))]
    entropies = map(action.substitute_nested, action.entropies)
    return dict(zip([*names, "entropy_a"], entropies, strict=True))


def generate_source(action: Action) -> str:
    """Return the source of the terms of the action, a function that imports only JAX."""
    checked_instance("action", action, Action, "which bpkr.derive makes")
    return compiled_terms(action).source_with({action.kernel: "K"})


def flat_features(architecture: Architecture, features: Array) -> Array:
    """Return Phi_{(mu c)(pi c' i)} = phi^pi_{mu i} delta_{cc'}."""
    design = jnp.einsum("pki,cd->pckdi", features, jnp.eye(architecture.outputs))
    return design.reshape(len(features) * architecture.outputs, -1)


class EnergyPoint(eqx.Module):
    """The energy E at one U_1, and its gradient.

    - `resolvent`: R = (K + T I)^-1.
    - `representer`: v, R y times the root of the likelihood's power. The gradient
      in K is R - v v^T.
    """

    u1: PathMatrix
    value: Number
    slope: PathMatrix
    resolvent: Float[Array, "rows rows"]
    representer: Float[Array, "rows one"]


class Energy(eqx.Module):
    bound: BoundAction
    examples: Examples

    @property
    def label_constant(self) -> Number:
        """The terms of the labels' log density that S drops."""
        if self.bound.architecture.is_infinite:
            return jnp.zeros(())
        count = len(self.examples.labels) + self.examples.omitted
        return count * jnp.log(self.bound.architecture.root_power**2 / (2 * jnp.pi)) / 2

    def value(self, u1: PathMatrix) -> Number:
        return self._solved(u1)["energy"]

    def at(self, u1: PathMatrix) -> EnergyPoint:
        """Compute E and its gradient; NaN if the kernel has no Cholesky factor."""
        value, resolvent, representer = self._solved(u1).values()
        in_kernel = -representer @ representer.T
        if not self.bound.architecture.is_infinite:
            in_kernel += resolvent
        slope = self.examples.kernel.gradient(u1, in_kernel)
        return EnergyPoint(u1, value, slope, resolvent, representer)

    def log_likelihood(self, u1: PathMatrix) -> Number:
        """Return log p(y), with first derivatives in U_1 and the features.

        Higher derivatives in K are zero. It takes half the time of automatic differentiation.
        """
        fixed, here = jax.lax.stop_gradient((self, u1))
        point = fixed.at(here)
        in_kernel = point.resolvent - point.representer @ point.representer.T
        kernel = self.examples.kernel.matrix(u1)
        change = kernel - jax.lax.stop_gradient(kernel)
        return self.label_constant - (point.value + jnp.sum(in_kernel * change)) / 2

    def _solved(self, u1: PathMatrix) -> dict[str, Array]:
        bound = self.bound
        examples = self.examples
        form = self.bound.action.of_kernels
        given = {form.kernel: examples.kernel.matrix(u1), bound.symbols.labels: examples.labels}
        solved = {"resolvent": form.resolvent, "representer": form.representer}
        found = bound(given, energy=form.energy, **solved)
        # At T = 0 no rows are omitted or added.
        temperature = jnp.asarray(bound.architecture.temperature)
        positive = jnp.where(temperature > 0, temperature, 1.0)
        of_omitted = bound.architecture.root_power**2 * examples.unexplained / positive
        if not self.bound.architecture.is_infinite:
            of_omitted += examples.omitted * jnp.log(positive)
        found["energy"] += of_omitted
        return found

    def bounded(self, point: EnergyPoint, share: Array | float = 1.0) -> "BoundedEnergy":
        """Bound a `share` of the misfit from above, and linearise the rest of E."""
        part = share * self.examples.kernel.gradient_of_square(point.u1, point.representer)
        return BoundedEnergy(self.bound, point.slope + part, point.u1 @ part @ point.u1)

    def curvature(self, point: EnergyPoint) -> Array:
        solved = point.resolvent, point.representer
        return self.examples.kernel.curvature(*solved, not self.bound.architecture.is_infinite)

    def rounding(self, point: EnergyPoint) -> Number:
        """Estimate the rounding error of E, in units of eps.

        A Cholesky factorisation rounds A_ij by about eps (A_ii A_jj)^(1/2) (Higham,
        Accuracy and Stability of Numerical Algorithms, chapter 10). With random signs,
        the error of log det A is about eps |D A^-1 D|, D = diag(A)^(1/2), and that of
        b^T A^-1 b about eps sum_i (A^-1 b)_i^2 A_ii.
        """
        u1 = point.u1
        resolvent = point.resolvent
        representer = point.representer[:, 0]
        architecture = self.bound.architecture
        temperature = architecture.temperature
        norms = jnp.sqrt(self.examples.kernel.squares)
        norms = jnp.kron(norms, jnp.eye(architecture.outputs))
        # The size of the terms that are added up in the diagonal of the kernel.
        scale = jnp.einsum("ap,ab,bp->p", norms, jnp.abs(u1), norms) + temperature
        square = representer @ representer
        misfit = architecture.root_power * representer @ self.examples.labels[:, 0]
        # The norms |W^(1/2) Phi^T R| and |W^(1/2) Phi^T v|, with K = Phi W Phi^T.
        of_resolvent = _root(jnp.trace(resolvent) - temperature * jnp.sum(resolvent**2))
        of_representer = _root(misfit - temperature * square)
        misplaced = 2 * _root(len(u1) * jnp.max(jnp.abs(u1))) * self.examples.error / EPS
        # The sum of the misfit and other terms is rounded too.
        error = jnp.sum(representer**2 * scale)
        error += jnp.abs(misfit) + jnp.abs(point.value - misfit)
        error += misplaced * jnp.sqrt(square) * of_representer
        if self.bound.architecture.is_infinite:
            return error
        return error + _log_det_error(resolvent, scale) + misplaced * of_resolvent


class BoundedEnergy(eqx.Module):
    """The bound tr(G_+ U_1) + tr(W U_1^-1) of the energy; see `Majoriser`."""

    bound: BoundAction
    logdet_gradient: PathMatrix  # G_+
    weight: PathMatrix  # W = U_0 G_- U_0

    def value(self, u1: PathMatrix) -> Number:
        return self._evaluated({self.bound.symbols.first: u1}, self.bound.action.majoriser.bound)

    def minimise(self, start: OrderParameters) -> OrderParameters:
        """Minimise entropy plus bound in each order parameter in turn."""
        minima = self.bound.action.majoriser.minima
        order = self.bound.symbols.order_parameters

        def change_of(new, old):
            return jnp.max(jnp.abs(new - old)) / jnp.max(jnp.abs(old))

        def goes_on(state):
            passes, first, change, _ = state
            return (passes < _PASSES) & ((passes < 2) | (change > _SETTLED * first))

        def once_more(state):
            passes, first, _, here = state
            values = self.bound.point(here)
            for symbol in reversed(order):
                value = self._evaluated(values, minima[symbol])
                values[symbol] = (value + value.T) / 2
            there = from_overlaps([jnp.atleast_2d(values[symbol]) for symbol in order])
            changes = jax.tree.leaves(jax.tree.map(change_of, there, here))
            largest = jnp.max(jnp.stack(changes))
            return passes + 1, jnp.where(passes == 0, largest, first), largest, there

        begin = jnp.array(0), jnp.array(0.0), jnp.array(0.0), start
        return jax.lax.while_loop(goes_on, once_more, begin)[-1]

    def _evaluated(self, values: Mapping[Expr, Array], expression: Expr) -> Array:
        form = self.bound.action.majoriser
        given = {form.logdet_gradient: self.logdet_gradient, form.weight: self.weight}
        return self.bound({**values, **given}, value=expression)["value"]


@lru_cache
def has_sweeps(action: Action) -> bool:
    """Return whether minima of entropy plus bound have closed forms that compile."""
    try:
        return bool([compiled(action, value=each) for each in action.majoriser.minima.values()])
    except NotImplementedError:
        return False


def entropy_rounding(architecture: Architecture, factors: Sequence[Array]) -> Number:
    """Estimate the rounding error of the entropy in units of eps, for U_l = C_l C_l^T."""
    widths = architecture.relative_widths
    total = jnp.zeros(())
    inner = 0.0
    # Each U_l enters two layers.
    for factor, width, branches in zip(factors, widths, (*architecture.branches, 0), strict=True):
        diagonal = jnp.sum(factor**2, axis=1)
        error = _log_det_error(cho_solve((factor, True), jnp.eye(len(factor))), diagonal)
        total += (width + inner) * (error + jnp.sum(jnp.abs(jnp.log(diagonal))))
        inner = width * branches
    return total


def _log_det_error(inverse: Float[Array, "n n"], diagonal: Float[Array, " n"]) -> Number:
    root = jnp.sqrt(diagonal)
    return jnp.sqrt(jnp.sum((root[:, None] * inverse * root) ** 2))


def _root(square: Number) -> Number:
    # Rounding can make the square negative.
    return jnp.sqrt(jnp.maximum(square, 0.0))
