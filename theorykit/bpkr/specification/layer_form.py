"""Forms of layers and networks: each forward map, read along attention paths from the readout to the input.

All that the theory and the finite network need to know about a layer follows from its forward map and prior; Eqs.
(5)-(7).
"""

from dataclasses import dataclass
from itertools import pairwise

from sympy import Basic, Expr, Identity, Integer, KroneckerProduct, MatrixSymbol, S, Symbol, expand, sqrt
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...symbolic import kronecker
from ...symbolic.algebra import expand_products, from_terms, matrix_terms
from ...symbolic.atoms import SideBySide, Stacked, below, beside
from .activations import Activation
from .layers import AbstractLayer, LayerSymbols


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


class _Refused(Exception):
    """The theory does not cover a forward map."""


def layer_form(kind: AbstractLayer, symbols: LayerSymbols) -> LayerForm:
    """Read the forward map of a layer; raise `ValueError` with the part that the theory does not cover."""
    try:
        return _read(kind, symbols)
    except _Refused as reason:
        raise ValueError(f"the theory does not cover the forward map of {type(kind).__name__}: {reason}") from None


def _read(kind: AbstractLayer, symbols: LayerSymbols) -> LayerForm:
    forward, covariance = kind.forward(symbols), kind.prior(symbols)
    unreal = (S.ImaginaryUnit, S.Infinity, S.NegativeInfinity, S.ComplexInfinity, S.NaN)
    for what, expression in (("forward map", forward), ("prior", covariance)):
        if isinstance(expression, Basic) and (found := [number for number in unreal if expression.has(number)]):
            raise ValueError(f"the {what} of {type(kind).__name__} has {found[0]}: all numbers must be real and finite")
    if not getattr(covariance, "is_Matrix", False) or covariance.shape[0] != covariance.shape[1]:
        raise _Refused(f"its prior {covariance} is not a square matrix with one row per weight block")
    blocks, hidden = covariance.shape[0], symbols.hidden
    weights, size = symbols.weights(blocks), (symbols.next_width, symbols.tokens)
    if not getattr(forward, "is_Matrix", False) or tuple(forward.shape) != size:
        raise _Refused(f"it has shape {getattr(forward, 'shape', 'a scalar')}, not {size}")
    # Compare sizes at the layer's number of heads, because one head needs no KroneckerProduct.
    at_heads = (symbols.heads, kind.heads or symbols.heads)
    skips, mixings = [], []
    for coefficient, factors in matrix_terms(forward):
        for symbol in (weights, hidden):
            if any(_hides(factor, symbol) for factor in factors):
                raise _Refused(
                    f"{symbol} is inside a function, so the layer is nonlinear. The theory covers functions of hidden "
                    "units, as an ansatz, in Architecture(embedding=...) and in Dense(activation=...) directly above it"
                )
        of_weights, of_hidden = (sum(_count(factor, each) for factor in factors) for each in (weights, hidden))
        if of_hidden > 1:
            raise _Refused(
                f"{hidden} occurs {of_hidden} times in a product: with attention on hidden activations the network is "
                "not linear in its values. Attention must be a function of the bare input"
            )
        if of_hidden == 0:
            raise _Refused(f"a term does not contain {hidden}: biases are not covered")
        if of_weights > 1:
            raise _Refused(
                f"{weights} occurs more than once in a product: the forward map must be linear in the weights"
            )
        if factors and factors[0] == weights:
            mixings.append(_mixing(coefficient * sqrt(symbols.width), factors, symbols, blocks, at_heads))
        elif factors and factors[0] == hidden:
            _check_chain(factors, symbols, at_heads)
            skips.append((coefficient, factors[1:]))
        else:
            raise _Refused(
                f"its term {from_terms([(coefficient, factors)], forward.shape)} starts neither with {hidden} nor with "
                f"the weights {weights} of shape {weights.shape}, which have one block per row of the prior"
            )
    if not mixings:
        raise _Refused(f"it does not contain the weights {weights}, which have one block per row of the prior")
    gain, skip_tokens = S.Zero, Identity(symbols.tokens)
    if skips:
        if symbols.width != symbols.next_width:
            raise _Refused(f"a skip connection needs equal widths, got {symbols.width} and {symbols.next_width}")
        if len(skips) > 1:
            raise _Refused("it has more than one skip connection; combine them into one")
        ((coefficient, factors),) = skips
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
        block_tokens=expand_products(sum((tokens for tokens, _ in mixings[1:]), start=mixings[0][0])),
        block_heads=next((heads for _, heads in mixings if heads is not None), None),
    )


def _hides(factor: MatrixExpr, symbol: MatrixSymbol) -> bool:
    if factor == symbol or not factor.has(symbol):
        return False
    if isinstance(factor, KroneckerProduct):
        return any(_hides(argument, symbol) for argument in factor.args)
    return not (factor.is_Matrix and len(factor.args) == 1 and factor.args[0] == symbol)  # transposes fail later


def _count(factor: MatrixExpr, symbol: MatrixSymbol) -> int:
    if factor == symbol:
        return 1
    return sum(_count(argument, symbol) for argument in factor.args if isinstance(argument, MatrixExpr))


def _mixing(coefficient, factors, symbols, blocks, at_heads) -> tuple[MatrixExpr, MatrixExpr | None]:
    """Return how V (M (x) X) Omega mixes tokens, c (M (x) I) Omega, and the heads M that each block passes."""
    if len(factors) == 1:
        raise _Refused(f"its weights do not act on {symbols.hidden}")
    _, first, *rest = factors
    if first == symbols.hidden:
        spread = Identity(blocks)
        if expand(blocks).subs(*at_heads) != 1:
            raise _Refused(
                f"its {blocks} weight blocks act on a single {first}; write weights * KroneckerProduct("
                f"Identity({blocks}), {first}), so that each block has a separate copy"
            )
    elif isinstance(first, KroneckerProduct) and len(first.args) == 2 and first.args[1] == symbols.hidden:
        spread = first.args[0]
    else:
        raise _Refused(f"its weights act on {first}; write weights * KroneckerProduct(matrix, {symbols.hidden})")
    _check_chain(factors, symbols, at_heads)
    tokens = from_terms([(coefficient, tuple(rest))], (spread.shape[1] * symbols.tokens, symbols.tokens))
    heads = spread if rest and rest[0] == symbols.attention else None
    return expand_products(kronecker(spread, Identity(symbols.tokens)) * tokens), heads


def _check_chain(factors, symbols, at_heads) -> None:
    """Raise an error for products of matrices whose sizes do not match. SymPy allows them if the sizes are symbols."""
    for before, after in pairwise((Identity(symbols.next_width), *factors, Identity(symbols.tokens))):
        if expand(before.shape[1] - after.shape[0]).subs(*at_heads) != 0:
            sizes = f"{before} of shape {before.shape} by {after} of shape {after.shape}"
            raise _Refused(f"it multiplies {sizes}, whose sizes do not match")


TOKENS = Symbol("N_tokens", integer=True, positive=True)
"""Number of tokens for which the readout has separate weights."""


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
