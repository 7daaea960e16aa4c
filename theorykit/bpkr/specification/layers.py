"""The kinds of layers. A layer is defined by its forward map and the prior of its weights.

These two expressions determine how attention paths read activations, the prior of the order parameters, the action, and
the finite network itself.
"""

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
from jax.typing import ArrayLike
from sympy import Expr, Identity, KroneckerProduct, MatrixSymbol, Symbol, expand, sqrt
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...checks import Count, Size, check_fields, checked_arguments, checked_whole_number, shown
from ...symbolic import positive_definite
from ...symbolic.atoms import PositiveDefiniteSymbol
from .activations import IDENTITY, Activation, as_activation

TOKENS = Symbol("N_tokens", integer=True, positive=True)
"""Number of tokens, which is also the number of tokens for which the readout can have separate weights."""


@dataclass(frozen=True)
class LayerSymbols:
    """The symbols with which a layer writes its forward map and prior.

    - `index`: the number l of the layer, counted from 1.
    - `width`: N_l, the number of hidden units before the layer.
    - `next_width`: N_{l+1}, the number of hidden units after the layer.
    """

    index: "Count"
    width: Expr
    next_width: Expr

    def __post_init__(self):
        check_fields(self)

    @property
    def heads(self) -> Symbol:
        """H_l, the number of attention heads of the layer."""
        return Symbol(f"H_{self.index}", integer=True, positive=True)

    @property
    def tokens(self) -> Symbol:
        """The number of tokens, the same for all layers."""
        return TOKENS

    @property
    def variance(self) -> Symbol:
        """sigma_l^2, the prior variance of the layer's weights, from `Architecture.prior_variances`."""
        return Symbol(f"sigma2_{self.index}", positive=True)

    @property
    def hidden(self) -> MatrixSymbol:
        """X_{l-1} (N_l x tokens), the layer's input activations."""
        return MatrixSymbol(f"X_{self.index - 1}", self.width, self.tokens)

    @property
    def attention(self) -> MatrixSymbol:
        """Omega_l (H_l tokens x tokens), the heads' attention stacked vertically; columns of each block sum to one."""
        return MatrixSymbol(f"Omega_{self.index}", self.heads * self.tokens, self.tokens)

    @checked_arguments
    def weights(self, blocks: "Size") -> MatrixSymbol:
        """Return V_l (N_{l+1} x blocks N_l), the weight blocks of the layer side by side, one per row of its prior."""
        return MatrixSymbol(f"V_{self.index}", self.next_width, expand(blocks * self.width))

    @checked_arguments
    def number(self, name: str) -> Symbol:
        """Return a positive parameter of layer l, called name_l."""
        return Symbol(f"{name}_{self.index}", positive=True)

    @checked_arguments
    def covariance(self, name: str, size: "Size") -> PositiveDefiniteSymbol:
        """Return a positive definite parameter (size x size) of layer l, called name_l."""
        return positive_definite(f"{name}_{self.index}", size)


class AbstractLayer(eqx.Module):
    """A kind of layer. To add a kind, write a subclass that defines the forward map and the prior.

    - `heads`: the number of attention heads; 0 for a layer without attention.
    """

    heads: eqx.AbstractVar[int]

    @abc.abstractmethod
    def forward(self, layer: LayerSymbols) -> MatrixExpr:
        """Return X_l (N_{l+1} x tokens), linear in the weights `layer.weights(blocks)` and in `layer.hidden`."""

    @abc.abstractmethod
    def prior(self, layer: LayerSymbols) -> MatrixExpr:
        """Return the covariance prior_ab = < V^a_ij V^b_ij > of weight blocks (blocks x blocks).

        Different entries ij are independent.
        """

    def parameters(self, layer: LayerSymbols) -> "Mapping[Expr, ArrayLike]":
        """Return the value of every symbol in `forward` and `prior` that `layer.number` or `layer.covariance` made."""
        return {}


class Attention(AbstractLayer):
    """A layer of attention heads. Values are linear, and attention is a function of the bare input; Eq. (2)."""

    heads: int = eqx.field(static=True, converter=partial(checked_whole_number, "heads", least=1))

    def forward(self, layer):
        values = layer.weights(layer.heads) * KroneckerProduct(Identity(layer.heads), layer.hidden)
        return values * layer.attention / sqrt(layer.heads * layer.width)  # Eq. (2)

    def prior(self, layer):
        return layer.variance * Identity(layer.heads)


class Dense(AbstractLayer):
    """A layer that acts on each token separately.

    - `activation`: the function phi of its hidden units, as in `Architecture.embedding`. It can be nonlinear only if
      all layers below are dense.

    Example:
        >>> from theorykit import bpkr
        >>> arch = bpkr.Architecture(layers=(bpkr.Dense(), 2), widths=10, temperature=0.1)
        >>> arch.heads, arch.paths
        ((0, 2), 2)
    """

    activation: Activation = eqx.field(static=True, kw_only=True, default=IDENTITY, converter=as_activation)

    @property
    def heads(self):
        """Zero: the layer has no attention."""
        return 0

    def forward(self, layer):
        return layer.weights(1) * layer.hidden / sqrt(layer.width)

    def prior(self, layer):
        return layer.variance * Identity(1)


class Skip(AbstractLayer):
    """A skip connection around a layer: x^l = gain x^{l-1} + layer(x^{l-1}). It needs equal widths before and after.

    - `layer`: the layer inside the skip connection.
    - `gain`: strength of the skip connection, positive.

    Example:
        >>> from theorykit import bpkr
        >>> arch = bpkr.Architecture(layers=(2, bpkr.Skip(2, gain=0.5)), widths=10, temperature=0.1)
        >>> arch.path_labels()  # 0 is the skip connection
        ('10', '11', '12', '20', '21', '22')
    """

    layer: AbstractLayer
    gain: Any

    def __init__(self, layer: "AbstractLayer | int", gain: "ArrayLike" = 1.0):
        self.layer = as_layer(layer, "layer")
        if isinstance(self.layer, Skip):
            raise ValueError("layer is a Skip already: use one skip connection, with the sum of the gains")
        self.gain = gain

    @property
    def heads(self):
        """The number of heads of the layer inside the skip connection."""
        return self.layer.heads

    def forward(self, layer):
        return layer.number("s") * layer.hidden + self.layer.forward(layer)

    def prior(self, layer):
        return self.layer.prior(layer)

    def parameters(self, layer):
        return {layer.number("s"): self.gain, **self.layer.parameters(layer)}


def activation_of(layer: AbstractLayer) -> Activation:
    """Return the activation function of the hidden units of `layer`."""
    return layer.activation if isinstance(layer, Dense) else IDENTITY


def as_layer(layer: "AbstractLayer | int", name: str) -> AbstractLayer:
    """Return a layer; a whole number becomes a layer of that many attention heads."""
    if isinstance(layer, AbstractLayer):
        return layer
    try:
        return Attention(checked_whole_number(name, layer, least=1))
    except TypeError:
        wanted = "a layer such as bpkr.Dense(), or a whole number of heads"
        raise TypeError(f"{name} must be {wanted}, got {shown(layer)}") from None
