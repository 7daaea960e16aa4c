"""The architecture of a deep network, built from the layers in `layers`. The action follows from the architecture.

Stage 0 of `Architecture -> derive -> Action -> compile -> bind -> solve -> predict`.
"""

from __future__ import annotations

import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from sympy import Expr, Identity, Symbol

from ...checks import (
    Requirement,
    array_module,
    by_name,
    check_is_number,
    checked_instance,
    checked_number,
    checked_sequence,
    checked_whole_number,
    finite_entries,
    has_entries,
    is_traced,
    numeric_array,
    require,
    shown,
)
from ...codegen import interpret
from ...memory import check_fits
from ...precision import require_float64
from ...symbolic.atoms import split_coefficient
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Block
from .activations import IDENTITY, Activation, as_activation
from .layer_form import TOKENS, LayerForm, NetworkForm, layer_form, width_symbol
from .layer_functions import branch_heads, count
from .layers import AbstractLayer, Dense, LayerSymbols, activation_of, as_layer
from .view import architecture_view

# Peak memory of a solve in arrays of the size of U_1, measured.
_SOLVE_COPIES = 120
# Peak memory of a solve in arrays of the size of the data matrix, measured.
_KERNEL_COPIES = 16
# Peak memory in arrays of the size of U_1 while U_1 is made, measured.
_POINT_COPIES = 3
# Seconds of a solve divided by the cubed number of rows of U_1, measured on two cores.
_SECONDS = 2.5e-7
# Warn of solves that take longer than this many seconds.
_LONG = 60.0
# With fewer labels per hidden unit than this, the terms that the ansatz drops are as large as the terms that it keeps.
_FEW = 0.2
# Powers of widths outside this range overflow or underflow double precision.
_WIDTHS = (1e-100, 1e100)
# Names of symbols that have another meaning in an action or its derivation.
_TAKEN = frozenset({"H", "N", "Omega", "Q", "R", "U", "V", "X", "Z", "q", "sigma2", "w"})


class Architecture(DisplayMixin, eqx.Module):
    """Layers, widths, prior variances and temperature of a deep network; Eqs. (1)-(4) and (8).

    An architecture is frozen data and a JAX pytree: kinds of layers, heads and outputs are static, and the numbers are
    leaves. You can differentiate or vmap over widths, variances, temperature, and parameters of layers.

    - `layers`: the layers from the input side. A whole number stands for a layer of that many attention heads. Without
      layers, the readout reads the embedding.
    - `widths`: (N_1, ..., N_L, N_a), from the input side, or one number for all. The widths before and after a skip
      connection must be equal. With a `richness`, `math.inf` is the limit of infinite width, in which features are
      learned.
    - `prior_variances`: (sigma_0^2, sigma_1^2, ..., sigma_L^2, sigma_a^2), or one number for all.
    - `temperature`: variance T of the labels' noise in Eq. (8). T = 0 (interpolation) needs an invertible kernel, which
      is checked with the data.
    - `outputs`: number of outputs C per example.
    - `read_tokens`: number of tokens with separate readout weights. With 1, the readout reads one token, or the mean
      over tokens.
    - `richness`: the richness gamma_0 of the mean-field parameterisation, also called mu-P; None for the standard
      parameterisation. With N = N_1, the prior variance sigma_a^2 of the readout and the temperature are divided by
      N gamma_0^2. The likelihood exp(-N gamma_0^2 |f - y|^2 / (2 T)) sharpens with the width (a cold posterior), so
      features are learned even at infinite width.
    - `width_ratios`: the ratios of infinite widths, by default equal widths; the attribute contains N_l / N_1. Finite
      widths have their own ratios, and the attribute is None.
    - `embedding`: the function phi of the embedded tokens, phi(V_0 x): "identity", "erf", "relu", "quadratic", or a
      custom function such as `sympy.tanh`. With a nonlinear function the theory is an ansatz, Gaussian equivalence,
      which is good for numbers of examples proportional to the widths; see `Action.ansatz`.

    The constructor derives these attributes:

    - `heads`: (H_1, ..., H_L); 0 for a layer without attention.
    - `branches`: the number of branches of each layer: its weight blocks, plus its skip connection.
    - `overlap_sizes`: (n_1, ..., n_{L+1}). n_l is the number of partial paths from layer l to the readout, times the
      outputs, times the tokens that are read.
    - `paths`: the number of attention paths, the product of all `branches` times the number of tokens that are read.

    Example:
        >>> from theorykit import bpkr
        >>> arch = bpkr.Architecture(layers=(2, 3), widths=(50, 50, 20), temperature=0.01)
        >>> arch.path_labels()
        ('11', '12', '13', '21', '22', '23')
    """

    layers: tuple[AbstractLayer, ...]
    widths: tuple[Any, ...]
    prior_variances: tuple[Any, ...]
    temperature: Any
    outputs: int = eqx.field(static=True)
    read_tokens: int = eqx.field(static=True)
    embedding: Activation = eqx.field(static=True)
    richness: Any
    width_ratios: tuple[Any, ...] | None
    # Fields, not properties, because functions of arrays need them at every call.
    heads: tuple[int, ...] = eqx.field(static=True, init=False, repr=False)
    branches: tuple[int, ...] = eqx.field(static=True, init=False, repr=False)
    overlap_sizes: tuple[int, ...] = eqx.field(static=True, init=False, repr=False)
    paths: int = eqx.field(static=True, init=False, repr=False)

    def __init__(
        self,
        layers: Sequence[AbstractLayer | int],
        widths: ArrayLike | Sequence[ArrayLike],
        prior_variances: ArrayLike | Sequence[ArrayLike] = 1.0,
        *,
        temperature: ArrayLike,
        outputs: int = 1,
        read_tokens: int = 1,
        embedding: str | Expr | Callable[[Expr], Expr] | Activation = IDENTITY,
        richness: ArrayLike | None = None,
        width_ratios: ArrayLike | Sequence[ArrayLike] | None = None,
    ):
        layers = checked_sequence("layers", layers, "layers, such as (2, 3) for two layers of 2 and 3 heads")
        layers = tuple(as_layer(layer, f"layers[{i}]") for i, layer in enumerate(layers))
        self.embedding = as_activation(embedding, "embedding")
        for i in range(nonlinear_layers(layers)):
            if not isinstance(layers[i], Dense):
                raise ValueError(
                    f"layers[{i}] is {type(layers[i]).__name__}, but a layer above it has a nonlinear activation: the "
                    "theory covers nonlinear functions in the embedding and in dense layers directly above it, where "
                    "tokens do not mix yet"
                )
        forms = _forms(jax.tree.structure(layers))
        names, length = "N_1, ..., N_L, N_a", len(layers) + 1
        given = tuple(widths) if has_entries(widths) and not isinstance(widths, (str, bytes)) else (widths,)
        infinite = [_is_infinite(width) for width in given]
        if richness is None or not any(infinite):
            if width_ratios is not None:
                raise ValueError(
                    "width_ratios are for widths=math.inf with a richness; finite widths have their own ratios. Leave "
                    "width_ratios out; in dataclasses.replace, give width_ratios=None"
                )
            self.widths = _checked_widths(forms, _per_layer("widths", widths, length, names))
            self.width_ratios = None
        else:
            if not all(infinite) or len(given) not in (1, length):
                raise ValueError(
                    f"widths must be all finite or all infinite, one or {length} of them ({names}), got {widths!r}; "
                    "give the ratios of infinite widths by width_ratios"
                )
            ratios = 1.0 if width_ratios is None else width_ratios
            first, *others = _per_layer("width_ratios", ratios, length, "N_l / N_1")
            self.widths = (math.inf,) * length
            ratios = (1.0, *(ratio / first for ratio in others))
            self.width_ratios = _checked_widths(forms, ratios, "width_ratios")
        self.prior_variances = _per_layer(
            "prior_variances", prior_variances, len(layers) + 2, "sigma_0^2, sigma_1^2, ..., sigma_L^2, sigma_a^2"
        )
        self.layers = tuple(map(_checked_layer, layers, forms, self.prior_variances[1:-1]))
        self.temperature = _plain(checked_number("temperature", temperature, least=0.0))
        self.richness = None if richness is None else _checked_richness(richness, self)
        self.outputs = checked_whole_number("outputs", outputs, least=1)
        self.read_tokens = checked_whole_number("read_tokens", read_tokens, least=1)
        self.heads = tuple(layer.heads for layer in self.layers)
        counts = self.head_counts()
        self.branches = tuple(count(form.branches, counts) for form in forms)
        read = self.outputs * self.read_tokens
        self.overlap_sizes = tuple(read * math.prod(self.branches[layer:]) for layer in range(len(layers) + 1))
        self.paths = math.prod(self.branches) * self.read_tokens

    def with_arrays(self) -> Architecture:
        """Convert every number to a float64 array, so that functions are compiled once per structure."""
        require_float64()
        # For concrete numbers NumPy is ten times faster.
        return jax.tree.map(lambda number: (jnp if is_traced(number) else np).asarray(number, dtype=np.float64), self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Versions before 0.1.0 pickled architectures without these fields.
        vars(self).update({"richness": None, "width_ratios": None, **state})

    @property
    def depth(self) -> int:
        """Number of layers L."""
        return len(self.layers)

    @property
    def forms(self) -> tuple[LayerForm, ...]:
        """The symbolic form of each layer."""
        return _forms(jax.tree.structure(self.layers))

    @property
    def form(self) -> NetworkForm:
        """The structure of the network, which determines the action."""
        activations = () if self.is_linear else self.activations
        has_richness = self.richness is not None
        several, every_token = self.outputs > 1, self.read_tokens > 1
        return NetworkForm(self.forms, several, every_token, activations, has_richness, self.is_infinite)

    @property
    def activations(self) -> tuple[Activation, ...]:
        """The functions phi of the embedding and of the dense layers above it, up to the last nonlinear layer."""
        return (self.embedding, *map(activation_of, self.layers[: nonlinear_layers(self.layers)]))

    @property
    def is_linear(self) -> bool:
        """Whether all hidden units are linear, so that the theory is not an ansatz."""
        return self.embedding.is_linear and nonlinear_layers(self.layers) == 0

    @property
    def is_infinite(self) -> bool:
        """Whether the widths are infinite, with a richness."""
        return self.width_ratios is not None

    @property
    def has_sharp_outputs(self) -> bool:
        """Whether outputs have no variance: at infinite width with a positive richness, where it falls as 1/N_1."""
        return self.is_infinite and bool(self.richness > 0)

    @property
    def relative_widths(self) -> tuple[Any, ...]:
        """The widths in units in which the action is of order one per unit: at infinite width N_l / N_1."""
        return self.widths if self.width_ratios is None else self.width_ratios

    @property
    def root_power(self) -> Any:
        """N_1^(1/2) gamma_0 with a richness, and 1 without: labels are multiplied by it, outputs divided."""
        return 1.0 if self.richness is None else self.relative_widths[0] ** 0.5 * self.richness

    @property
    def label_noise(self) -> Any:
        """Variance of the labels' noise: T, divided by N_1 gamma_0^2 with a richness, and so zero at infinite width."""
        return 0.0 if self.is_infinite else self.temperature / self.root_power**2

    def at_infinite_width(self) -> Architecture:
        """Return this architecture at infinite width, with the same ratios of widths. It must have a richness."""
        return replace(self, widths=math.inf, width_ratios=self.relative_widths)

    @property
    def order_parameter_sizes(self) -> tuple[int, ...]:
        """(n_1, ..., n_L): `overlap_sizes` without the readout."""
        return self.overlap_sizes[:-1]

    def path_branches(self) -> tuple[tuple[int, ...], ...]:
        """Return the branches that each path takes, one per layer, counted from 1, in the order of the path axis.

        The branch of the first layer varies slowest. A skip connection is the first branch of its layer. If several
        tokens are read, paths to different tokens may take the same branches.
        """
        check_bytes(self, "the list of them", 64 * self.paths)
        branches = product(*(range(1, branches + 1) for branches in self.branches))
        return tuple(path for path in branches for _ in range(self.read_tokens))

    def branch_heads(self, layer: int) -> np.ndarray:
        """Return which heads each branch of a layer passes, as booleans (branches, heads). Layers count from 1."""
        layer = checked_whole_number("layer", layer, least=1, most=self.depth) - 1
        entries = 3 * self.branches[layer] * self.heads[layer]
        check_bytes(self, f"the table of the branches of layer {layer + 1}", entries)
        return branch_heads(self.forms[layer], self.heads[layer])

    def path_labels(self, first_layer: int = 1) -> tuple[str, ...]:
        """Return a short name for each path: "201" passes head 2, a skip connection, and head 1.

        "-" is a layer without attention, or a network without layers. "1+2" is a weight block that heads 1 and 2 share.
        If the readout has separate weights per token, ":3" marks a path to the third token. With `first_layer` above 1,
        partial paths that start at this layer are named.
        """
        first_layer = checked_whole_number("first_layer", first_layer, least=1, most=max(self.depth, 1))
        check_bytes(self, "the list of them", 64 * self.paths)
        layers = [self._branch_labels(layer) for layer in range(first_layer, self.depth + 1)]
        separator = "" if all(len(label) == 1 for labels in layers for label in labels) else "."
        names = [separator.join(path) or "-" for path in product(*layers)]
        if self.read_tokens == 1:
            return tuple(names)
        return tuple(f"{name}:{token}" for name in names for token in range(1, self.read_tokens + 1))

    def _branch_labels(self, layer: int) -> list[str]:
        passes = self.branch_heads(layer)
        labels = ["+".join(str(head + 1) for head in np.flatnonzero(heads)) or "-" for heads in passes]
        if self.forms[layer - 1].has_skip:
            labels[0] = "0"
        # Letters distinguish blocks that pass the same heads.
        counts, seen = Counter(labels), Counter()
        for i, label in enumerate(labels):
            if counts[label] > 1:
                labels[i] = f"{label}{chr(ord('a') + seen[label])}"
                seen[label] += 1
        return labels

    def _view(self) -> Iterator[Block]:
        yield from architecture_view(self)

    def head_counts(self) -> Mapping[str, int]:
        """Return the value of the symbol H_l by name, for every layer that has heads."""
        return {form.symbols.heads.name: each for form, each in zip(self.forms, self.heads, strict=True) if each}

    def size_values(self) -> Mapping[str, int]:
        """Return the value of every size symbol of the action by name: head counts, outputs C, and tokens read."""
        return {**self.head_counts(), "C": self.outputs, TOKENS.name: self.read_tokens}

    def layer_numbers(self) -> Mapping[str, Any]:
        """Return by name the value of every symbol in the layers' expressions, except arrays of weights or data."""
        forms = self.forms
        return {
            **{symbol.name: width for symbol, width in zip(self.form.widths, self.relative_widths, strict=True)},
            **{form.symbols.variance.name: each for form, each in zip(forms, self.prior_variances[1:-1], strict=True)},
            **self.head_counts(),
            **{
                symbol.name: jnp.asarray(value, dtype=jnp.float64) if symbol.is_Matrix else value
                for layer, form in zip(self.layers, forms, strict=True)
                for symbol, value in layer.parameters(form.symbols).items()
            },
        }


def checked_architecture(value: Any) -> Architecture:
    """Return `value` after checking that it is an architecture."""
    return checked_instance(
        "architecture", value, Architecture, "such as bpkr.Architecture((2, 2), 100, temperature=0.1)"
    )


def require_finite_widths(architecture: Architecture, what: str) -> None:
    """Raise `ValueError` if the widths are infinite, with the words for what needs finite widths."""
    if architecture.is_infinite:
        raise ValueError(f"{what} needs finite widths, but the architecture has widths=inf; give numbers")


def ansatz_of(architecture: Architecture, labels: int) -> str:
    """Describe the ansatz for nonlinear units, or the parameterisation with a richness; empty if there is neither.

    Say whether there are enough labels for the ansatz. Traced widths are not compared with the number of labels,
    because their values are unknown.
    """
    if architecture.richness is not None:
        if not is_traced(architecture.richness) and architecture.richness == 0:
            return (
                "Richness 0 at infinite width: the Gaussian process, whose features are not learned; action and log "
                "evidence are per width N_1, and variances are those of the standard parameterisation"
            )
        cold = (
            "Mean-field parameterisation: the likelihood exp(-N_1 gamma_0^2 |f - y|^2 / (2 T)) sharpens with the width "
            "N_1 (a cold posterior), so variances of outputs are of order 1/N_1"
        )
        if architecture.is_infinite:
            return (
                f"{cold}. At infinite width features are learned; action and log evidence are per N_1, variances are "
                "multiplied by N_1, and standard deviations by N_1^(1/2)"
            )
        return f"{cold}. bpkr.predict gives the variance at the saddle point, and bpkr.fluctuations the whole variance"
    if architecture.is_linear:
        return ""
    functions = ", ".join(activation.name for activation in architecture.activations)
    said = (
        f"Gaussian equivalence: hidden units after {functions} are replaced by linear units of the same covariance, "
        "which is accurate if the number of labels is proportional to the widths"
    )
    if is_traced(architecture.widths) or labels >= _FEW * (widest := max(map(float, architecture.widths))):
        return said
    return (
        f"{said}; {labels} labels are few for {widest:.6g} hidden units: the ansatz drops terms as large as the terms "
        "that it keeps, and the infinitely wide network, bpkr.gp_limit, is as accurate"
    )


def counted_paths(architecture: Architecture) -> str:
    """Explain the number of paths, for error messages."""
    tokens = f" and {architecture.read_tokens} tokens that are read" if architecture.read_tokens > 1 else ""
    return f"layers of {architecture.branches} branches{tokens} make {architecture.paths:,}"


def check_size(architecture: Architecture) -> None:
    """Raise an error if the largest order parameter does not fit in the memory of this machine."""
    side = architecture.overlap_sizes[0]
    check_bytes(architecture, f"making the order parameter U_1, {side:,} x {side:,}", _POINT_COPIES * 8 * side**2)


def check_bytes(architecture: Architecture, what: str, size: int) -> None:
    """Raise an error if `what`, of `size` bytes, does not fit in the memory of this machine."""
    check_fits(f"the architecture is too large: {counted_paths(architecture)} paths, and {what},", size)


def solve_bytes(architecture: Architecture, rows: int) -> int:
    """Estimate the memory of a solve.

    `rows` is the side of the data matrix: examples times outputs, or features times paths, whichever is smaller.
    """
    return 8 * (_SOLVE_COPIES * architecture.overlap_sizes[0] ** 2 + _KERNEL_COPIES * rows**2)


def check_solve(architecture: Architecture, rows: int) -> None:
    """Before compilation, raise an error for a solve that does not fit in memory, and warn of a long solve."""
    side, size = architecture.overlap_sizes[0], solve_bytes(architecture, rows)
    check_bytes(architecture, f"solving for U_1, {side:,} x {side:,}, with a matrix of {rows:,} rows", size)
    seconds = _SECONDS * side**3
    if seconds > _LONG:
        time = f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.0f} hours"
        warnings.warn(
            f"{counted_paths(architecture)} paths: solving for U_1, {side:,} x {side:,}, takes about {time} on two "
            "cores. The time grows with the third power of the number of paths",
            stacklevel=3,
        )


def nonlinear_layers(layers: tuple[AbstractLayer, ...]) -> int:
    """Return the number of layers up to the last nonlinear one."""
    return max((i for i, layer in enumerate(layers, 1) if not activation_of(layer).is_linear), default=0)


class _Number:
    """Placeholder for a parameter of a layer, for which expressions must use a symbol."""

    def _sympy_(self):
        raise ValueError(
            "`forward` or `prior` contains the value of a parameter of the layer; use the symbol layer.number(name) or "
            "layer.covariance(name, size) instead, and return the value from `parameters`"
        )


@lru_cache
def _forms(structure: jax.tree_util.PyTreeDef) -> tuple[LayerForm, ...]:
    """Return the forms of layers with this structure, for any values of its leaves."""
    layers = jax.tree.unflatten(structure, [_Number()] * structure.num_leaves)
    width, forms = width_symbol("1"), []
    for index, layer in enumerate(layers, 1):
        # A skip connection needs equal widths, so try them first.
        form = layer_form(layer, LayerSymbols(index, width, width))
        if not form.has_skip:
            next_width = width_symbol(str(index + 1) if index < len(layers) else "a")
            form = layer_form(layer, LayerSymbols(index, width, next_width))
        forms.append(form)
        width = form.symbols.next_width
    return tuple(forms)


def _plain(value: Any) -> Any:
    """Convert NumPy scalars to Python numbers, and large whole numbers to floats; JAX takes at most 64 bits."""
    if isinstance(value, int):
        return value if abs(value) < 2**53 else float(value)
    return value.item() if isinstance(value, np.generic) else value


def _per_layer(name: str, values: Any, length: int, meaning: str) -> tuple:
    if isinstance(values, (str, bytes)) or not has_entries(values):
        values = (values,) * length
    values = checked_sequence(name, values, f"numbers ({meaning}), or be a number for all", length)
    for i, value in enumerate(values):
        if name == "widths" and _is_infinite(value):
            raise ValueError(
                f"widths[{i}] must be finite, got inf: for the Gaussian process, the infinite width of the standard "
                "parameterisation, use bpkr.Model(widths=math.inf), or bpkr.gp_limit(architecture), which does not "
                "depend on the widths; for infinite width with learned features give a richness, such as richness=1"
            )
    return tuple(_plain(checked_number(f"{name}[{i}]", value, above=0.0)) for i, value in enumerate(values))


def _is_infinite(width: Any) -> bool:
    return isinstance(width, (float, np.floating)) and width == math.inf


def _checked_richness(richness: ArrayLike, architecture: Architecture) -> Any:
    if not architecture.is_linear:
        raise ValueError(
            "richness needs linear hidden units: with nonlinear units the mean-field limit is not a function of the "
            "order parameters of this theory. Leave richness out, or choose linear units"
        )
    # A traced zero at finite widths cannot be refused by the error below.
    may_be_zero = architecture.is_infinite or not is_traced(richness)
    checked = checked_number("richness", richness, **({"least": 0.0} if may_be_zero else {"above": 0.0}))
    if is_traced(checked):
        return checked
    if checked == 0 and not architecture.is_infinite:
        raise ValueError(
            "richness must be positive at finite widths, got 0: the posterior of the weights would be their prior, and "
            "the outputs would have infinite variance. At widths=math.inf, 0 is the Gaussian process"
        )
    width = architecture.relative_widths[0]
    if checked != 0 and not is_traced(width) and not _WIDTHS[0] <= width * float(checked) ** 2 <= _WIDTHS[1]:
        raise ValueError(
            f"richness must have a square, times the first width, between {_WIDTHS[0]:g} and {_WIDTHS[1]:g}, got "
            f"{shown(richness)}: the action exceeds double precision otherwise"
        )
    return _plain(checked)


def _checked_widths(forms: tuple[LayerForm, ...], widths: tuple, name: str = "widths") -> tuple:
    checked = list(widths)
    for i, width in enumerate(widths):
        if not is_traced(width) and not _WIDTHS[0] <= width <= _WIDTHS[1]:
            raise ValueError(
                f"{name}[{i}] must be between {_WIDTHS[0]:g} and {_WIDTHS[1]:g}, got {width!r}: its powers exceed "
                "double precision. For infinite width use bpkr.gp_limit or bpkr.Model(widths=math.inf)"
            )
    for i, form in enumerate(forms):
        before, after = checked[i : i + 2]
        if form.has_skip and after is not before:
            cause = f"layer {i + 1} has a skip connection, which needs equal widths before and after it"
            traced = is_traced(before, after)
            got = "" if traced else f"; got {name}[{i}]={before} and {name}[{i + 1}]={after}"
            after = jnp.asarray(after) if traced else after
            checked[i + 1] = require(after, [Requirement(cause + got, after == before)])
    return tuple(checked)


def _checked_layer(kind: AbstractLayer, form: LayerForm, variance: Any) -> AbstractLayer:
    """Return `kind` after checking that the theory covers its heads, parameters and prior.

    Traced parameters are checked when the compiled function runs.
    """
    symbols, layer = form.symbols, f"layer {form.symbols.index} ({type(kind).__name__})"
    heads, attends = kind.heads, form.forward.has(form.symbols.attention)
    if attends != (checked_whole_number(f"heads of {layer}", heads, least=0) > 0):
        raise ValueError(f"{layer} has heads={heads}, but {'' if attends else 'no '}attention in its forward map")
    counts = {symbols.heads.name: heads} if heads else {}
    values = kind.parameters(symbols)
    if missing := sorted(symbol.name for symbol in form.parameters - set(values)):
        raise ValueError(f"{layer} has no value for {', '.join(missing)}: `parameters` must name every symbol")
    for symbol, value in values.items():
        name = f"parameter {symbol.name} of {layer}"
        if re.sub(rf"_{symbols.index}$", "", symbol.name) in _TAKEN:
            raise ValueError(f"{layer} has a parameter called {symbol.name}, which has another meaning; rename it")
        if symbol.is_Matrix:
            matrix, size = numeric_array(name, value), count(symbol.shape[0], counts)
            if matrix.shape != (size, size):
                raise ValueError(f"{name} must have shape {(size, size)}, got {matrix.shape}")
            kind = require(kind, _is_positive_definite(name, matrix))
            continue
        check_is_number(name, value)
        # The prior of the weights is even, so the sign of a skip connection has no effect.
        advice = "; leave out a skip connection of strength 0, or its sign" if form.gain.has(symbol) else ""
        got = "" if is_traced(value) else f", got {value!r}{advice}"
        holds = array_module(value).isfinite(value) & (value > 0)
        kind = require(kind, [Requirement(f"{name} must be finite and positive{got}", holds)])
    # Path weights are Gaussian given the next layer only if the prior does not depend on sizes that diverge.
    name = f"the prior covariance of the weight blocks of {layer}"
    sizes = {symbols.width, symbols.next_width, symbols.tokens}
    if found := sorted(symbol.name for symbol in sizes & form.covariance.atoms(Symbol)):
        raise ValueError(
            f"{name} depends on {', '.join(found)}: `prior` must not depend on sizes; divide by sqrt(layer.width) in "
            "`forward` instead"
        )
    if not is_traced(variance, *values.values()):
        numbers = by_name("parameters", {**counts, symbols.variance: variance, **values})
        numbers = {key: np.asarray(value) if np.ndim(value) else float(value) for key, value in numbers.items()}
        scale, matrix = split_coefficient(form.covariance)
        # The identity is not formed, because there can be very many blocks.
        is_diagonal = isinstance(matrix, Identity)
        covariance = np.full((1, 1), interpret(scale, numbers)) if is_diagonal else interpret(form.covariance, numbers)
        require(None, _is_positive_definite(name, covariance))
    return kind


def _is_positive_definite(name: str, matrix: Any) -> Iterator[Requirement]:
    module = array_module(matrix)
    yield finite_entries(name, matrix)
    symmetric = module.max(module.abs(matrix - matrix.T)) <= 1e-8 * module.max(module.abs(matrix))
    yield Requirement(f"{name} must be symmetric", symmetric, lambda: f"{name} must be symmetric, got {matrix}")
    smallest, largest = module.linalg.eigvalsh(matrix)[np.array([0, -1])]
    message, rounding = f"{name} is not positive definite", len(matrix) * np.finfo(np.float64).eps
    measured = f"{message}: smallest eigenvalue {{:.3g}} of {{:.3g}}".format
    yield Requirement(message, smallest > rounding * largest, lambda: measured(smallest, largest))
