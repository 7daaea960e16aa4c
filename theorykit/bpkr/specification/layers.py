"""Kinds of layers, each defined by two expressions: a forward map, and the prior of its weights."""

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import equinox as eqx
from jax.typing import ArrayLike
from sympy import Expr, Identity, KroneckerProduct, MatrixSymbol, Symbol, expand, sqrt
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...checks import checked_whole_number
from ...symbolic import positive_definite
from ...symbolic.atoms import PositiveDefiniteSymbol
from .activations import IDENTITY, Activation, as_activation

TOKENS = Symbol("N_tokens", integer=True, positive=True)
"""Number of tokens."""


@dataclass(frozen=True)
class LayerSymbols:
    """The symbols with which layer l = `index` writes its forward map and prior.

    - `width`, `next_width`: N_l and N_{l+1}, the hidden units before and after.
    """

    index: int
    width: Expr
    next_width: Expr

    @property
    def heads(self) -> Symbol:
        """H_l, the number of attention heads."""
        return Symbol(f"H_{self.index}", integer=True, positive=True)

    @property
    def tokens(self) -> Symbol:
        """The number of tokens."""
        return TOKENS

    @property
    def variance(self) -> Symbol:
        """sigma_l^2, the layer's entry of `Architecture.prior_variances`."""
        return self.number("sigma2")

    @property
    def hidden(self) -> MatrixSymbol:
        """X_{l-1} (N_l x tokens), the input activations."""
        return MatrixSymbol(f"X_{self.index - 1}", self.width, TOKENS)

    @property
    def attention(self) -> MatrixSymbol:
        """Omega_l (H_l tokens x tokens), heads stacked vertically. Columns of each head sum to one."""
        return MatrixSymbol(f"Omega_{self.index}", self.heads * TOKENS, TOKENS)

    def weights(self, blocks: Expr | int) -> MatrixSymbol:
        """Return V_l (N_{l+1} x blocks N_l), weight blocks side by side, one per row of the prior."""
        return MatrixSymbol(f"V_{self.index}", self.next_width, expand(blocks * self.width))

    def number(self, name: str) -> Symbol:
        """Return a positive parameter, called name_l."""
        return Symbol(f"{name}_{self.index}", positive=True)

    def covariance(self, name: str, size: Expr | int) -> PositiveDefiniteSymbol:
        """Return a positive definite parameter (size x size), called name_l."""
        return positive_definite(f"{name}_{self.index}", size)


class AbstractLayer(eqx.Module):
    """A kind of layer, with `heads` attention heads; 0 without attention.

    Subclass it to add a kind, and check the kind with `theorykit.testing.check_layer`.
    """

    heads: eqx.AbstractVar[int]

    @abc.abstractmethod
    def forward(self, layer: LayerSymbols) -> MatrixExpr:
        """Return X_l (N_{l+1} x tokens), linear in `layer.weights(blocks)` and in `layer.hidden`."""

    @abc.abstractmethod
    def prior(self, layer: LayerSymbols) -> MatrixExpr:
        """Return the covariance < V^a_ij V^b_ij > of weight blocks a, b. Different ij are independent."""

    def parameters(self, layer: LayerSymbols) -> Mapping[Expr, ArrayLike]:
        """Return the value of each symbol that `layer.number` or `layer.covariance` made."""
        return {}


class Attention(AbstractLayer):
    """Attention heads. Values are linear, and attention is a function of the bare input; Eq. (2)."""

    heads: int = eqx.field(static=True, converter=partial(checked_whole_number, "heads", least=1))

    def forward(self, layer):
        values = layer.weights(layer.heads) * KroneckerProduct(Identity(layer.heads), layer.hidden)
        return values * layer.attention / sqrt(layer.heads * layer.width)  # Eq. (2)

    def prior(self, layer):
        return layer.variance * Identity(layer.heads)


class Dense(AbstractLayer):
    """A layer that acts on each token separately.

    - `activation`: the function phi of its hidden units, as in
      `Architecture.embedding`. A nonlinear one needs dense layers below.
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


def as_layer(name: str, layer: AbstractLayer | int) -> AbstractLayer:
    """Return a layer; a whole number becomes a layer of that many attention heads."""
    return layer if isinstance(layer, AbstractLayer) else Attention(checked_whole_number(name, layer, least=1))


class Skip(AbstractLayer):
    """A skip connection around a layer: x^l = gain x^{l-1} + layer(x^{l-1}), for equal widths.

    - `layer`: the layer inside, or its number of heads.
    - `gain`: positive.

    Example:
        >>> from theorykit import bpkr
        >>> arch = bpkr.Architecture(layers=(2, bpkr.Skip(2, gain=0.5)), widths=10, temperature=0.1)
        >>> arch.path_labels()  # 0 is the skip connection
        ('10', '11', '12', '20', '21', '22')
    """

    layer: AbstractLayer = eqx.field(converter=partial(as_layer, "layer"))
    gain: ArrayLike = 1.0

    def __check_init__(self):
        if isinstance(self.layer, Skip):
            raise ValueError("layer is a Skip already")

    @property
    def heads(self):
        """The number of heads of the layer inside."""
        return self.layer.heads

    def forward(self, layer):
        return layer.number("s") * layer.hidden + self.layer.forward(layer)

    def prior(self, layer):
        return self.layer.prior(layer)

    def parameters(self, layer):
        return {layer.number("s"): self.gain, **self.layer.parameters(layer)}


def activation_of(layer: AbstractLayer) -> Activation:
    """Return the function of the hidden units of `layer`."""
    return layer.activation if isinstance(layer, Dense) else IDENTITY
