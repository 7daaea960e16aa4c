"""The action as functions of arrays, generated from its expressions and bound to the numbers of an architecture.

Stages 2 and 3 of `Architecture -> derive -> Action -> compile -> Problem -> solve -> predict`.
"""

from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from sympy import Expr, MatrixSymbol, Symbol

from ...checks import checked_instance
from ...codegen import CompiledFunction, compile_expressions
from ...symbolic import Heading, Text
from ...symbolic.documents.display import DisplayMixin
from ..action.action import Action
from ..action.derivation import derive
from ..action.document import kinds_of_layers
from ..action.symbols import ActionSymbols
from ..data.statistics import FeatureStatistics
from ..order_parameters.order_parameters import OrderParameters
from ..specification.activations import stable_name
from ..specification.architecture import Architecture


def _entropies(action: Action) -> Mapping[str, Expr]:
    """Return the entropy of every order parameter given the next, by name."""
    *layers, readout = action.entropies
    return {**{f"entropy_{layer}": entropy for layer, entropy in enumerate(layers, 1)}, "entropy_a": readout}


def _parts(form: Any, *names: str) -> Mapping[str, Expr]:
    return {name: getattr(form, name) for name in names}


# V has one row per row of the kernel, and any number of columns.
def _columns(action: Action) -> MatrixSymbol:
    return MatrixSymbol("V", action.symbols.features.shape[0], Symbol("k", integer=True, positive=True))


_GRADIENTS, _MOMENTS = ("logdet_gradient", "minus_misfit_gradient"), ("mean", "variance")
_OUTPUTS: Mapping[str, Callable[[Action], Mapping[str, Expr]]] = {
    "entropies": lambda action: {
        name: action.substitute_nested(entropy)
        for name, entropy in {**_entropies(action), "entropy": action.entropy}.items()
    },
    "entropy": lambda action: {"entropy": action.entropy},
    # Terms that the exact prior at finite width adds to the entropy.
    "corrections": lambda action: {"corrections": action.corrections},
    # The stationary u, given U_L.
    "readout": lambda action: {"u": action.readout_solution},
    # The bound on the energy, up to a constant.
    "majorised_energy": lambda action: {"bound": action.majoriser.bound},
    # Order parameters to first order in 1/N, given the force of `Action.expansion`.
    "first_order": lambda action: {symbol.name: value for symbol, value in action.expansion.order_parameters.items()},
    # Eq. (10)
    "training_kernel": lambda action: {"kernel": action.kernel},
    "kernel": lambda action: {"kernel": action.test_kernel},
    # (K + T I) V, multiplied from the right so that the kernel is never formed.
    "kernel_product": lambda action: {
        "product": action.kernel * _columns(action) + action.symbols.temperature * _columns(action)
    },
    # The energy, the resolvent (K + T I)^-1, the representer (K + T I)^-1 y, and minus the misfit's slope in K.
    "kernel_energy": lambda action: _parts(
        action.kernel_energy, "energy", "resolvent", "representer", "minus_misfit_slope"
    ),
    # Gradients in U_1, given resolvent and representer.
    "kernel_slopes": lambda action: _parts(action.kernel_energy, *_GRADIENTS),
    "dual_energy": lambda action: action.dual.parts,
    # Energy and gradients in one function, so that they share a factorisation.
    "dual_slopes": lambda action: {**action.dual.parts, **_parts(action.dual, *_GRADIENTS)},
    # Eqs. (9), (29), (30) from features, kernels, and second moments.
    "predictor": lambda action: _parts(action.predictor, *_MOMENTS),
    "kernel_predictor": lambda action: _parts(action.kernel_predictor, *_MOMENTS),
    "dual_predictor": lambda action: _parts(action.dual, *_MOMENTS),
}


class CompiledAction(DisplayMixin):
    """Pure JAX functions of arrays, generated from the expressions of `action` at their first use.

    The functions hold for one structure of layers with any numbers and head counts. They are the attributes `terms`,
    `minima`, and every name in `_OUTPUTS`. No function is jitted.
    """

    def __init__(self, action: Action):
        self.action = action
        self.columns = _columns(action)

    def _view(self):
        yield Heading(f"Functions of the action of a network of the layers: {kinds_of_layers(self.action)}", 1)
        yield Text(f"`terms`, `minima`, {', '.join(f'`{name}`' for name in _OUTPUTS)}.")
        yield from self.terms.summary().blocks

    def __getattr__(self, name: str) -> CompiledFunction:
        if name not in _OUTPUTS:
            raise AttributeError(f"CompiledAction has no function {name!r}")
        found = self._compile(name, _OUTPUTS[name](self.action))
        setattr(self, name, found)
        return found

    @cached_property
    def name_of_program(self) -> str | None:
        """Return a name of the expressions for `compilation.jit_and_keep`, or None if they contain Python code."""
        return stable_name(self.action.form)

    def _compile(self, name: str, outputs: Mapping[str, Expr]) -> CompiledFunction:
        # The arguments are all symbols in the outputs, except sizes that follow from shapes.
        symbols, free = self.action.symbols, set().union(*(output.free_symbols for output in outputs.values()))
        # In the dual form no array has an axis of examples, so their number is an argument.
        scalars = {*symbols.free, *symbols.numbers, *(self.action.dual.statistics if name.startswith("dual") else ())}
        arguments = {symbol for symbol in free if isinstance(symbol, MatrixSymbol) or symbol in scalars}
        if symbols.features in arguments:
            # The shape of the features, given U_1, determines the number of features per path.
            arguments.add(symbols.first)
        arguments = sorted(arguments, key=lambda symbol: symbol.name)
        return compile_expressions(name, outputs, symbols.completed(tuple(arguments)))

    @cached_property
    def terms(self) -> CompiledFunction:
        """The entropies, the energy and the total S, Eq. (32)."""
        outputs = {**_entropies(self.action), "energy": self.action.energy, "total": self.action.total}
        free = {name: self.action.substitute_nested(expression) for name, expression in outputs.items()}
        return compile_expressions("action", free, self.action.symbols.arguments)

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

    To call a function of `compiled`, combine the symbol values that `numbers`, `point`, `data` and `moments` return.
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
        return {self.symbols.features: self.flat(features), self.symbols.labels: labels.reshape(-1, 1)}

    def flat(self, features: Float[Array, "examples paths features"]) -> Float[Array, "rows columns"]:
        """Return `flat_features` for this architecture."""
        return flat_features(self.architecture, features)

    def moments(self, statistics: FeatureStatistics) -> dict[Expr, Array]:
        """Return the values of the data's symbols in the dual form, for the columns of `flat_features`.

        M_{(pi c i)(pi' c' i')} = gram_{(pi i)(pi' i')} delta_{cc'}, b_{(pi c i)} = projection_{(pi i) c}.
        """
        paths, outputs = statistics.paths, statistics.outputs
        blocks = statistics.gram.reshape(paths, statistics.features, paths, statistics.features)
        gram = jnp.einsum("piqj,cd->pciqdj", blocks, jnp.eye(outputs)).reshape(outputs * len(statistics.gram), -1)
        projection = statistics.projection.reshape(paths, statistics.features, outputs).transpose(0, 2, 1)
        values = (gram, projection.reshape(-1, 1), statistics.label_square, statistics.examples)
        return dict(zip(self.action.dual.statistics, values, strict=True))

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
