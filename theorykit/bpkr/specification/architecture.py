"""The architecture of a deep network, from which its action follows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from sympy import Expr, Identity

from ... import _compat
from ..._compat import require_float64
from ...checks import (
    Requirement,
    array_module,
    checked_instance,
    checked_number,
    checked_sequence,
    checked_whole_number,
    counted,
    finite_entries,
    has_entries,
    is_traced,
    numeric_array,
    require,
    shown,
)
from ...codegen import interpret
from ...symbolic.atoms import split_coefficient
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Block, Table, Text, verbatim
from ...symbolic.documents.values import number
from .activations import IDENTITY, Activation, as_activation
from .layers import (
    TOKENS,
    AbstractLayer,
    Dense,
    LayerForm,
    LayerSymbols,
    NetworkForm,
    activation_of,
    as_layer,
    branch_heads,
    read_layer,
    size_of,
    width_symbol,
)

# Powers of widths and of the richness outside these ranges overflow or underflow double precision.
_WIDTHS = {"least": 1e-100, "most": 1e100}
_MOST_RICHNESS = 1e50
# Names of other symbols of an action or its derivation.
_TAKEN = frozenset({"H", "N", "Omega", "Q", "R", "U", "V", "X", "Z", "q", "sigma2", "w"})


class Architecture(DisplayMixin, eqx.Module):
    """Layers, widths, prior variances and temperature of a deep network; Eqs. (1)-(4) and (8).

    A JAX pytree. Its leaves are widths, variances, temperature, richness, and parameters of layers.

    - `layers`: from the input side. A whole number is a layer of that many attention heads. Without layers, the readout
      reads the embedding.
    - `widths`: (N_1, ..., N_L, N_a), or one number for all. `math.inf` is the limit of infinite width with a richness.
    - `prior_variances`: (sigma_0^2, sigma_1^2, ..., sigma_L^2, sigma_a^2), or one number for all.
    - `temperature`: variance T of the labels' noise, Eq. (8). T = 0 (interpolation) needs an invertible kernel.
    - `outputs`: number of outputs C per example.
    - `read_tokens`: number of tokens with separate readout weights. With 1, the readout reads one token, or the mean.
    - `richness`: gamma_0 of the mean-field parameterisation (mu-P); None for the standard one. It divides sigma_a^2 and
      T by N_1 gamma_0^2 (a cold posterior).
    - `width_ratios`: ratios of infinite widths, by default one. The attribute contains N_l / N_1, or None.
    - `embedding`: the function phi of the embedded tokens, phi(V_0 x): "identity", "erf", "relu", "quadratic", or your
      own, such as `sympy.tanh`. If it is nonlinear, the theory is an ansatz; see `Action.ansatz`.
    - `heads`: (H_1, ..., H_L); 0 for a layer without attention.
    - `branches`: the number of weight blocks and skip connections of each layer.
    - `overlap_sizes`: (n_1, ..., n_{L+1}): partial paths from each layer, times outputs and tokens that are read.
    - `paths`: the number of attention paths, to all tokens that are read.

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
        layers = tuple(as_layer(f"layers[{i}]", layer) for i, layer in enumerate(layers))
        for i, layer in enumerate(layers[: nonlinear_layers(layers)]):
            if not isinstance(layer, Dense):
                raise ValueError(f"layers[{i}] must be Dense below a nonlinear layer, got {type(layer).__name__}")
        forms, depth = _forms(jax.tree.structure(layers)), len(layers)
        self.prior_variances = tuple(_numbers("prior_variances", prior_variances, depth + 2, above=0.0))
        self.layers = tuple(map(_checked_layer, layers, forms, self.prior_variances[1:-1]))
        self.embedding = as_activation(embedding, "embedding")
        self.temperature = _number("temperature", temperature, least=0.0)
        self.outputs = checked_whole_number("outputs", outputs, least=1)
        self.read_tokens = checked_whole_number("read_tokens", read_tokens, least=1)

        widths = _entries("widths", widths, depth + 1)
        is_infinite = richness is not None and all(isinstance(each, float) and each == math.inf for each in widths)
        if is_infinite:
            ratios = _widths("width_ratios", 1.0 if width_ratios is None else width_ratios, forms)
            self.widths, self.width_ratios = widths, (1.0, *(ratio / ratios[0] for ratio in ratios[1:]))
        elif width_ratios is None:
            self.widths, self.width_ratios = _widths("widths", widths, forms), None
        else:
            raise ValueError("width_ratios must be None unless widths are math.inf and there is a richness")
        self.richness = None
        if richness is not None:
            if not self.is_linear:
                raise ValueError("richness must be None for nonlinear hidden units")
            # At infinite width, a richness of zero is the Gaussian process.
            least = {"least": 0.0} if is_infinite else {"above": 0.0}
            self.richness = _number("richness", richness, **least, most=_MOST_RICHNESS)

        self.heads = tuple(layer.heads for layer in layers)
        counts = self.head_counts()
        self.branches = tuple(size_of(form.branches, counts) for form in forms)
        self.paths = math.prod(self.branches) * self.read_tokens
        read = self.outputs * self.read_tokens
        self.overlap_sizes = tuple(read * math.prod(self.branches[layer:]) for layer in range(depth + 1))

    def with_arrays(self) -> Architecture:
        """Convert every number to a float64 array."""
        require_float64()
        return jax.tree.map(lambda leaf: array_module(leaf).asarray(leaf, dtype=np.float64), self)

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
        activations, several = () if self.is_linear else self.activations, self.outputs > 1
        has_richness = self.richness is not None
        return NetworkForm(self.forms, several, self.read_tokens > 1, activations, has_richness, self.is_infinite)

    @property
    def activations(self) -> tuple[Activation, ...]:
        """The functions phi of the embedding and of the layers up to the last nonlinear one."""
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
        """Whether the variance of outputs falls as 1/N_1 to zero: at infinite width, with a positive richness."""
        return self.is_infinite and bool(self.richness > 0)

    @property
    def relative_widths(self) -> tuple[Any, ...]:
        """The widths, or N_l / N_1 at infinite width, where the action is per N_1."""
        return self.width_ratios if self.is_infinite else self.widths

    @property
    def root_power(self) -> Any:
        """N_1^(1/2) gamma_0 with a richness, else 1: labels are multiplied by it, outputs divided."""
        return 1.0 if self.richness is None else self.relative_widths[0] ** 0.5 * self.richness

    @property
    def label_noise(self) -> Any:
        """Variance of the labels' noise: T / root_power^2, and zero at infinite width."""
        return 0.0 if self.is_infinite else self.temperature / self.root_power**2

    def at_infinite_width(self) -> Architecture:
        """Return the limit of infinite width with the same richness and ratios of widths."""
        return replace(self, widths=math.inf, width_ratios=self.relative_widths)

    def path_branches(self) -> tuple[tuple[int, ...], ...]:
        """Return the branches (one per layer, from 1, a skip connection first) of each path, in the order of features.

        Paths to each token that is read are repeated.
        """
        check_fits(self, "the list of them", 8 * self.paths)
        paths = itertools.product(*(range(1, branches + 1) for branches in self.branches))
        return tuple(path for path in paths for _ in range(self.read_tokens))

    def branch_heads(self, layer: int) -> np.ndarray:
        """Return which heads each branch of layer l, from 1, passes, as booleans (branches, heads)."""
        layer = checked_whole_number("layer", layer, least=1, most=self.depth) - 1
        return branch_heads(self.forms[layer], self.heads[layer])

    def path_labels(self, first_layer: int = 1) -> tuple[str, ...]:
        """Name each partial path from `first_layer`: "201" passes head 2, a skip connection, and head 1.

        "-" is a layer without attention, "1+2" a block of two heads, and ":3" a path to the third token.
        """
        first_layer = checked_whole_number("first_layer", first_layer, least=1, most=max(self.depth, 1))
        check_fits(self, "the list of them", 8 * self.paths)
        layers = []
        for layer in range(first_layer, self.depth + 1):
            passes = self.branch_heads(layer)
            labels = ["+".join(str(head + 1) for head in np.flatnonzero(heads)) or "-" for heads in passes]
            if self.forms[layer - 1].has_skip:
                labels[0] = "0"
            if len(set(labels)) < len(labels):  # Letters distinguish blocks of the same heads.
                labels = [f"{label}{chr(ord('a') + i)}" for i, label in enumerate(labels)]
            layers.append(labels)
        separator = "" if all(len(label) == 1 for labels in layers for label in labels) else "."
        names = tuple(separator.join(path) or "-" for path in itertools.product(*layers))
        tokens = [""] if self.read_tokens == 1 else [f":{token}" for token in range(1, self.read_tokens + 1)]
        return tuple(name + token for name in names for token in tokens)

    def _view(self) -> Iterator[Block]:
        yield Text(f"**Architecture**: {architecture_line(self)}")
        rows = (
            ("functions of units", ", ".join(verbatim(activation.name) for activation in self.activations)),
            ("layers", ", ".join(verbatim(f"{type(each).__name__}({each.heads or ''})") for each in self.layers)),
            (
                "ratios of infinite widths" if self.is_infinite else "widths",
                ", ".join(map(number, self.relative_widths)),
            ),
            ("prior variances", ", ".join(map(number, self.prior_variances))),
            ("read tokens", number(self.read_tokens)),
        )
        yield Table(rows)

    def head_counts(self) -> Mapping[str, int]:
        """Return the values of H_l by name, for every layer that has heads."""
        return {form.symbols.heads.name: each for form, each in zip(self.forms, self.heads, strict=True) if each}

    def layer_numbers(self) -> Mapping[str, Any]:
        """Return the value of every number and size of the action, and of every parameter of a layer, by name."""
        widths = zip(self.form.widths, self.relative_widths, strict=True)
        numbers = {symbol.name: width for symbol, width in widths} | self.head_counts()
        numbers |= {"C": self.outputs, TOKENS.name: self.read_tokens, "T": self.temperature}
        numbers["sigma2_a"] = self.prior_variances[-1]
        if self.richness is not None:
            numbers["gamma_0"] = self.richness
        for layer, form, variance in zip(self.layers, self.forms, self.prior_variances[1:-1], strict=True):
            numbers[form.symbols.variance.name] = variance
            for symbol, value in layer.parameters(form.symbols).items():
                numbers[symbol.name] = jnp.asarray(value, dtype=jnp.float64) if symbol.is_Matrix else value
        return numbers


def checked_architecture(value: Any) -> Architecture:
    return checked_instance("architecture", value, Architecture)


def require_finite_widths(architecture: Architecture, what: str) -> None:
    if architecture.is_infinite:
        raise ValueError(f"{what} needs finite widths, got widths=inf")


def architecture_line(architecture: Architecture) -> str:
    richness = "" if architecture.richness is None else f", richness {number(architecture.richness)}"
    return (
        f"{counted(architecture.depth, 'layer')}, {counted(architecture.paths, 'path')}, "
        f"temperature {number(architecture.temperature)}, {counted(architecture.outputs, 'output')}{richness}"
    )


def ansatz_of(architecture: Architecture) -> str:
    """Describe the ansatz for nonlinear units, or the parameterisation with a richness; else return ""."""
    if architecture.richness is not None:
        if not is_traced(architecture.richness) and architecture.richness == 0:
            return "Richness 0 at infinite width: the Gaussian process; action and log evidence are per N_1"
        per_width = "; variances are multiplied by N_1, action and log evidence divided" * architecture.is_infinite
        return (
            "Mean-field parameterisation: the likelihood exp(-N_1 gamma_0^2 |f - y|^2 / (2 T)) sharpens with the width "
            f"(a cold posterior){per_width}"
        )
    if architecture.is_linear:
        return ""
    functions = ", ".join(activation.name for activation in architecture.activations)
    return f"Gaussian equivalence: linear units of the same covariance replace hidden units after {functions}"


def check_fits(architecture: Architecture, what: str, numbers: int) -> None:
    """Raise an error if `what`, so many float64 numbers, does not fit in memory."""
    paths = f"layers of {architecture.branches} branches make {architecture.paths:,} paths"
    _compat.check_fits(f"the architecture is too large: {paths}, and {what},", 8 * numbers)


def nonlinear_layers(layers: tuple[AbstractLayer, ...]) -> int:
    """Return the number of layers up to the last nonlinear one."""
    return max((i for i, layer in enumerate(layers, 1) if not activation_of(layer).is_linear), default=0)


class _Placeholder:
    def _sympy_(self):
        raise ValueError("`forward` or `prior` contains the value of a parameter, not its symbol layer.number(name)")


@lru_cache
def _forms(structure: jax.tree_util.PyTreeDef) -> tuple[LayerForm, ...]:
    """Return the forms of layers with this structure, for any values of its leaves."""
    layers = jax.tree.unflatten(structure, [_Placeholder()] * structure.num_leaves)
    width, forms = width_symbol("1"), []
    for index, layer in enumerate(layers, 1):
        # A skip connection needs equal widths, so try them first.
        form = read_layer(layer, LayerSymbols(index, width, width))
        if not form.has_skip:
            width, before = width_symbol(str(index + 1) if index < len(layers) else "a"), width
            form = read_layer(layer, LayerSymbols(index, before, width))
        forms.append(form)
    return tuple(forms)


def _number(name: str, value: Any, **bounds: float) -> Any:
    checked = checked_number(name, value, **bounds)
    # Calculations with short integers of NumPy would overflow.
    return checked.item() if isinstance(checked, np.generic) else checked


def _entries(name: str, values: Any, length: int) -> tuple:
    """Return `length` values; one number stands for all."""
    if isinstance(values, (str, bytes)) or not has_entries(values):
        return (values,) * length
    return checked_sequence(name, values, "numbers, or be one number", length)


def _numbers(name: str, values: Any, length: int, **bounds: float) -> list:
    return [_number(f"{name}[{i}]", each, **bounds) for i, each in enumerate(_entries(name, values, length))]


def _widths(name: str, widths: Any, forms: Sequence[LayerForm]) -> tuple:
    checked = _numbers(name, widths, len(forms) + 1, **_WIDTHS)
    for i, form in enumerate(forms):
        before, after = checked[i : i + 2]
        if form.has_skip and after is not before:
            message = f"layer {i + 1} has a skip connection, which needs equal widths before and after it"
            known = f"{message}; got {name}[{i}]={shown(before)} and {name}[{i + 1}]={shown(after)}"
            after = jnp.asarray(after) if is_traced(before, after) else after
            checked[i + 1] = require(after, [Requirement(message, after == before, lambda known=known: known)])
    return tuple(checked)


def _checked_layer(kind: AbstractLayer, form: LayerForm, variance: Any) -> AbstractLayer:
    symbols, layer = form.symbols, f"layer {form.symbols.index} ({type(kind).__name__})"
    counts, values = {symbols.heads.name: kind.heads} if kind.heads else {}, kind.parameters(symbols)
    if missing := sorted(symbol.name for symbol in form.parameters - set(values)):
        raise ValueError(f"`parameters` of {layer} has no value for {', '.join(missing)}")
    requirements = []
    for symbol, value in values.items():
        name = f"parameter {symbol.name} of {layer}"
        if symbol.name.removesuffix(f"_{symbols.index}") in _TAKEN:
            raise ValueError(f"{layer} has a parameter called {symbol.name}, which has another meaning")
        array, shape = numeric_array(name, value), tuple(size_of(side, counts) for side in getattr(symbol, "shape", ()))
        if array.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
        requirements += _is_positive(name, array)
    kind = require(kind, requirements)
    if not is_traced(variance, *values.values()):
        scale, matrix = split_coefficient(form.covariance)
        # The identity is not formed, because there can be very many blocks.
        covariance = scale * Identity(1) if isinstance(matrix, Identity) else form.covariance
        given = {symbols.variance: variance, **values}.items()
        numbers = {symbol.name: np.asarray(value, dtype=float) for symbol, value in given} | counts
        name = f"the covariance that `prior` of {layer} returns"
        require(None, _is_positive(name, interpret(covariance, numbers)))
    return kind


def _is_positive(name: str, matrix: Any) -> Iterator[Requirement]:
    """Yield the requirements for a positive number, or a positive definite matrix."""
    module = array_module(matrix)
    if matrix.ndim == 0:
        message, holds = f"{name} must be finite and positive", module.isfinite(matrix) & (matrix > 0)
        yield Requirement(message, holds, lambda: f"{message}, got {float(matrix)}")
        return
    yield finite_entries(name, matrix)
    symmetric = module.max(module.abs(matrix - matrix.T)) <= 1e-8 * module.max(module.abs(matrix))
    yield Requirement(f"{name} must be symmetric", symmetric)
    smallest, largest = module.linalg.eigvalsh(matrix)[np.array([0, -1])]
    rounding = len(matrix) * np.finfo(np.float64).eps
    yield Requirement(f"{name} is not positive definite", smallest > rounding * largest)
