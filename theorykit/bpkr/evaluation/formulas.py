"""The action as functions of arrays, compiled from its expressions and bound to the numbers of an architecture."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from sympy import Expr, MatrixSymbol

from ...checks import checked_instance
from ...codegen import CompiledFunction, compile_expressions
from ...symbolic import Heading, Text
from ...symbolic.documents.display import DisplayMixin
from ..action.action import Action
from ..action.derivation import derive
from ..action.document import kinds_of_layers
from ..action.symbols import ActionSymbols
from ..order_parameters.order_parameters import OrderParameters
from ..specification.activations import stable_name
from ..specification.architecture import Architecture


class CompiledAction(DisplayMixin):
    """Pure JAX functions of arrays, compiled from the expressions of `action` at their first use.

    The functions hold for one structure of layers with any numbers and head counts. No function is jitted.
    """

    def __init__(self, action: Action):
        self.action = action

    def _view(self):
        yield Heading(f"Functions of the action of a network of the layers: {kinds_of_layers(self.action)}", 1)
        functions = (name for name, each in vars(CompiledAction).items() if isinstance(each, cached_property))
        yield Text(", ".join(f"`{name}`" for name in functions))
        yield from self.terms.summary().blocks

    @cached_property
    def name_of_program(self) -> str | None:
        """Return a name of the expressions for `compilation.jit_and_keep`, or None if they contain Python code."""
        return stable_name(self.action.form)

    def _compile(self, name: str, outputs: Mapping[str, Expr]) -> CompiledFunction:
        """Compile to a function of all symbols in the outputs, except sizes that follow from shapes."""
        symbols, free = self.action.symbols, set().union(*(output.free_symbols for output in outputs.values()))
        scalars = {*symbols.free, *symbols.numbers}
        arguments = {symbol for symbol in free if isinstance(symbol, MatrixSymbol) or symbol in scalars}
        arguments = sorted(arguments, key=lambda symbol: symbol.name)
        return compile_expressions(name, outputs, symbols.completed(tuple(arguments)))

    @cached_property
    def _entropies(self) -> Mapping[str, Expr]:
        """The entropy of every order parameter given the next, by name, in the free order parameters."""
        *layers, readout = map(self.action.substitute_nested, self.action.entropies)
        return {**{f"entropy_{layer}": entropy for layer, entropy in enumerate(layers, 1)}, "entropy_a": readout}

    @cached_property
    def terms(self) -> CompiledFunction:
        """The entropies, the energy and the total S, Eq. (32)."""
        action = self.action
        outputs = {**self._entropies, "energy": action.energy, "total": action.total}
        return compile_expressions("action", outputs, action.symbols.arguments)

    @cached_property
    def entropies(self) -> CompiledFunction:
        """The entropy of every order parameter given the next, and their sum."""
        return self._compile("entropies", {**self._entropies, "entropy": self.action.entropy})

    @cached_property
    def entropy(self) -> CompiledFunction:
        """S_a + S_1 + ... + S_L."""
        return self._compile("entropy", {"entropy": self.action.entropy})

    @cached_property
    def corrections(self) -> CompiledFunction:
        """Terms that the exact prior at finite width adds to the entropy."""
        return self._compile("corrections", {"corrections": self.action.corrections})

    @cached_property
    def readout(self) -> CompiledFunction:
        """The stationary u, given U_L."""
        return self._compile("readout", {"u": self.action.readout_solution})

    @cached_property
    def kernel_energy(self) -> CompiledFunction:
        """The energy from K: also the resolvent (K + T I)^-1, the representer, and minus the misfit's slope in K."""
        names = "energy", "resolvent", "representer", "minus_misfit_slope"
        return self._compile("kernel_energy", {name: getattr(self.action.of_kernels, name) for name in names})

    @cached_property
    def predictor(self) -> CompiledFunction:
        """Mean and variance of the outputs from kernels, Eqs. (9), (29), (30)."""
        form = self.action.of_kernels
        return self._compile("predictor", {"mean": form.mean, "variance": form.variance})

    @cached_property
    def majorised_energy(self) -> CompiledFunction:
        """The bound on the energy, up to a constant."""
        return self._compile("majorised_energy", {"bound": self.action.majoriser.bound})

    @cached_property
    def minima(self) -> Mapping[Expr, CompiledFunction]:
        """Each closed form of `Action.majoriser`, given the other order parameters.

        Empty if one needs a square root of a matrix that is not known to be positive definite.
        """
        minima = self.action.majoriser.minima.items()
        try:
            return {symbol: self._compile(f"minimum_{symbol}", {symbol.name: minimum}) for symbol, minimum in minima}
        except NotImplementedError:
            return {}


def compile_action(action: Action) -> CompiledAction:
    """Compile the functions of `action`; the same action returns the same object."""
    return _functions_of(checked_instance("action", action, Action, "which bpkr.derive makes"))


_functions_of = lru_cache(CompiledAction)


def generate_source(action: Action) -> str:
    """Return the source of the terms of the action, a function of arrays that imports nothing but JAX.

    It has one Cholesky factor per matrix, the shapes in the docstring, and the kernel K (Eq. 10) by name. Paste it into
    your own code.
    """
    return compile_action(action).terms.source_with({action.kernel: "K"})


class BoundAction(eqx.Module):
    """The compiled action with the numbers of an architecture, with respect to which it is differentiable.

    To call a function of `compiled`, combine the symbol values that `numbers`, `point` and `data` return.
    """

    architecture: Architecture
    compiled: CompiledAction = eqx.field(static=True)

    @property
    def action(self) -> Action:
        """The expressions from which the functions were compiled."""
        return self.compiled.action

    @property
    def symbols(self) -> ActionSymbols:
        """The symbols of `action`."""
        return self.compiled.action.symbols

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

    @property
    def has_log_determinant(self) -> bool:
        """Whether the energy has a log-determinant: not at infinite width in the mean-field parameterisation."""
        return not self.architecture.is_infinite

    def numbers_of_predictor(self) -> dict[Expr, Array | int]:
        """Return `numbers`. At zero richness the network is a Gaussian process, with the standard variance."""
        numbers, richness = self.numbers(), self.symbols.richness
        if richness is None:
            return numbers
        return {**numbers, richness: jnp.where(numbers[richness] == 0, 1.0, numbers[richness])}

    def point(self, order_parameters: OrderParameters) -> dict[Expr, Array]:
        """Return the values of the order parameters' symbols."""
        values = (*order_parameters.matrices, order_parameters.readout)
        if not self.symbols.matrices:
            values = (order_parameters.first,)
        return dict(zip(self.symbols.order_parameters, values, strict=True))

    def data(
        self, features: Float[Array, "examples paths features"], labels: Float[Array, "examples *outputs"]
    ) -> dict[Expr, Array]:
        """Return the values of the symbols of a training set."""
        flat = flat_features(self.architecture, features)
        return {self.symbols.features: flat, self.symbols.labels: labels.reshape(-1, 1)}

    def entropy(self, order_parameters: OrderParameters) -> Float[Array, ""]:
        """Return S_a + S_1 + ... + S_L, undivided."""
        return self.compiled.entropy.call_from(self.numbers() | self.point(order_parameters))["entropy"]


def bind(architecture: Architecture) -> BoundAction:
    """Derive and compile the action of `architecture`, and bind it to its numbers."""
    return BoundAction(architecture, compile_action(derive(architecture)))


def flat_features(
    architecture: Architecture, features: Float[Array, "examples paths features"]
) -> Float[Array, "rows columns"]:
    """Return the matrix Phi with columns (path, output, feature): Phi_{(mu c)(pi c' i)} = phi^pi_{mu i} delta_{cc'}.

    For one output this is `features`, flattened.
    """
    design = jnp.einsum("pki,cd->pckdi", features, jnp.eye(architecture.outputs))
    return design.reshape(len(features) * architecture.outputs, -1)
