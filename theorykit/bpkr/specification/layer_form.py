"""Forms of layers and networks: each forward map, read along attention paths from readout to input; Eqs. (5)-(7)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from sympy import Expr, Identity, KroneckerProduct, MatrixSymbol, S, Symbol, Transpose, expand, sqrt
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...checks import checked_whole_number
from ...symbolic import kronecker
from ...symbolic.algebra import expand_products, from_terms, matrix_terms
from ...symbolic.atoms import SideBySide, Stacked, below, beside
from .activations import Activation
from .layers import TOKENS, AbstractLayer, LayerSymbols


@dataclass(frozen=True)
class LayerForm:
    """Expressions that follow from the forward map and the prior of one layer.

    Partial paths branch at the layer: first the skip connection, then the weight blocks.

    - `forward`: X_l in terms of `weights` V_l and of X_{l-1}.
    - `blocks`: number of weight blocks k.
    - `covariance`: prior covariance of the blocks (k x k).
    - `gain`: strength of the skip connection, or zero.
    - `skip_tokens`, `block_tokens`: mixing of tokens by the skip connection (tokens x tokens), and
      by the blocks (k tokens x tokens).
    - `block_heads`: the heads that each block passes (k x H_l); None without attention.
    """

    symbols: LayerSymbols
    forward: MatrixExpr
    weights: MatrixSymbol
    blocks: Expr
    covariance: MatrixExpr
    gain: Expr
    skip_tokens: MatrixExpr
    block_tokens: MatrixExpr
    block_heads: MatrixExpr | None

    @property
    def hidden(self) -> MatrixSymbol:
        """X_{l-1}, the input activations."""
        return self.symbols.hidden

    @property
    def has_skip(self) -> bool:
        """Whether there is a skip connection."""
        return self.gain != 0

    @property
    def parameters(self) -> frozenset[Expr]:
        """The symbols that `LayerSymbols.number` and `LayerSymbols.covariance` made."""
        of = self.symbols
        known = {of.width, of.next_width, of.heads, TOKENS, of.variance, of.hidden, of.attention, self.weights}
        stated = (self.forward.atoms(Symbol, MatrixSymbol), self.covariance.atoms(Symbol, MatrixSymbol))
        return frozenset().union(*stated) - known

    @property
    def branches(self) -> Expr:
        """Number of branches."""
        return self.blocks + int(self.has_skip)

    def block_reading(self, reading: MatrixExpr) -> MatrixExpr:
        """Return how the blocks read tokens (tokens x k n), given the `reading` after the layer; Eq. (7)."""
        return SideBySide(expand_products(self.block_tokens * reading), self.blocks)  # Eq. (7), one layer

    def skip_reading(self, reading: MatrixExpr) -> MatrixExpr:
        """Return how the skip connection reads tokens (tokens x n)."""
        return expand_products(self.skip_tokens * reading)

    def reading(self, reading: MatrixExpr) -> MatrixExpr:
        """Return how all branches read tokens (tokens x branches n)."""
        skip = [self.skip_reading(reading)] if self.has_skip else []
        return beside(*skip, self.block_reading(reading))

    def path_weights(self, outer: MatrixExpr) -> MatrixExpr:
        """Return the path weights w^(l) (branches n x N_l), given w^(l+1) (n x N_{l+1}); Eq. (6)."""
        skip = [self.gain * outer] if self.has_skip else []
        return below(*skip, Stacked(outer * self.weights, self.blocks) / sqrt(self.symbols.next_width))  # Eq. (6)

    def prior_mean(self, outer: MatrixExpr) -> MatrixExpr:
        """Return the prior mean of U_l = w^(l) w^(l)T / N_l, given U_{l+1}."""
        of_blocks = kronecker(self.covariance, outer)
        return BlockDiagMatrix(self.gain**2 * outer, of_blocks) if self.has_skip else of_blocks


def layer_form(kind: AbstractLayer, symbols: LayerSymbols) -> LayerForm:
    """Read the forward map of a layer; raise `ValueError` with the part that the theory does not cover."""
    try:
        return _read(kind, symbols)
    except ValueError as error:
        name = type(kind).__name__
        raise ValueError(f"the theory does not cover the forward map of {name}: {error}") from None


def _read(kind: AbstractLayer, symbols: LayerSymbols) -> LayerForm:
    forward, covariance, hidden = kind.forward(symbols), kind.prior(symbols), symbols.hidden
    if not getattr(covariance, "is_Matrix", False) or covariance.shape[0] != covariance.shape[1]:
        raise ValueError(f"its prior {covariance} is not a square matrix with one row per weight block")
    size = symbols.next_width, TOKENS
    if not getattr(forward, "is_Matrix", False) or tuple(forward.shape) != size:
        raise ValueError(f"it has shape {getattr(forward, 'shape', 'a scalar')}, not {size}")
    # Path weights are Gaussian given the next layer only if the prior does not depend on sizes that diverge.
    if diverging := {symbols.width, symbols.next_width, TOKENS} & covariance.atoms(Symbol):
        found = ", ".join(sorted(map(str, diverging)))
        raise ValueError(f"its `prior` must not depend on sizes, such as {found}; divide by them in `forward`")
    blocks = covariance.shape[0]
    weights = symbols.weights(blocks)
    # Compare sizes at the layer's number of heads, because one head needs no KroneckerProduct.
    heads = {symbols.heads: kind.heads} if kind.heads else {}
    gain, skip_tokens, mixings, block_heads = S.Zero, Identity(TOKENS), [], None
    for coefficient, factors in matrix_terms(forward):
        _check_is_linear(factors, weights, hidden)
        for before, after in pairwise((Identity(symbols.next_width), *factors, Identity(TOKENS))):
            # SymPy allows products of different sizes if they are symbols.
            if expand(before.shape[1] - after.shape[0]).subs(heads) != 0:
                raise ValueError(f"it multiplies {before} by {after}, whose sizes do not match")
        first, *others = factors
        if first == hidden:
            if symbols.width != symbols.next_width:
                raise ValueError(f"a skip connection needs equal widths, got {size[0]} after {symbols.width}")
            if gain != 0:
                raise ValueError("it has more than one skip connection; combine them into one")
            # Factors that depend on the number of tokens mix tokens.
            gain, of_tokens = coefficient.as_independent(TOKENS, as_Add=False)
            skip_tokens = from_terms([(of_tokens, tuple(others))], (TOKENS, TOKENS))
            continue
        if first != weights or not others:
            raise ValueError(
                f"a term starts with {first}, so it starts neither with {hidden} nor with weights of shape "
                f"{weights.shape}, which have one block per row of the prior"
            )
        # V (M (x) X) Omega mixes tokens by c (M (x) I) Omega, where M states the heads that each block passes.
        acted_on, *rest = others
        if acted_on == hidden and expand(blocks).subs(heads) == 1:
            spread = Identity(blocks)
        elif isinstance(acted_on, KroneckerProduct) and len(acted_on.args) == 2 and acted_on.args[1] == hidden:
            spread = acted_on.args[0]
        else:
            raise ValueError(
                f"its weights act on {acted_on}; write weights * KroneckerProduct(matrix, {hidden}), where the "
                f"matrix has {blocks} rows"
            )
        chain = from_terms([(coefficient * sqrt(symbols.width), tuple(rest))], (spread.shape[1] * TOKENS, TOKENS))
        mixings.append(expand_products(kronecker(spread, Identity(TOKENS)) * chain))
        if block_heads is None and rest and rest[0] == symbols.attention:
            block_heads = spread
    if not mixings:
        raise ValueError(f"it does not contain the weights {weights}, which have one block per row of the prior")
    if (attends := forward.has(symbols.attention)) != (checked_whole_number("heads", kind.heads, least=0) > 0):
        raise ValueError(f"it has heads={kind.heads}, but {'' if attends else 'no '}attention in its forward map")
    block_tokens = expand_products(sum(mixings[1:], start=mixings[0]))
    return LayerForm(symbols, forward, weights, blocks, covariance, gain, skip_tokens, block_tokens, block_heads)


def _check_is_linear(factors: Sequence[MatrixExpr], weights: MatrixSymbol, hidden: MatrixSymbol) -> None:
    """Raise an error unless a product contains the hidden units once, and the weights at most once."""
    for factor in factors:
        if factor.has(weights, hidden) and factor.func not in (MatrixSymbol, Transpose, KroneckerProduct):
            raise ValueError(
                f"{weights} or {hidden} is inside a function, so the layer is nonlinear. Functions of hidden "
                "units are covered in Architecture(embedding=...) and Dense(activation=...)"
            )
    of_hidden, of_weights = (sum(factor.count(symbol) for factor in factors) for symbol in (hidden, weights))
    if of_hidden == 0:
        raise ValueError(f"a term does not contain {hidden}: biases are not covered")
    if of_hidden > 1:
        raise ValueError(
            f"{hidden} occurs {of_hidden} times in a product: with attention on hidden activations the network "
            "is not linear in its values. Attention must be a function of the bare input"
        )
    if of_weights > 1:
        raise ValueError(f"{weights} occurs more than once in a product: the map must be linear in the weights")


@dataclass(frozen=True)
class NetworkForm:
    """The forms of all layers, and the structure of outputs and hidden units.

    - `several_outputs`: whether there is more than one output.
    - `every_token`: whether the readout has separate weights for every token.
    - `activations`: the functions phi of the embedding and of the dense layers above it, up to the
      last nonlinear layer; empty if all are linear.
    - `has_richness`: whether the parameterisation is mean-field.
    - `is_infinite`: whether the widths are infinite, in that parameterisation.
    """

    layers: tuple[LayerForm, ...]
    several_outputs: bool
    every_token: bool
    activations: tuple[Activation, ...]
    has_richness: bool
    is_infinite: bool

    @property
    def widths(self) -> tuple[Expr, ...]:
        """(N_1, ..., N_L, N_a)."""
        if not self.layers:
            return (width_symbol("a"),)
        return (*(form.symbols.width for form in self.layers), self.layers[-1].symbols.next_width)


def width_symbol(name: str) -> Symbol:
    """Return N_name, the hidden units before the layer with this number; "a" is the readout."""
    return Symbol(f"N_{name}", positive=True)
