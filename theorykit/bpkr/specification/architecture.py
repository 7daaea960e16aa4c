"""The architecture of a deep network, from which its action follows."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from sympy import Expr, Identity

from ... import _compat, checks
from ...checks import Requirement, array_module, is_traced, require
from ...codegen import interpret
from ...symbolic.atoms import split_coefficient
from ...symbolic.documents import Block, DisplayMixin, Table, Text, number
from . import layers as of_layers
from .activations import IDENTITY, Activation, as_activation
from .layers import TOKENS, AbstractLayer, Dense, LayerForm, LayerSymbols, NetworkForm

# Powers of widths and richness outside these ranges overflow or underflow.
_WIDTHS = {"least": 1e-100, "most": 1e100}
_MOST_RICHNESS = 1e50
# Names of other symbols of an action or its derivation.
_TAKEN = frozenset({"H", "N", "Omega", "Q", "R", "U", "V", "X", "Z", "q", "sigma2", "w"})


class Architecture(DisplayMixin, eqx.Module):
    """Layers, widths, prior variances and temperature of a deep network; Eqs. (1)-(4), (8).

    A JAX pytree of widths, variances, temperature, richness and parameters of layers.

    Args:
        layers: from the input side. A whole number is a layer of that many attention
            heads. Without layers, the readout reads the embedding.
        widths: (N_1, ..., N_L, N_a), or one number for all. `math.inf` is the limit of
            infinite width with a richness.
        prior_variances: (sigma_0^2, ..., sigma_L^2, sigma_a^2), or one number for all.
        temperature: variance T of the labels' noise, Eq. (8). T = 0 (interpolation)
            needs an invertible kernel.
        outputs: number of outputs C per example.
        read_tokens: number of tokens with separate readout weights. With 1, the readout
            reads one token, or the mean.
        embedding: the function phi of the embedded tokens, phi(V_0 x): "identity",
            "erf", "relu", "quadratic", or your own, such as `sympy.tanh`. If it is
            nonlinear, the theory is an ansatz; see `Action.ansatz`.
        richness: gamma_0 of the mean-field parameterisation (mu-P), which divides
            sigma_a^2 and T by N_1 gamma_0^2; None for the standard one.
        width_ratios: ratios of infinite widths, by default one. The attribute has
            N_l / N_1, or None.

    Further attributes:

    - `heads`: (H_1, ..., H_L); 0 for a layer without attention.
    - `branches`: numbers of weight blocks and skip connections per layer.
    - `overlap_sizes`: (n_1, ..., n_{L+1}), partial paths from each layer, times outputs
      and tokens that are read.
    - `paths`: number of attention paths, to all tokens that are read.
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
        temperature: ArrayLike | Expr,
        outputs: int = 1,
        read_tokens: int = 1,
        embedding: str | Expr | Callable[[Expr], Expr] | Activation = IDENTITY,
        richness: ArrayLike | None = None,
        width_ratios: ArrayLike | Sequence[ArrayLike] | None = None,
    ):
        layers = checks.checked_sequence("layers", layers, "layers or numbers of heads")
        given = enumerate(layers)
        layers = tuple(of_layers.as_layer(f"layers[{i}]", layer) for i, layer in given)
        forms = _forms(jax.tree.structure(layers))
        depth = len(layers)
        self.prior_variances = tuple(_numbers("prior_variances", prior_variances, depth + 2, above=0.0))
        self.layers = tuple(map(_checked_layer, layers, forms, self.prior_variances[1:-1]))
        self.embedding = as_activation(embedding, "embedding")
        if self.between and not all(activation.is_linear for activation in self.activations):
            where = f"layers[{self.between[0] - 1}] is nonlinear above attention"
            raise ValueError(f"{where}, so the embedding and layers below must be linear")
        self.temperature = checks.checked_number("temperature", temperature, least=0.0)
        self.outputs = checks.checked_whole_number("outputs", outputs, least=1)
        self.read_tokens = checks.checked_whole_number("read_tokens", read_tokens, least=1)

        widths = _entries("widths", widths, depth + 1)
        is_infinite = all(isinstance(each, float) and each == math.inf for each in widths)
        if is_infinite and richness is None:
            raise ValueError("widths=inf needs richness=; without it, see bpkr.gp_limit")
        self.widths, self.width_ratios, self.richness = widths, None, None
        if is_infinite:
            ratios = 1.0 if width_ratios is None else width_ratios
            first, *others = _widths("width_ratios", ratios, forms)
            self.width_ratios = (1.0, *(ratio / first for ratio in others))
        else:
            self.widths = _widths("widths", widths, forms)
            if width_ratios is not None:
                raise ValueError("width_ratios needs widths=math.inf and a richness")
        if richness is not None:
            if not self.is_linear:
                raise ValueError("richness must be None for nonlinear hidden units")
            # At infinite width, a richness of zero is the Gaussian process.
            least = {"least": 0.0} if is_infinite else {"above": 0.0}
            self.richness = checks.checked_number("richness", richness, **least, most=_MOST_RICHNESS)

        self.heads = tuple(layer.heads for layer in layers)
        counts = self.head_counts()
        self.branches = tuple(of_layers.size_of(form.branches, counts) for form in forms)
        self.paths = math.prod(self.branches) * self.read_tokens
        read = self.outputs * self.read_tokens
        above = (self.branches[layer:] for layer in range(depth + 1))
        self.overlap_sizes = tuple(read * math.prod(branches) for branches in above)

    def with_arrays(self) -> "Architecture":
        """Convert every number to a float64 array."""
        _compat.require_float64()
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
        return NetworkForm(
            self.forms,
            several_outputs=self.outputs > 1,
            every_token=self.read_tokens > 1,
            activations=() if self.is_linear or self.between else self.activations,
            between=tuple((layer, self.layers[layer - 1].activation) for layer in self.between),
            has_richness=self.richness is not None,
            is_infinite=self.is_infinite,
        )

    @property
    def activations(self) -> tuple[Activation, ...]:
        """The functions phi up to the last nonlinear layer below all attention."""
        first = tuple(itertools.takewhile(lambda layer: isinstance(layer, Dense), self.layers))
        below = first[: nonlinear_layers(first)]
        return (self.embedding, *map(of_layers.activation_of, below))

    @property
    def between(self) -> tuple[int, ...]:
        """Numbers of the nonlinear layers above attention."""
        are_dense = [isinstance(layer, Dense) for layer in self.layers]
        layers = enumerate(map(of_layers.activation_of, self.layers), 1)
        return tuple(i for i, phi in layers if not (phi.is_linear or all(are_dense[:i])))

    @property
    def kernel_levels(self) -> tuple[int, ...]:
        """Indices of the order parameters in which the kernel is linear, U_1 first."""
        return 0, *self.between

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
        """Whether outputs have no variance: at infinite width, with a positive richness."""
        return self.is_infinite and bool(self.richness > 0)

    @property
    def relative_widths(self) -> tuple[Any, ...]:
        """The widths, or N_l / N_1 at infinite width, where the action is per N_1."""
        return self.width_ratios if self.is_infinite else self.widths

    @property
    def root_power(self) -> Any:
        """N_1^(1/2) gamma_0 with a richness, else 1: factor of labels, divisor of outputs."""
        if self.richness is None:
            return 1.0
        return self.relative_widths[0] ** 0.5 * self.richness

    @property
    def label_noise(self) -> Any:
        """Variance of the labels' noise: T / root_power^2, and zero at infinite width."""
        return 0.0 if self.is_infinite else self.temperature / self.root_power**2

    def at_infinite_width(self) -> "Architecture":
        """Return the limit with the same richness and ratios of widths."""
        return replace(self, widths=math.inf, width_ratios=self.relative_widths)

    def path_branches(self) -> tuple[tuple[int, ...], ...]:
        """Return each path in the order of features: one branch per layer, from 1.

        A skip connection is the first branch. Paths are repeated for each read token.
        """
        check_fits(self, "the list of them", 8 * self.paths)
        paths = itertools.product(*(range(1, branches + 1) for branches in self.branches))
        return tuple(path for path in paths for _ in range(self.read_tokens))

    def branch_heads(self, layer: int) -> np.ndarray:
        """Return which heads each branch of layer l passes, as booleans (branches, heads)."""
        layer = checks.checked_whole_number("layer", layer, least=1, most=self.depth) - 1
        return of_layers.branch_heads(self.forms[layer], self.heads[layer])

    def path_labels(self, first_layer: int = 1) -> tuple[str, ...]:
        """Name each partial path from `first_layer`.

        "201" passes head 2, a skip connection, and head 1. "-" is a layer without
        attention, "1+2" a block of two heads, ":3" a path to the third token.
        """
        most = max(self.depth, 1)
        first_layer = checks.checked_whole_number("first_layer", first_layer, least=1, most=most)
        check_fits(self, "the list of them", 8 * self.paths)
        layers = []
        for layer in range(first_layer, self.depth + 1):
            passed = map(np.flatnonzero, self.branch_heads(layer))
            labels = ["+".join(str(head + 1) for head in heads) or "-" for heads in passed]
            if self.forms[layer - 1].has_skip:
                labels[0] = "0"
            # Letters distinguish blocks of the same heads.
            if len(set(labels)) < len(labels):
                labels = [f"{label}{chr(ord('a') + i)}" for i, label in enumerate(labels)]
            layers.append(labels)
        is_short = all(len(label) == 1 for label in itertools.chain(*layers))
        names = [("" if is_short else ".").join(path) or "-" for path in itertools.product(*layers)]
        tokens = [f":{token}" for token in range(1, self.read_tokens + 1)]
        ends = tokens if self.read_tokens > 1 else [""]
        return tuple(name + end for name in names for end in ends)

    def _view(self) -> Iterator[Block]:
        yield Text(f"**Architecture**: {architecture_line(self)}")
        rows = ("widths", self.widths), ("prior variances", self.prior_variances)
        rows = ((name, ", ".join(map(number, values))) for name, values in rows)
        yield Table((("layers", layer_row(self)), *rows))

    def head_counts(self) -> Mapping[str, int]:
        layers = zip(self.forms, self.heads, strict=True)
        return {form.symbols.heads.name: heads for form, heads in layers if heads}

    def layer_numbers(self) -> Mapping[str, Any]:
        names = (width.name for width in self.form.widths)
        numbers = dict(zip(names, self.relative_widths, strict=True)) | self.head_counts()
        numbers |= {"C": self.outputs, TOKENS.name: self.read_tokens, "T": self.temperature}
        numbers["sigma2_a"] = self.prior_variances[-1]
        if self.richness is not None:
            numbers["gamma_0"] = self.richness
        layers = zip(self.layers, self.forms, self.prior_variances[1:-1], strict=True)
        for layer, form, variance in layers:
            numbers[form.symbols.variance.name] = variance
            for symbol, value in layer.parameters(form.symbols).items():
                numbers[symbol.name] = jnp.asarray(value, float) if symbol.is_Matrix else value
        return numbers


def checked_architecture(value: Any) -> Architecture:
    return checks.checked_instance("architecture", value, Architecture)


def require_finite_widths(architecture: Architecture, what: str) -> None:
    if architecture.is_infinite:
        raise ValueError(f"{what} needs finite widths, got widths=inf")


def layer_row(architecture: Architecture) -> str:
    layers = (" ".join(repr(layer).split()) for layer in architecture.layers)
    return ", ".join([f"embedding {architecture.embedding.name}", *layers])


def architecture_line(architecture: Architecture) -> str:
    counts = architecture.depth, architecture.paths, architecture.outputs
    line = ", ".join(map(checks.counted, counts, ("layer", "path", "output")))
    line += f", temperature {number(architecture.temperature)}"
    if architecture.richness is not None:
        line += f", richness {number(architecture.richness)}"
    return line


def ansatz_of(architecture: Architecture) -> str:
    """Describe the ansatz for nonlinear units, or the parameterisation with a richness."""
    if architecture.richness is not None:
        per_width = "; action and log evidence are per N_1" * architecture.is_infinite
        if not is_traced(architecture.richness) and architecture.richness == 0:
            return f"Richness 0: the Gaussian process{per_width}"
        return f"Mean-field parameterisation: noise of variance T / (N_1 gamma_0^2){per_width}"
    if architecture.is_linear:
        return ""
    units = "linear units of the same covariance"
    replaced = architecture.activations
    if architecture.between:
        units = "a linear part that continues, and noise,"
        replaced = (architecture.layers[layer - 1].activation for layer in architecture.between)
    names = ", ".join(each.name for each in replaced if not each.is_linear)
    return f"Gaussian equivalence: {units} replace {names}"


def check_fits(architecture: Architecture, what: str, numbers: int) -> None:
    paths = f"layers of {architecture.branches} branches make {architecture.paths:,} paths"
    _compat.check_fits(f"the architecture is too large: {paths}, and {what},", 8 * numbers)


def nonlinear_layers(layers: tuple[AbstractLayer, ...]) -> int:
    """Return the number of layers up to the last nonlinear one."""
    are_linear = [of_layers.activation_of(layer).is_linear for layer in layers]
    return max((i for i, is_linear in enumerate(are_linear, 1) if not is_linear), default=0)


class _Placeholder:
    def _sympy_(self):
        raise ValueError("`forward` and `prior` need symbols layer.number(name), not values")


@lru_cache
def _forms(structure: jax.tree_util.PyTreeDef) -> tuple[LayerForm, ...]:
    """Return the forms of layers with this structure, for any values of its leaves."""
    layers = jax.tree.unflatten(structure, [_Placeholder()] * structure.num_leaves)
    width, forms = of_layers.width_symbol("1"), []
    for index, layer in enumerate(layers, 1):
        # A skip connection needs equal widths, so try them first.
        form = of_layers.read_layer(layer, LayerSymbols(index, width, width))
        if not form.has_skip:
            after = of_layers.width_symbol(str(index + 1) if index < len(layers) else "a")
            form = of_layers.read_layer(layer, LayerSymbols(index, width, after))
            width = after
        forms.append(form)
    return tuple(forms)


def _entries(name: str, values: Any, length: int) -> tuple:
    """Return `length` values; one number stands for all."""
    if not isinstance(values, Iterable) or getattr(values, "shape", None) == ():
        return (values,) * length
    return checks.checked_sequence(name, values, "numbers", length)


def _numbers(name: str, values: Any, length: int, **bounds: float) -> list:
    entries = enumerate(_entries(name, values, length))
    return [checks.checked_number(f"{name}[{i}]", each, **bounds) for i, each in entries]


def _widths(name: str, widths: Any, forms: Sequence[LayerForm]) -> tuple:
    checked = _numbers(name, widths, len(forms) + 1, **_WIDTHS)
    for i, form in enumerate(forms):
        before, after = checked[i : i + 2]
        if form.has_skip and after is not before:
            which = f"{name}[{i}] and {name}[{i + 1}]"
            message = f"{which} must be equal: layer {i + 1} has a skip connection"
            after = jnp.asarray(after) if is_traced(before, after) else after
            known = partial("{}, got {} and {}".format, message, before, after)
            checked[i + 1] = require(after, [Requirement(message, after == before, known)])
    return tuple(checked)


def _checked_layer(kind: AbstractLayer, form: LayerForm, variance: Any) -> AbstractLayer:
    symbols, requirements = form.symbols, []
    values = kind.parameters(symbols)
    layer = f"layer {symbols.index} ({type(kind).__name__})"
    counts = {symbols.heads.name: kind.heads} if kind.heads else {}
    if missing := sorted(symbol.name for symbol in form.parameters - set(values)):
        raise ValueError(f"`parameters` of {layer} has no value for {', '.join(missing)}")
    for symbol, value in values.items():
        name = f"parameter {symbol.name} of {layer}"
        if symbol.name.removesuffix(f"_{symbols.index}") in _TAKEN:
            raise ValueError(f"{name} has a name with another meaning")
        array = checks.numeric_array(name, value)
        sides = getattr(symbol, "shape", ())
        shape = tuple(of_layers.size_of(side, counts) for side in sides)
        if array.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
        requirements += _is_positive(name, array)
    kind = require(kind, requirements)
    if not is_traced(variance, *values.values()):
        covariance = form.covariance
        scale, matrix = split_coefficient(covariance)
        if isinstance(matrix, Identity):  # There can be very many blocks.
            covariance = scale * Identity(1)
        given = {symbols.variance: variance, **values}.items()
        numbers = {symbol.name: np.asarray(value, dtype=float) for symbol, value in given}
        covariance = interpret(covariance, numbers | counts)
        require(None, _is_positive(f"the prior covariance of {layer}", covariance))
    return kind


def _is_positive(name: str, matrix: Any) -> Iterator[Requirement]:
    module = array_module(matrix)
    if matrix.ndim == 0:
        is_positive = module.isfinite(matrix) & (matrix > 0)
        message = f"{name} must be finite and positive"
        yield Requirement(message, is_positive, lambda: f"{message}, got {float(matrix)}")
        return
    yield checks.finite_entries(name, matrix)
    is_symmetric = abs(matrix - matrix.T).max() <= 1e-8 * abs(matrix).max()
    yield Requirement(f"{name} must be symmetric", is_symmetric)
    values = module.linalg.eigvalsh(matrix)
    rounding = len(matrix) * np.finfo(np.float64).eps
    yield Requirement(f"{name} is not positive definite", values[0] > rounding * values[-1])
