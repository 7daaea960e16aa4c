"""The specification that everything else follows from: a deep network of the layers that `layers` has a grammar for.

Stage 0 of `Architecture -> derive -> Action -> compile -> bind -> solve -> predict`.
"""

import math
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from functools import lru_cache
from itertools import product
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from sympy import Expr

from ...checks import check_is_number, checked_instance, checked_whole_number, has_entries, is_traced, shown
from ...memory import check_fits
from ...precision import require_float64
from .activations import IDENTITY, Activation, as_activation
from .layer_checks import check_layer
from .layer_form import LayerForm, layer_form
from .layer_functions import branch_heads, count
from .layers import AbstractLayer, Dense, LayerSymbols, activation_of, as_layer
from .network_form import TOKENS, NetworkForm, width_symbol

# of a solve: arrays of the size of U_1, and of the matrix that data make, that are there at once, as measured; seconds
# on two cores, by the third power of the rows of U_1; and how many seconds are worth a word
_SOLVE_COPIES, _KERNEL_COPIES = 120, 16
# and where order parameters are made
_POINT_COPIES = 3
_SECONDS, _LONG = 2.5e-7, 60.0
# of widths, whose powers would leave double precision
_WIDTHS = (1e-100, 1e100)


class Architecture(eqx.Module):
    """Layers, widths, prior variances and temperature of a deep network; Eqs. (1)-(4) and (8).

    Frozen data and a JAX pytree: kinds of layers, heads and outputs are static, the numbers are leaves, so that one may
    differentiate or vmap over widths, variances, temperature, and the layers' own parameters.

    - `layers`: from the input side; a whole number stands for that many heads of attention. With none, the readout
      reads the embedding.
    - `widths`: (N_1, ..., N_L, N_a), from the input side; one number stands for all. Equal across a skip connection.
    - `prior_variances`: (sigma_0^2, sigma_1^2, ..., sigma_L^2, sigma_a^2); one number stands for all.
    - `temperature`: variance T of the labels' noise in Eq. (8). T = 0 (interpolation) is admitted where the kernel
      of the data is invertible, which is checked when the data is there.
    - `outputs`: how many numbers C the network puts out for an example.
    - `read_tokens`: how many tokens the readout has weights of its own for; 1 is one token, or the mean over tokens.
    - `embedding`: the function phi of the embedded tokens, phi(V_0 x): "identity", "erf", "relu", "quadratic", or a
      function of one's own such as `sympy.tanh`. For one that is not linear the theory is an ansatz, Gaussian
      equivalence, good for examples in proportion to the widths; see `Action.ansatz`.

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
    ):
        kinds = _checked_layers(layers)
        self.embedding = as_activation(embedding, "embedding")
        _check_activations(kinds)
        forms = layer_forms(kinds)
        self.widths = _checked_widths(forms, _per_layer("widths", widths, len(kinds) + 1, "N_1, ..., N_L, N_a"))
        self.prior_variances = _per_layer(
            "prior_variances", prior_variances, len(kinds) + 2, "sigma_0^2, sigma_1^2, ..., sigma_L^2, sigma_a^2"
        )
        numbers = zip(kinds, forms, self.prior_variances[1:-1], strict=True)
        self.layers = tuple(check_layer(kind, form, variance) for kind, form, variance in numbers)
        self.temperature = _checked_number("temperature", temperature, zero_allowed=True)
        self.outputs = _checked_count("outputs", outputs)
        self.read_tokens = _checked_count("read_tokens", read_tokens)

    def with_arrays(self) -> "Architecture":
        """The same with every number a float64 array: one compilation serves all of a structure."""
        require_float64()
        return jax.tree.map(_as_array, self)

    @property
    def depth(self) -> int:
        """Number of layers L."""
        return len(self.layers)

    @property
    def forms(self) -> tuple[LayerForm, ...]:
        """What the theory reads off each layer, in symbols."""
        return layer_forms(self.layers)

    @property
    def form(self) -> NetworkForm:
        """All that the action depends on but numbers."""
        activations = () if self.is_linear else self.activations
        return NetworkForm(self.forms, self.outputs > 1, self.read_tokens > 1, activations)

    @property
    def activations(self) -> tuple[Activation, ...]:
        """phi of the embedding, and of the dense layers above it up to the last that is not linear."""
        return (self.embedding, *map(activation_of, self.layers[: nonlinear_layers(self.layers)]))

    @property
    def is_linear(self) -> bool:
        """Whether no hidden unit passes through a function: the theory is no ansatz then."""
        return all(activation.is_linear for activation in self.activations)

    @property
    def width_symbols(self) -> tuple[Expr, ...]:
        """The symbols of `widths`; both sides of a skip connection have one and the same."""
        return self.form.widths

    @property
    def heads(self) -> tuple[int, ...]:
        """(H_1, ..., H_L); 0 for a layer without attention."""
        return tuple(layer.heads for layer in self.layers)

    @property
    def branches(self) -> tuple[int, ...]:
        """How many partial paths each layer makes of one: its weight blocks, and its skip connection if it has one."""
        return _branches(self.forms, self.heads)

    @property
    def order_parameter_sizes(self) -> tuple[int, ...]:
        """(n_1, ..., n_L): outputs and tokens read, times the number of partial paths from layer l on."""
        return self.overlap_sizes[:-1]

    @property
    def overlap_sizes(self) -> tuple[int, ...]:
        """(n_1, ..., n_{L+1}): the same, and the rows of the readout's order parameter."""
        read = self.outputs * self.read_tokens
        return tuple(read * math.prod(self.branches[layer:]) for layer in range(self.depth + 1))

    @property
    def paths(self) -> int:
        """Number of attention paths, the product of all `branches`, times the tokens that are read."""
        return math.prod(self.branches) * self.read_tokens

    def path_branches(self) -> tuple[tuple[int, ...], ...]:
        """The branch of every layer that each path takes, counted from 1, in the order of the path axis.

        The first layer's is the slowest; in a layer the skip connection comes first. Paths to different tokens that
        are read may take the same branches.
        """
        check_bytes(self, "the list of them", 64 * self.paths)
        branches = product(*(range(1, branches + 1) for branches in self.branches))
        return tuple(path for path in branches for _ in range(self.read_tokens))

    def branch_heads(self, layer: int) -> np.ndarray:
        """Which heads each branch of a layer (counted from 1) goes through: booleans (branches x heads)."""
        layer = checked_whole_number("layer", layer, least=1, most=self.depth)
        self._check_branch_table(layer)
        return branch_heads(self.forms[layer - 1], self.heads[layer - 1])

    def _check_branch_table(self, layer: int) -> None:
        # which is made twice on the way
        entries = 3 * self.branches[layer - 1] * self.heads[layer - 1]
        check_bytes(self, f"the table of the branches of layer {layer}", entries)

    def path_labels(self, first_layer: int = 1) -> tuple[str, ...]:
        """A short name for each path: "201" goes through head 2, straight on, and through head 1.

        "-" is a layer without attention, or a network without layers, "1+2" a weight block that several heads share.
        Where the readout has weights of its own for every token, ":3" ends the path to the third. Of partial paths,
        from `first_layer` on, where it is not 1.
        """
        first_layer = checked_whole_number("first_layer", first_layer, least=1, most=max(self.depth, 1))
        check_bytes(self, "the list of them", 64 * self.paths)
        for layer in range(self.depth):
            self._check_branch_table(layer + 1)
        layers = zip(self.forms, self.heads, strict=True)
        labels = [_branch_labels(form, heads) for form, heads in layers][first_layer - 1 :]
        separator = "" if all(len(label) == 1 for layer in labels for label in layer) else "."
        names = [separator.join(path) or "-" for path in product(*labels)]
        if self.read_tokens == 1:
            return tuple(names)
        return tuple(f"{name}:{token}" for name in names for token in range(1, self.read_tokens + 1))

    def head_counts(self) -> Mapping[str, int]:
        """The value of the symbol H_l of every layer that has heads, by name."""
        return _head_counts(self.forms, self.heads)

    def size_values(self) -> Mapping[str, int]:
        """The value of every size symbol of the action, by name: `head_counts`, outputs C, and the tokens read."""
        return {**self.head_counts(), "C": self.outputs, TOKENS.name: self.read_tokens}

    def parameter_values(self) -> Mapping[str, Any]:
        """The value of every parameter symbol of the layers' own, by name, such as s_l for a skip's gain."""
        return parameter_values(self.layers)

    def layer_numbers(self) -> Mapping[str, Any]:
        """The value of every symbol in the layers' expressions that is not an array of weights or of data, by name."""
        return numbers_of_layers(self.layers, self.widths, self.prior_variances[1:-1])


def checked_architecture(value: Any) -> Architecture:
    """`value`, refused unless it is an architecture."""
    return checked_instance(
        "architecture", value, Architecture, "such as bpkr.Architecture((2, 2), 100, temperature=0.1)"
    )


def counted_paths(architecture: Architecture) -> str:
    """What makes the number of paths, for errors."""
    tokens = f" and {architecture.read_tokens} tokens that are read" if architecture.read_tokens > 1 else ""
    return f"layers of {architecture.branches} branches{tokens} make {architecture.paths:,}"


def check_size(architecture: Architecture) -> None:
    """Refuse an architecture whose largest order parameter does not fit in the memory of this machine."""
    side = architecture.overlap_sizes[0]
    check_bytes(architecture, f"making the order parameter U_1, {side:,} x {side:,}", _POINT_COPIES * 8 * side**2)


def check_bytes(architecture: Architecture, what: str, size: int) -> None:
    """Refuse an architecture of which `what`, of so many bytes, does not fit in the memory of this machine."""
    check_fits(f"the architecture is too large: {counted_paths(architecture)} paths, and {what},", size)


def check_solve(architecture: Architecture, rows: int) -> None:
    """Refuse a solve that does not fit in memory, and say of one that takes minutes that it does, before it compiles.

    `rows` are those of the matrix that data make: examples times outputs, or features and paths, whichever are fewer.
    """
    side = architecture.overlap_sizes[0]
    size = 8 * (_SOLVE_COPIES * side**2 + _KERNEL_COPIES * rows**2)
    check_bytes(architecture, f"solving for U_1, {side:,} x {side:,}, with a matrix of {rows:,} rows", size)
    seconds = _SECONDS * side**3
    if seconds > _LONG:
        warnings.warn(
            f"{counted_paths(architecture)} paths: solving for U_1, {side:,} x {side:,}, takes about "
            f"{_in_words(seconds)} on two cores. The time goes with the third power of the number of paths",
            stacklevel=3,
        )


def _in_words(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.0f} hours"


def layer_forms(layers: tuple[AbstractLayer, ...]) -> tuple[LayerForm, ...]:
    """The form of each layer; `ValueError` says which forward map the theory does not cover, and why."""
    return _forms(jax.tree.structure(layers))


def parameter_values(layers: tuple[AbstractLayer, ...]) -> Mapping[str, Any]:
    """The value of every parameter symbol of `layers`, by name."""
    values: dict[str, Any] = {}
    for layer, form in zip(layers, layer_forms(layers), strict=True):
        for symbol, value in layer.parameters(form.symbols).items():
            values[symbol.name] = jnp.asarray(value, dtype=jnp.float64) if symbol.is_Matrix else value
    return values


def numbers_of_layers(
    layers: tuple[AbstractLayer, ...], widths: Sequence[Any], variances: Sequence[Any]
) -> Mapping[str, Any]:
    """The value of every symbol in the expressions of `layers` that is not an array of weights or of data, by name."""
    forms = layer_forms(layers)
    return {
        **{symbol.name: width for symbol, width in zip(NetworkForm(forms).widths, widths, strict=True)},
        **{form.symbols.variance.name: variance for form, variance in zip(forms, variances, strict=True)},
        **_head_counts(forms, [layer.heads for layer in layers]),
        **parameter_values(layers),
    }


def _head_counts(forms: Sequence[LayerForm], heads: Sequence[int]) -> Mapping[str, int]:
    return {form.symbols.heads.name: count for form, count in zip(forms, heads, strict=True) if count}


class _Number:
    """Stands for a layer's parameter where only its symbol may be used."""

    def _sympy_(self):
        raise ValueError(
            "a number of the layer itself stands in `forward` or `prior`; write layer.number(name) or "
            "layer.covariance(name, size) there, and give the value in `parameters`"
        )


@lru_cache
def _forms(structure: jax.tree_util.PyTreeDef) -> tuple[LayerForm, ...]:
    """The forms of layers of one structure: they hold whatever numbers are its leaves."""
    layers = jax.tree.unflatten(structure, [_Number()] * structure.num_leaves)
    width, forms = width_symbol("1"), []
    for index, layer in enumerate(layers, 1):
        next_width = width_symbol(str(index + 1) if index < len(layers) else "a")
        # one with a skip connection cannot be stated between different widths
        at_equal_widths = layer_form(layer, LayerSymbols(index, width, width))
        if at_equal_widths.has_skip:
            forms.append(at_equal_widths)
        else:
            forms.append(layer_form(layer, LayerSymbols(index, width, next_width)))
        width = forms[-1].symbols.next_width
    return tuple(forms)


@lru_cache
def _branches(forms: tuple[LayerForm, ...], heads: tuple[int, ...]) -> tuple[int, ...]:
    """How many partial paths each layer makes of one."""
    counts = _head_counts(forms, heads)
    return tuple(count(form.branches, counts) for form in forms)


def _as_array(number: Any) -> Any:
    """A float64 array: of a number that is known one of NumPy, which takes a tenth of the time to make."""
    return jnp.asarray(number, dtype=jnp.float64) if is_traced(number) else np.asarray(number, dtype=np.float64)


def _branch_labels(form: LayerForm, heads: int) -> list[str]:
    labels = ["+".join(str(head + 1) for head in np.flatnonzero(passes)) or "-" for passes in branch_heads(form, heads)]
    if form.has_skip:
        labels[0] = "0"
    # blocks that go through the same heads are told apart by a letter
    counts, seen = Counter(labels), Counter()
    told_apart = []
    for label in labels:
        told_apart.append(label if counts[label] == 1 else f"{label}{chr(ord('a') + seen[label])}")
        seen[label] += 1
    return told_apart


def _checked_layers(layers) -> tuple[AbstractLayer, ...]:
    unordered = isinstance(layers, (int, str, bytes, Mapping, Set, AbstractLayer))
    is_empty = isinstance(layers, (tuple, list)) and not layers
    if unordered or not (is_empty or has_entries(layers)) or not hasattr(layers, "__len__"):
        raise ValueError(
            f"layers must be a sequence of layers, such as (2, 3) for two layers of attention with 2 and 3 heads, "
            f"(Attention(2), Dense()), or () for none; got {shown(layers)}"
        )
    return tuple(as_layer(layer, f"layers[{i}]: ") for i, layer in enumerate(layers))


def nonlinear_layers(layers: tuple[AbstractLayer, ...]) -> int:
    """How many layers there are up to the last whose hidden units pass through a function."""
    nonlinear = [i for i, layer in enumerate(layers, 1) if not activation_of(layer).is_linear]
    return max(nonlinear, default=0)


def _check_activations(layers: tuple[AbstractLayer, ...]) -> None:
    """Refuse functions of hidden units above anything but dense layers."""
    for i in range(nonlinear_layers(layers)):
        if not isinstance(layers[i], Dense):
            raise ValueError(
                f"layers[{i}] is {type(layers[i]).__name__}, and a layer above it applies a function to its hidden "
                "units: functions are covered in the embedding and in dense layers directly above it, where tokens do "
                "not mix yet"
            )


def _checked_count(name: str, value) -> int:
    if not isinstance(value, (int, np.integer)) or isinstance(value, (bool, np.timedelta64)) or value < 1:
        raise ValueError(f"{name} must be a positive whole number, got {shown(value)}")
    return checked_whole_number(name, value)


def _checked_widths(forms: tuple[LayerForm, ...], widths: tuple) -> tuple:
    """Widths that agree on both sides of every skip connection."""
    checked = list(widths)
    for i, width in enumerate(widths):
        if not is_traced(width) and not _WIDTHS[0] <= width <= _WIDTHS[1]:
            raise ValueError(
                f"widths[{i}] must be between {_WIDTHS[0]:g} and {_WIDTHS[1]:g}, got {width!r}: beyond, powers of it "
                "leave double precision. What is infinitely wide has functions of its own, such as bpkr.gp_limit"
            )
    for i, form in enumerate(forms):
        before, after = checked[i : i + 2]
        if not form.has_skip or after is before:
            continue
        cause = f"layer {i + 1} has a skip connection, which needs equal widths before and after it"
        if isinstance(before, jax.core.Tracer) or isinstance(after, jax.core.Tracer):
            checked[i + 1] = eqx.error_if(jnp.asarray(after), jnp.asarray(after) != before, cause)
        elif before != after:
            raise ValueError(f"{cause}; got widths[{i}]={before} and widths[{i + 1}]={after}")
    return tuple(checked)


def _per_layer(name: str, values, length: int, meaning: str) -> tuple:
    if isinstance(values, (str, bytes)) or not has_entries(values):
        values = (values,) * length
    ordered = not isinstance(values, (Mapping, Set, np.ma.MaskedArray)) and hasattr(values, "__len__")
    if not ordered or len(values) != length:
        raise ValueError(
            f"{name} must be one number or {length} numbers ({meaning}), one a layer as layers has them; "
            f"got {f'{len(values)}: {shown(tuple(values))}' if ordered else shown(values)}"
        )
    return tuple(_checked_number(f"{name}[{i}]", value) for i, value in enumerate(values))


def _checked_number(name: str, value, *, zero_allowed: bool = False):
    """A finite positive number as it came; a traced one is checked when the compiled function runs."""
    requirement = "finite and not negative" if zero_allowed else "finite and positive"
    if isinstance(value, jax.core.Tracer):
        if value.ndim or jnp.iscomplexobj(value):
            raise ValueError(f"{name} must be a number, got {shown(value)}")
        valid = jnp.isfinite(value) & ((value >= 0) if zero_allowed else (value > 0))
        return eqx.error_if(value, ~valid, f"{name} must be {requirement}")
    try:
        check_is_number(name, value)
    except TypeError as error:
        raise ValueError(str(error)) from None
    if value < 0 or (value == 0 and not zero_allowed) or not value <= sys.float_info.max:
        raise ValueError(f"{name} must be {requirement}, got {value!r}")
    if isinstance(value, int):
        # JAX takes no whole number of Python beyond 64 bits
        return value if abs(value) < 2**53 else float(value)
    return value.item() if isinstance(value, np.generic) else value
