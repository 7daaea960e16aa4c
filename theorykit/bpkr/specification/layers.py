"""Layers, and their forms: forward maps, read along paths from readout to input; Eqs. (5)-(7).

A layer is two expressions: a forward map, and the prior of its weights.
"""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float
from sympy import Expr, Identity, KroneckerProduct, MatrixSymbol, S, Symbol, Transpose, expand, sqrt
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...checks import checked_whole_number, is_traced, shown
from ...codegen import compile_expressions, interpret
from ...codegen.compiled import CompiledFunction
from ...symbolic import kronecker, positive_definite
from ...symbolic.algebra import expand_products, from_terms, matrix_terms
from ...symbolic.atoms import PositiveDefiniteSymbol, SideBySide, Stacked, below, beside, split_coefficient
from .activations import IDENTITY, Activation, as_activation

Numbers = Mapping[str, Any]
# Number of partial paths after a layer.
_OUTER = Symbol("n", integer=True, positive=True)
TOKENS = Symbol("N_tokens", integer=True, positive=True)


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
        """Omega_l (H_l tokens x tokens), heads stacked. Columns of a head sum to one."""
        return MatrixSymbol(f"Omega_{self.index}", self.heads * TOKENS, TOKENS)

    def weights(self, blocks: Expr | int) -> MatrixSymbol:
        """Return V_l (N_{l+1} x blocks N_l), one block per row of the prior."""
        columns = expand(blocks * self.width)
        return MatrixSymbol(f"V_{self.index}", self.next_width, columns)

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
        """Return the covariance < V^a_ij V^b_ij > of weight blocks a, b."""

    def parameters(self, layer: LayerSymbols) -> Mapping[Expr, ArrayLike]:
        """Return the value of each symbol that `layer.number` or `layer.covariance` made."""
        return {}


class Attention(AbstractLayer):
    """Attention heads, whose attention is a function of the bare input; Eq. (2)."""

    heads: int = eqx.field(static=True, converter=partial(checked_whole_number, "heads", least=1))

    def forward(self, layer):
        values = layer.weights(layer.heads) * KroneckerProduct(Identity(layer.heads), layer.hidden)
        return values * layer.attention / sqrt(layer.heads * layer.width)  # Eq. (2)

    def prior(self, layer):
        return layer.variance * Identity(layer.heads)


class Dense(AbstractLayer):
    """A layer that acts on each token separately.

    - `activation`: the function phi of its hidden units, as in
      `Architecture.embedding`.
    """

    activation: Activation = eqx.field(static=True, kw_only=True, default=IDENTITY, converter=as_activation)

    @property
    def heads(self):
        return 0

    def forward(self, layer):
        return layer.weights(1) * layer.hidden / sqrt(layer.width)

    def prior(self, layer):
        return layer.variance * Identity(1)


def as_layer(name: str, layer: AbstractLayer | int) -> AbstractLayer:
    if isinstance(layer, AbstractLayer):
        return layer
    if isinstance(layer, (type, str, tuple, list)):
        raise TypeError(f"{name} must be one layer such as bpkr.Dense(), or a number of heads, got {shown(layer)}")
    return Attention(checked_whole_number(name, layer, least=1))


class Skip(AbstractLayer):
    """A skip connection around one layer: x^l = gain x^{l-1} + layer(x^{l-1}), for equal widths.

    - `layer`: the layer inside, or its number of heads.
    - `gain`: positive.
    """

    layer: AbstractLayer = eqx.field(converter=partial(as_layer, "layer"))
    gain: ArrayLike = 1.0

    def __check_init__(self):
        if isinstance(self.layer, Skip):
            raise ValueError("layer is a Skip already")
        if not activation_of(self.layer).is_linear:
            raise ValueError("layer must be linear: a skip around nonlinear units is not covered")

    @property
    def heads(self):
        return self.layer.heads

    def forward(self, layer):
        return layer.number("s") * layer.hidden + self.layer.forward(layer)

    def prior(self, layer):
        return self.layer.prior(layer)

    def parameters(self, layer):
        return {layer.number("s"): self.gain, **self.layer.parameters(layer)}


def activation_of(layer: AbstractLayer) -> Activation:
    return layer.activation if isinstance(layer, Dense) else IDENTITY


@dataclass(frozen=True)
class LayerForm:
    """Expressions that follow from the forward map and the prior of one layer.

    Paths branch at the layer: first the skip connection, then the weight blocks.

    - `forward`: X_l in terms of `weights` V_l and of X_{l-1}.
    - `blocks`, `covariance`: number of weight blocks k, and prior covariance (k x k).
    - `gain`: factor of the skip connection, or zero.
    - `skip_tokens` (tokens x tokens), `block_tokens` (k tokens x tokens): their mixing.
    - `block_heads`: the heads that each block passes (k x H_l), if any.
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
    def has_skip(self) -> bool:
        return self.gain != 0

    @property
    def parameters(self) -> frozenset[Expr]:
        of = self.symbols
        known = {of.width, of.next_width, of.heads, TOKENS}
        known |= {of.variance, of.hidden, of.attention, self.weights}
        return frozenset(_symbols(self.forward) | _symbols(self.covariance)) - known

    @property
    def branches(self) -> Expr:
        return self.blocks + int(self.has_skip)

    def block_reading(self, reading: MatrixExpr) -> MatrixExpr:
        """Return how blocks read tokens (tokens x k n), given the `reading` after the layer."""
        return SideBySide(expand_products(self.block_tokens * reading), self.blocks)  # Eq. (7)

    def prior_mean(self, outer: MatrixExpr) -> MatrixExpr:
        """Return the prior mean of U_l = w^(l) w^(l)T / N_l, given U_{l+1}."""
        of_blocks = kronecker(self.covariance, outer)
        return BlockDiagMatrix(self.gain**2 * outer, of_blocks) if self.has_skip else of_blocks


@dataclass(frozen=True)
class NetworkForm:
    """The forms of all layers, and the structure of outputs and hidden units.

    - `activations`: as in `Architecture`, but empty if all are linear.
    - `between`: numbers and functions phi of nonlinear layers above attention.
    - `has_richness`, `is_infinite`: whether it is mean-field, at infinite width.
    """

    layers: tuple[LayerForm, ...]
    several_outputs: bool
    every_token: bool
    activations: tuple[Activation, ...]
    between: tuple[tuple[int, Activation], ...]
    has_richness: bool
    is_infinite: bool

    @property
    def widths(self) -> tuple[Expr, ...]:
        if not self.layers:
            return (width_symbol("a"),)
        return (*(form.symbols.width for form in self.layers), self.layers[-1].symbols.next_width)


def width_symbol(name: str) -> Symbol:
    """Return N_name, the units before the layer with this number; "a" is the readout."""
    return Symbol(f"N_{name}", positive=True)


def read_layer(kind: AbstractLayer, symbols: LayerSymbols) -> LayerForm:
    try:
        return _read(kind, symbols)
    except ValueError as error:
        name = type(kind).__name__
        raise ValueError(f"the theory does not cover the forward map of {name}: {error}") from None


def _read(kind: AbstractLayer, symbols: LayerSymbols) -> LayerForm:
    forward = kind.forward(symbols)
    covariance = kind.prior(symbols)
    hidden = symbols.hidden
    if not getattr(covariance, "is_Matrix", False) or covariance.shape[0] != covariance.shape[1]:
        raise ValueError(f"its prior {covariance} is not a square matrix")
    size = (symbols.next_width, TOKENS)
    given = getattr(forward, "shape", "a scalar")
    if given != size:
        raise ValueError(f"it has shape {given}, not {size}")
    # Else path weights would not be Gaussian given the next layer.
    if diverging := {symbols.width, symbols.next_width, TOKENS} & covariance.atoms(Symbol):
        raise ValueError(f"its `prior` must not depend on {', '.join(sorted(map(str, diverging)))}")
    blocks = covariance.shape[0]
    weights = symbols.weights(blocks)
    # Compare sizes at the layer's heads, because one head needs no KroneckerProduct.
    heads = {symbols.heads: kind.heads} if kind.heads else {}
    gain, skip_tokens = S.Zero, Identity(TOKENS)
    mixings, block_heads = [], None
    for coefficient, factors in matrix_terms(forward):
        _check_is_linear(factors, weights, hidden)
        for before, after in pairwise((Identity(symbols.next_width), *factors, Identity(TOKENS))):
            # SymPy allows products of different sizes if they are symbols.
            if expand(before.shape[1] - after.shape[0]).subs(heads) != 0:
                raise ValueError(f"it multiplies {before} by {after}, whose sizes do not match")
        first, *others = factors
        if first == hidden:
            if gain != 0:
                raise ValueError("it has more than one skip connection")
            # Factors that depend on the number of tokens mix tokens.
            gain, of_tokens = coefficient.as_independent(TOKENS, as_Add=False)
            skip_tokens = from_terms([(of_tokens, tuple(others))], (TOKENS, TOKENS))
            continue
        if first != weights or not others:
            known = f"{hidden} or {weights} of shape {weights.shape}"
            raise ValueError(f"a term starts with {first}, not with {known}")
        # V (M (x) X) Omega mixes tokens by c (M (x) I) Omega, with the heads M of blocks.
        acted_on, *rest = others
        if acted_on == hidden and expand(blocks).subs(heads) == 1:
            spread = Identity(blocks)
        elif isinstance(acted_on, KroneckerProduct) and acted_on.args[1:] == (hidden,):
            spread = acted_on.args[0]
        else:
            known = f"KroneckerProduct(matrix, {hidden})"
            raise ValueError(f"its weights act on {acted_on}, not on {known}")
        term = coefficient * sqrt(symbols.width), tuple(rest)
        chain = from_terms([term], (spread.shape[1] * TOKENS, TOKENS))
        mixings.append(expand_products(kronecker(spread, Identity(TOKENS)) * chain))
        if block_heads is None and rest and rest[0] == symbols.attention:
            block_heads = spread
    if not mixings:
        raise ValueError(f"it does not contain the weights {weights}")
    attends = forward.has(symbols.attention)
    if attends != (checked_whole_number("heads", kind.heads, least=0) > 0):
        which = "attention" if attends else "no attention"
        raise ValueError(f"it has heads={kind.heads}, but {which} in its forward map")
    tokens = skip_tokens, expand_products(sum(mixings[1:], start=mixings[0]))
    return LayerForm(symbols, forward, weights, blocks, covariance, gain, *tokens, block_heads)


def _check_is_linear(factors: Sequence[MatrixExpr], weights, hidden) -> None:
    for factor in factors:
        is_linear = isinstance(factor, (MatrixSymbol, Transpose, KroneckerProduct))
        if factor.has(weights, hidden) and not is_linear:
            raise ValueError(f"it is nonlinear: {weights} or {hidden} is inside a function")
    of_hidden = sum(factor.count(hidden) for factor in factors)
    if of_hidden == 0:
        raise ValueError(f"a term does not contain {hidden}: biases are not covered")
    if of_hidden > 1:
        raise ValueError(f"it is not linear in {hidden}, as with attention on hidden activations")
    if sum(factor.count(weights) for factor in factors) > 1:
        raise ValueError(f"{weights} occurs more than once in a product")


def size_of(size: Expr, head_counts: Mapping[str, int]) -> int:
    if unknown := sorted({symbol.name for symbol in size.free_symbols} - set(head_counts)):
        raise ValueError(f"sizes must depend on heads alone, got {', '.join(unknown)}")
    return int(interpret(size, head_counts))


def branch_heads(form: LayerForm, heads: int) -> np.ndarray:
    counts = {form.symbols.heads.name: heads}
    if form.block_heads is None:
        passed = np.zeros((size_of(form.blocks, counts), heads))
    else:
        # Replace parameters by ones, because only the zero entries matter.
        for each in _symbols(form.block_heads) - {form.symbols.heads}:
            sides = getattr(each, "shape", ())
            counts[each.name] = np.ones([size_of(side, counts) for side in sides])
        passed = interpret(form.block_heads, counts)
    return np.concatenate([np.zeros((int(form.has_skip), heads)), passed]) != 0


def layer_reading(form: LayerForm, numbers: Numbers, outer: Array, attention: Array | None) -> Array:
    """Return how partial paths read tokens before the layer, given q_l after it; Eq. (7)."""
    after = MatrixSymbol(f"q_{form.symbols.index}", TOKENS, _OUTER)
    skip = [expand_products(form.skip_tokens * after)] if form.has_skip else []
    mixed = beside(*skip, form.block_reading(after))
    return evaluate_form(mixed, numbers, {after: outer, form.symbols.attention: attention})


def all_path_weights(
    forms: Sequence[LayerForm], numbers: Numbers, layers: Sequence[Array], readout: Array
) -> tuple[Array, ...]:
    """Return (w^(1), ..., w^(L+1)), given V_1, ..., V_L and the readout weights; Eq. (6)."""
    found = [readout]
    for form, blocks in zip(reversed(forms), reversed(layers), strict=True):
        width = form.symbols.next_width
        outer = MatrixSymbol(f"w_{form.symbols.index}", _OUTER, width)
        skip = [form.gain * outer] if form.has_skip else []
        weights = below(*skip, Stacked(outer * form.weights, form.blocks) / sqrt(width))  # Eq. (6)
        found.append(evaluate_form(weights, numbers, {outer: found[-1], form.weights: blocks}))
    return tuple(reversed(found))


def prior_means(forms: Sequence[LayerForm], numbers: Numbers, outer: Any) -> list[Any]:
    """Return the prior means of U_1, ..., U_L given U_{L+1}, in NumPy if all is known."""
    means = []
    symbol = MatrixSymbol("U", _OUTER, _OUTER)
    for form in reversed(forms):
        mean = form.prior_mean(symbol)
        values = {each.name: numbers[each.name] for each in _symbols(mean) - {symbol, _OUTER}}
        if is_traced(values, outer):
            outer = evaluate_form(mean, values, {symbol: jnp.asarray(outer)})
        else:  # A compilation takes longer than the evaluation.
            values = {name: x if isinstance(x, int) else np.asarray(x) for name, x in values.items()}
            values |= {symbol.name: np.asarray(outer), _OUTER.name: len(outer)}
            outer = np.asarray(interpret(mean, values))
        means.insert(0, outer)
    return means


def covariance_root(form: LayerForm, numbers: Numbers) -> Float[Array, "blocks blocks"]:
    variance, matrix = split_coefficient(form.covariance)
    if isinstance(matrix, Identity):
        return evaluate_form(sqrt(variance) * matrix, numbers)
    return jnp.linalg.cholesky(evaluate_form(form.covariance, numbers))


def evaluate_form(expression: Expr, numbers: Numbers, arrays: Mapping[Expr, Any] | None = None) -> Any:
    """Evaluate an expression of a layer, given numbers and arrays that are not None."""
    given = {symbol: array for symbol, array in (arrays or {}).items() if array is not None}
    function = _compile(expression, tuple(given))
    values = numbers | {symbol.name: array for symbol, array in given.items()}
    return function.call_from(values)["value"]


@lru_cache
def _compile(expression: Expr, arrays: tuple[MatrixSymbol, ...]) -> CompiledFunction:
    others = _symbols(expression) - {*arrays, _OUTER, TOKENS}
    arguments = (*arrays, *sorted(others, key=lambda symbol: symbol.name))
    return compile_expressions("layer", {"value": expression}, arguments)


def _symbols(expression: Expr) -> set[Expr]:
    return expression.atoms(Symbol, MatrixSymbol)
