"""The compiled action bound to the numbers of an architecture: whoever computes holds one, and looks nothing up.

Stage 3 of `Architecture -> derive -> Action -> compile -> bind -> solve -> predict`.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from sympy import Expr

from ..action.action import Action
from ..action.derivation import derive
from ..action.symbols import ActionSymbols
from ..data.statistics import FeatureStatistics
from ..order_parameters.order_parameters import OrderParameters
from ..specification.architecture import Architecture
from .compiled_action import CompiledAction, compile_action


class BoundAction(eqx.Module):
    """Functions of order parameters and data, with the numbers of `architecture`; differentiable in these, too.

    One of `compiled` is called from the values of its symbols: those of `numbers`, and after them of `point`, `data`,
    or `moments`.
    """

    architecture: Architecture
    compiled: CompiledAction = eqx.field(static=True)

    @property
    def action(self) -> Action:
        """The expressions that the functions were compiled from."""
        return self.compiled.action

    @property
    def symbols(self) -> ActionSymbols:
        """The symbols of `action`."""
        return self.compiled.symbols

    def numbers(self) -> dict[Expr, Array | int]:
        """The value of every symbol of the architecture, sizes included; sigma_0^2 is in the features."""
        architecture, symbols = self.architecture, self.symbols
        by_name = {
            **architecture.layer_numbers(),
            symbols.variances[-1].name: architecture.prior_variances[-1],
            symbols.temperature.name: architecture.temperature,
        }
        numbers = {symbol: jnp.asarray(by_name[symbol.name], dtype=jnp.float64) for symbol in symbols.numbers}
        sizes = architecture.size_values()
        return {**numbers, **{symbol: sizes[symbol.name] for symbol in symbols.sizes}}

    def point(self, order_parameters: OrderParameters) -> dict[Expr, Array]:
        """The value of every order parameter's symbol."""
        values = (*order_parameters.matrices, order_parameters.readout)
        if not self.symbols.matrices:
            values = (order_parameters.first,)
        return dict(zip(self.symbols.order_parameters, values, strict=True))

    def data(
        self, features: Float[Array, "examples paths features"], labels: Float[Array, "examples *outputs"]
    ) -> dict[Expr, Array]:
        """The value of the symbols of a training set."""
        return {self.symbols.features: self.flat(features), self.symbols.labels: labels.reshape(-1, 1)}

    def flat(self, features: Float[Array, "examples paths features"]) -> Float[Array, "rows columns"]:
        """The features as the matrix Phi of the action; see `flat_features`."""
        return flat_features(self.architecture, features)

    def moments(self, statistics: FeatureStatistics) -> dict[Expr, Array]:
        """The value of every symbol of the data in the dual form.

        For C outputs, M and b are those of the matrix Phi of `flat_features`, whose columns are (path, output,
        feature): M_{(pi c i)(pi' c' i')} = gram_{(pi i)(pi' i')} delta_{cc'}, b_{(pi c i)} = projection_{(pi i) c}.
        """
        paths, outputs = statistics.paths, statistics.outputs
        blocks = statistics.gram.reshape(paths, statistics.features, paths, statistics.features)
        gram = jnp.einsum("piqj,cd->pciqdj", blocks, jnp.eye(outputs)).reshape(outputs * len(statistics.gram), -1)
        projection = statistics.projection.reshape(paths, statistics.features, outputs).transpose(0, 2, 1)
        values = (gram, projection.reshape(-1, 1), statistics.label_square, statistics.examples)
        return dict(zip(self.action.dual.statistics, values, strict=True))

    def path_kernel(
        self, features: Float[Array, "rows features"], other: Float[Array, "rows features"]
    ) -> Float[Array, "rows rows"]:
        """The kernel of a pair of paths, the derivative of K (Eq. 10) in their entry of U_1, from both's features."""
        one, two = self.action.kernel_energy.path_features
        return self.compiled.path_kernel.call_from(self.numbers() | {one: features, two: other})["kernel"]

    def entropy(self, order_parameters: OrderParameters) -> Float[Array, ""]:
        """S_a + S_1 + ... + S_L, undivided."""
        return self.compiled.entropy.call_from(self.numbers() | self.point(order_parameters))["entropy"]


def bind(architecture: Architecture) -> BoundAction:
    """The action of `architecture`, derived, compiled, and bound to its numbers."""
    action: Action = derive(architecture)
    compiled: CompiledAction = compile_action(action)
    return BoundAction(architecture, compiled)


def flat_features(
    architecture: Architecture, features: Float[Array, "examples paths features"]
) -> Float[Array, "rows columns"]:
    """The features as the matrix Phi of the symbolic action, one row an (example, output) pair.

    Its columns are (path, output, feature), the last fastest: Phi_{(mu c)(pi c' i)} = phi^pi_{mu i} delta_{cc'}. For
    one output this is `features` itself, flattened.
    """
    outputs = jnp.eye(architecture.outputs)
    design = jnp.einsum("pki,cd->pckdi", features, outputs)
    return design.reshape(len(features) * architecture.outputs, -1)
