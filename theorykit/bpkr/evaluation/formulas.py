"""Expressions of the action as JAX functions of arrays, with the numbers of an architecture."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float
from sympy import Expr, MatrixSymbol

from ...checks import checked_instance
from ...codegen import CompiledFunction, compile_expressions
from ..action.action import Action
from ..action.derivation import derive
from ..action.symbols import ActionSymbols
from ..order_parameters.order_parameters import OrderParameters
from ..specification.architecture import Architecture

Values = Mapping[Expr, ArrayLike]


class BoundAction(eqx.Module):
    """An action with the numbers of an architecture, with respect to which its values are differentiable."""

    architecture: Architecture
    action: Action = eqx.field(static=True)

    def __call__(self, values: Values, **expressions: Expr) -> dict[str, Array]:
        """Evaluate expressions by name, given the values of all symbols but the numbers of the architecture."""
        return compiled(self.action, **expressions).call_from(self.numbers() | values)

    @property
    def symbols(self) -> ActionSymbols:
        """The symbols of the action."""
        return self.action.symbols

    def numbers(self) -> dict[Expr, Array | int]:
        """Return the values of the architecture's symbols and sizes, except sigma_0^2, which is in the features."""
        architecture, symbols = self.architecture, self.symbols
        by_name = {
            **architecture.layer_numbers(),
            symbols.variances[-1].name: architecture.prior_variances[-1],
            symbols.temperature.name: architecture.temperature,
            "gamma_0": architecture.richness,
        }
        numbers = {symbol: jnp.asarray(by_name[symbol.name], dtype=jnp.float64) for symbol in symbols.numbers}
        sizes = architecture.size_values()
        return {**numbers, **{symbol: sizes[symbol.name] for symbol in symbols.sizes}}

    def point(self, order_parameters: OrderParameters) -> dict[Expr, Array]:
        """Return the values of the order parameters' symbols."""
        matrices = order_parameters.matrices
        # Without layers, the readout is the matrix U_1 even if it has one entry.
        readout = order_parameters.readout if matrices else order_parameters.first
        return dict(zip(self.symbols.order_parameters, (*matrices, readout), strict=True))

    def data(self, features: Array, labels: Array) -> dict[Expr, Array]:
        """Return the values of the symbols of training features (examples, paths, features) and labels."""
        flat = flat_features(self.architecture, features)
        return {self.symbols.features: flat, self.symbols.labels: labels.reshape(-1, 1)}

    def entropy(self, order_parameters: OrderParameters) -> Float[Array, ""]:
        """Return S_a + S_1 + ... + S_L, undivided."""
        return self(self.point(order_parameters), entropy=self.action.entropy)["entropy"]


def bind(architecture: Architecture) -> BoundAction:
    """Derive the action of `architecture`, and bind it to its numbers."""
    return BoundAction(architecture, derive(architecture))


@lru_cache
def compiled(action: Action, **expressions: Expr) -> CompiledFunction:
    """Compile to a function of all symbols in the expressions, except sizes that follow from shapes."""
    symbols, free = action.symbols, set().union(*(each.free_symbols for each in expressions.values()))
    scalars = {*symbols.free, *symbols.numbers}
    arguments = [symbol for symbol in free if isinstance(symbol, MatrixSymbol) or symbol in scalars]
    arguments.sort(key=lambda symbol: symbol.name)
    return compile_expressions("_".join(expressions), expressions, symbols.completed(tuple(arguments)))


@lru_cache
def compiled_terms(action: Action) -> CompiledFunction:
    """Compile the entropies, the energy and their sum S to a function of order parameters, numbers and data."""
    outputs = entropies_by_name(action) | {"energy": action.energy, "total": action.total}  # Eq. (32)
    return compile_expressions("action", outputs, action.symbols.arguments)


def entropies_by_name(action: Action) -> dict[str, Expr]:
    """Return the entropy of every order parameter given the next, in the free order parameters."""
    names = *(f"entropy_{layer}" for layer in range(1, len(action.entropies))), "entropy_a"
    return dict(zip(names, map(action.substitute_nested, action.entropies), strict=True))


def generate_source(action: Action) -> str:
    """Return the source of the terms of the action, a function of arrays that imports nothing but JAX.

    It has one Cholesky factor per matrix, the shapes in the docstring, and the kernel K (Eq. 10) by name.
    """
    checked_instance("action", action, Action, "which bpkr.derive makes")
    return compiled_terms(action).source_with({action.kernel: "K"})


def flat_features(architecture: Architecture, features: Float[Array, "examples paths features"]) -> Array:
    """Return Phi_{(mu c)(pi c' i)} = phi^pi_{mu i} delta_{cc'}, with rows (example, output)."""
    design = jnp.einsum("pki,cd->pckdi", features, jnp.eye(architecture.outputs))
    return design.reshape(len(features) * architecture.outputs, -1)
