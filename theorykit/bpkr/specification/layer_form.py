"""Forms of layers and networks: each forward map, read along attention paths from the readout to the input.

All that the theory and the finite network need to know about a layer follows from its forward map and prior; Eqs.
(5)-(7).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from sympy import Expr, Identity, Integer, KroneckerProduct, MatrixSymbol, S, Symbol, Transpose, expand, sqrt
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...symbolic import kronecker
from ...symbolic.algebra import expand_products, from_terms, matrix_terms
from ...symbolic.atoms import SideBySide, Stacked, below, beside
from .activations import Activation
from .layers import TOKENS, AbstractLayer, LayerSymbols

# Factors of a product that are linear in the hidden units or weights that they contain.
_LINEAR = (MatrixSymbol, Transpose, KroneckerProduct)


@dataclass(frozen=True)
class LayerForm:
    """Expressions that follow from the forward map and the prior of one layer.

    Partial paths from the readout branch at the layer: first the skip connection, then the weight blocks.

    - `forward`: X_l as the layer writes it, in terms of `weights` V_l and `hidden` X_{l-1}.
    - `blocks`: number of weight blocks k.
    - `covariance`: prior covariance of the weight blocks (k x k).
    - `gain`: strength of the skip connection; zero without a skip connection.
    - `skip_tokens`: how the skip connection mixes tokens (tokens x tokens).
    - `block_tokens`: how each weight block mixes tokens (k tokens x tokens).
    - `block_heads`: the heads that each block passes (k x H_l); None for a layer without attention.
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
        """Hidden states X_{l-1} that enter the layer."""
        return self.symbols.hidden

    @property
    def has_skip(self) -> bool:
        """Whether there is a skip connection."""
        return self.gain != 0

    @property
    def parameters(self) -> frozenset[Expr]:
        """Symbols of the layer's parameters: all symbols in its expressions that `LayerSymbols` does not define."""
        stated = self.forward.atoms(Symbol, MatrixSymbol) | self.covariance.atoms(Symbol, MatrixSymbol)
        of = self.symbols
        numbers = {of.width, of.next_width, of.heads, of.tokens, of.variance}
        return frozenset(stated - numbers - {of.hidden, of.attention, self.weights})

    @property
    def branches(self) -> Expr:
        """Number of branches: the weight blocks, plus the skip connection if there is one."""
        return self.blocks + 1 if self.has_skip else self.blocks

    def block_reading(self, reading: MatrixExpr) -> MatrixExpr:
        """Return how the weight blocks read tokens before the layer (tokens x k n), given `reading` after it."""
        return SideBySide(expand_products(self.block_tokens * reading), self.blocks)  # Eq. (7), one layer

    def skip_reading(self, reading: MatrixExpr) -> MatrixExpr:
        """Return how the skip connection reads tokens before the layer (tokens x n), given `reading` after it."""
        return expand_products(self.skip_tokens * reading)

    def reading(self, reading: MatrixExpr) -> MatrixExpr:
        """Return how all branches read tokens before the layer (tokens x branches n), given `reading` after it."""
        skip = [self.skip_reading(reading)] if self.has_skip else []
        return beside(*skip, self.block_reading(reading))

    def path_weights(self, outer: MatrixExpr) -> MatrixExpr:
        """Return the partial path weights w^(l) (branches n x N_l), given w^(l+1) (n x N_{l+1}); Eq. (6)."""
        skip = [self.gain * outer] if self.has_skip else []
        return below(*skip, Stacked(outer * self.weights, self.blocks) / sqrt(self.symbols.next_width))  # Eq. (6)

    def prior_mean(self, outer: MatrixExpr) -> MatrixExpr:
        """Return < w^(l) w^(l)T > / N_l (branches n x branches n) over the layer's weights, given U_{l+1} (n x n)."""
        of_blocks = kronecker(self.covariance, outer)
        return BlockDiagMatrix(self.gain**2 * outer, of_blocks) if self.has_skip else of_blocks


class _NotCovered(Exception):
    """The theory does not cover a forward map."""


def layer_form(kind: AbstractLayer, symbols: LayerSymbols) -> LayerForm:
    """Read the forward map of a layer; raise `ValueError` with the part that the theory does not cover."""
    try:
        return _read(kind, symbols)
    except _NotCovered as reason:
        raise ValueError(f"the theory does not cover the forward map of {type(kind).__name__}: {reason}") from None


def _read(kind: AbstractLayer, symbols: LayerSymbols) -> LayerForm:
    forward, covariance, hidden = kind.forward(symbols), kind.prior(symbols), symbols.hidden
    if not getattr(covariance, "is_Matrix", False) or covariance.shape[0] != covariance.shape[1]:
        raise _NotCovered(f"its prior {covariance} is not a square matrix with one row per weight block")
    size = (symbols.next_width, symbols.tokens)
    if not getattr(forward, "is_Matrix", False) or tuple(forward.shape) != size:
        raise _NotCovered(f"it has shape {getattr(forward, 'shape', 'a scalar')}, not {size}")
    if any(each.has(S.ImaginaryUnit, S.Infinity, S.ComplexInfinity, S.NaN) for each in (forward, covariance)):
        raise _NotCovered("all numbers must be real and finite")
    blocks = covariance.shape[0]
    weights = symbols.weights(blocks)
    # Compare sizes at the layer's number of heads, because one head needs no KroneckerProduct.
    heads = {symbols.heads: kind.heads} if kind.heads else {}
    skips, mixings, block_heads = [], [], None
    for coefficient, factors in matrix_terms(forward):
        _check_is_linear(factors, weights, hidden)
        for before, after in pairwise((Identity(symbols.next_width), *factors, Identity(symbols.tokens))):
            # SymPy allows products of different sizes if they are symbols.
            if expand(before.shape[1] - after.shape[0]).subs(heads) != 0:
                shapes = f"{before} of shape {before.shape} by {after} of shape {after.shape}"
                raise _NotCovered(f"it multiplies {shapes}, whose sizes do not match")
        first, *others = factors
        if first == hidden:
            skips.append((coefficient, tuple(others)))
            continue
        if first != weights or not others:
            term = from_terms([(coefficient, factors)], forward.shape)
            raise _NotCovered(
                f"its term {term} starts neither with {hidden} nor with weights of shape "
                f"{weights.shape}, which have one block per row of the prior"
            )
        # V (M (x) X) Omega mixes tokens by c (M (x) I) Omega, where M states the heads that each block passes.
        acted_on, *rest = others
        if acted_on == hidden and expand(blocks).subs(heads) == 1:
            spread = Identity(blocks)
        elif isinstance(acted_on, KroneckerProduct) and len(acted_on.args) == 2 and acted_on.args[1] == hidden:
            spread = acted_on.args[0]
        else:
            raise _NotCovered(
                f"its weights act on {acted_on}; write weights * KroneckerProduct(matrix, {hidden}), where the matrix "
                f"has {blocks} rows"
            )
        tokens = (spread.shape[1] * symbols.tokens, symbols.tokens)
        chain = from_terms([(coefficient * sqrt(symbols.width), tuple(rest))], tokens)
        mixings.append(expand_products(kronecker(spread, Identity(symbols.tokens)) * chain))
        if rest and rest[0] == symbols.attention:
            block_heads = spread if block_heads is None else block_heads
    if not mixings:
        raise _NotCovered(f"it does not contain the weights {weights}, which have one block per row of the prior")
    gain, skip_tokens = S.Zero, Identity(symbols.tokens)
    if skips and symbols.width != symbols.next_width:
        raise _NotCovered(f"a skip connection needs equal widths, got {symbols.width} and {symbols.next_width}")
    if len(skips) > 1:
        raise _NotCovered("it has more than one skip connection; combine them into one")
    for coefficient, factors in skips:
        # Factors that depend on sequence length belong to the mixing of tokens, not to the gain.
        gain, of_tokens = coefficient.as_independent(symbols.tokens, as_Add=False)
        skip_tokens = from_terms([(of_tokens, factors)], (symbols.tokens, symbols.tokens))
    return LayerForm(
        symbols=symbols,
        forward=forward,
        weights=weights,
        blocks=blocks,
        covariance=covariance,
        gain=gain,
        skip_tokens=skip_tokens,
        block_tokens=expand_products(sum(mixings[1:], start=mixings[0])),
        block_heads=block_heads,
    )


def _check_is_linear(factors: Sequence[MatrixExpr], weights: MatrixSymbol, hidden: MatrixSymbol) -> None:
    """Raise an error unless a product contains the hidden units once, and the weights at most once."""
    for factor in factors:
        if factor.has(weights, hidden) and not (factor.is_Matrix and factor.func in _LINEAR):
            raise _NotCovered(
                f"{weights} or {hidden} is inside a function, so the layer is nonlinear. The theory covers functions "
                "of hidden units, as an ansatz, in Architecture(embedding=...) and Dense(activation=...)"
            )
    of_hidden, of_weights = (sum(factor.count(symbol) for factor in factors) for symbol in (hidden, weights))
    if of_hidden > 1:
        raise _NotCovered(
            f"{hidden} occurs {of_hidden} times in a product: with attention on hidden activations the network is not "
            "linear in its values. Attention must be a function of the bare input"
        )
    if of_hidden == 0:
        raise _NotCovered(f"a term does not contain {hidden}: biases are not covered")
    if of_weights > 1:
        raise _NotCovered(
            f"{weights} occurs more than once in a product: the forward map must be linear in the weights"
        )


@dataclass(frozen=True)
class NetworkForm:
    """The forms of all layers, from the input side, with the outputs and activation functions.

    - `several_outputs`: whether there is more than one output.
    - `every_token`: whether the readout has separate weights for every token.
    - `activations`: the functions phi of the embedding and of the dense layers above it, up to the last nonlinear
      layer; empty if all are linear.
    - `has_richness`: whether the parameterisation is mean-field, with the richness gamma_0.
    - `is_infinite`: whether the widths are infinite, in the mean-field parameterisation.
    """

    layers: tuple[LayerForm, ...]
    several_outputs: bool = False
    every_token: bool = False
    activations: tuple[Activation, ...] = ()
    has_richness: bool = False
    is_infinite: bool = False

    @property
    def outputs(self) -> Expr:
        """C, the number of outputs: a symbol if there are several."""
        return Symbol("C", integer=True, positive=True) if self.several_outputs else Integer(1)

    @property
    def readings(self) -> Expr:
        """Size of the readout's order parameter: outputs times tokens that are read."""
        return expand(TOKENS * self.outputs) if self.every_token else self.outputs

    @property
    def widths(self) -> tuple[Expr, ...]:
        """(N_1, ..., N_L, N_a): the hidden units before every layer, and before the readout."""
        if not self.layers:
            return (width_symbol("a"),)
        return (*(form.symbols.width for form in self.layers), self.layers[-1].symbols.next_width)


def width_symbol(name: str) -> Symbol:
    """Return N_name, the number of hidden units before the layer with this name; "a" is the readout."""
    return Symbol(f"N_{name}", positive=True)
