"""The finite network: attention with masks, paths and layers, Eqs. (1)-(7)."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ... import checks
from ..._compat import require_float64
from ..._jit import jit, jit_and_keep, usual_settings
from ...checks import Requirement, array_module, checked_instance, finite_array, on_host, require, shown
from ..data.data import checked_features
from ..features.between import branch_features
from ..features.implicit import PathFeatures, TokenFeatures, rules_for
from ..order_parameters import OrderParameters, from_overlaps
from ..specification import layers as of_layers
from ..specification.activations import apply_to
from ..specification.architecture import Architecture, checked_architecture, nonlinear_layers, require_finite_widths

Kind = Literal["softmax", "linear"]
Layout = Literal["keys-first", "torch"]
Mask = Literal["causal"] | ArrayLike
Maps = Float[Array, "examples heads keys queries"]
Readout = Literal["first", "last", "mean", "all"]
Weights = Float[Array, "_ _"]

# Libraries forbid attention by the lowest number of their precision.
_LOWEST = -1e4
# Attention to padding, and deviation of a softmax from one, in half precision.
_LEAK, _ONE = 1e-6, 1e-2


def _layers(name: str, axes: str = "heads G features") -> Any:
    def convert(layers):
        if layers is None:
            return None
        layers = enumerate(checks.checked_sequence(name, layers, "arrays, one per layer with heads"))
        return tuple(finite_array(f"{name}[{i}]", layer, axes) for i, layer in layers)

    return eqx.field(default=None, converter=convert)


class Heads(eqx.Module):
    """The heads of all layers, given by `key_query`, or by `query` and `key`.

    Scores are x_s^T K^T Q x_t, where K^T Q includes the factor 1/features of Eq. (3),
    or q . k / sqrt(G).

    Args:
        key_query: K^T Q (heads, features, features) per layer with heads.
        query, key: (heads, G, features) per layer with heads.
        query_bias, key_bias: (heads, G), added to queries and keys.
        kind: "linear" for attention equal to the scores, without the softmax.
    """

    key_query: Any = _layers("key_query", "heads features features")
    query: Any = _layers("query")
    key: Any = _layers("key")
    query_bias: Any = _layers("query_bias", "heads G")
    key_bias: Any = _layers("key_bias", "heads G")
    kind: Kind = eqx.field(default_factory=lambda: "softmax", static=True)

    def __check_init__(self):
        checks.checked_choice("kind", self.kind, get_args(Kind))
        given = {name: each for name, each in vars(self).items() if name != "kind" and each is not None}
        is_product = set(given) == {"key_query"}
        if not is_product and ("key_query" in given or not {"query", "key"} <= set(given)):
            raise ValueError("give either key_query, or both query and key")
        first = self.key_query if is_product else self.query
        features = first[0].shape[2] if first else 0
        sizes = [(len(each), features if is_product else each.shape[1]) for each in first]
        for name, layers in given.items():
            more = () if name.endswith("bias") else (features,)
            wanted = [size + more for size in sizes]
            found = [layer.shape for layer in layers]
            if found != wanted:
                raise ValueError(f"{name} must have the shapes {wanted}, got {found}")

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(map(len, self.key_query or self.query or ()))

    @property
    def input_features(self) -> int:
        return (self.key_query or self.query)[0].shape[2]

    @usual_settings()
    def __call__(self, inputs: ArrayLike, mask: Mask | None = None, *, real_tokens=None, layout=None):
        """Compute the attention of every layer, as `bpkr.attention` does."""
        inputs, real = checked_inputs(inputs, real_tokens)
        if self.counts and inputs.shape[2] != self.input_features:
            wanted = f"the {self.input_features} features of heads"
            raise ValueError(f"inputs must have {wanted}, got shape {inputs.shape}")
        added = added_scores(mask, real, inputs.shape, self.counts, layout)
        maps = unchecked_attention(self, inputs, added)
        known = () if checks.is_traced(maps) else maps
        return require(maps, [checks.finite_entries("attention overflows: it", each) for each in known])


@jit_and_keep
def unchecked_attention(heads: Heads, inputs: Array, added: Array | None) -> tuple[Maps, ...]:
    if heads.key_query is not None:
        scores = [jnp.einsum("psi,hij,ptj->phst", inputs, each, inputs) for each in heads.key_query]
    else:
        scores = []
        none = [jnp.zeros((1, 1))] * len(heads.query)
        biases = heads.query_bias or none, heads.key_bias or none
        for query, key, of_query, of_key in zip(heads.query, heads.key, *biases, strict=True):
            queries = jnp.einsum("hgi,pti->phgt", query, inputs) + of_query[..., None]
            keys = jnp.einsum("hgi,pti->phgt", key, inputs) + of_key[..., None]
            products = jnp.einsum("phgs,phgt->phst", keys, queries)
            scores.append(products / np.sqrt(query.shape[1]))
    if added is not None:
        scores = [layer + added for layer in scores]
    if heads.kind == "linear":
        return tuple(jnp.where(jnp.isneginf(layer), 0.0, layer) for layer in scores)
    return tuple(jax.nn.softmax(layer, axis=2) for layer in scores)  # Eq. (3)


def attention(
    inputs: ArrayLike,
    *,
    mask: Mask | None = None,
    real_tokens: ArrayLike | None = None,
    layout: Layout | None = None,
    kind: Kind = "softmax",
    **parameters: Sequence[ArrayLike],
) -> tuple[Maps, ...]:
    """Compute the attention of every layer, Eq. (3).

    Args:
        inputs: (examples, tokens, features).
        mask: the keys to which a query can attend, by default all: `"causal"`, or booleans
            (keys, queries), or (examples, heads, keys, queries) with size 1 for constant
            axes; or floats that are added to scores. -10000 or less forbids attention.
        real_tokens: tokens that are not padding: booleans (examples, tokens), or their
            number (examples,) from the first. By default all but tokens of NaN. Nothing
            attends to padding, but padding without another key to itself.
        layout: "torch" if masks end with the axes (queries, keys). Only "keys-first"
            accepts a mask that looks causal in the other order.
        kind, parameters: as in `bpkr.Heads`. A mask that forbids linear attention sets
            it to zero.

    Returns:
        One array (examples, heads, keys, queries) per layer with heads.
    """
    return Heads(**parameters, kind=kind)(inputs, mask, real_tokens=real_tokens, layout=layout)


@usual_settings()
def path_features(
    inputs: ArrayLike,
    attention: Sequence[ArrayLike],
    architecture: Architecture,
    readout: Readout | ArrayLike | None = None,
    *,
    real_tokens: ArrayLike | None = None,
    layout: Layout | None = None,
) -> PathFeatures:
    """Compute path features phi (examples, paths, features), Eq. (7).

    For attention, phi^pi = s_0 xi^pi / sqrt(N_0 H_1 ... H_L) with the attended input
    xi^pi, in the order of `Architecture.path_branches`. For a nonlinear embedding, the
    result holds kernels.

    Args:
        inputs: (examples, tokens, features).
        attention: any fixed numbers, such as recorded maps: (examples, heads, keys,
            queries), or (heads, keys, queries) for all examples, per layer with heads.
        readout: the token that is read, or its position in each example (examples,).
            By default "last", or "all" if the architecture has several `read_tokens`.
        real_tokens: as in `bpkr.attention`. No others are read.
        layout: "torch" if attention ends with the axes (queries, keys). Only
            "keys-first" accepts a softmax in the other order.
    """
    inputs, real = checked_inputs(inputs, real_tokens)
    checked_architecture(architecture)
    examples, tokens, width = inputs.shape
    read = checked_reading(architecture, readout, examples, tokens, real)
    layers = _checked_attention(attention, inputs.shape, architecture, layout, real)
    # Numbers are arrays, so that one compilation serves all values.
    given = inputs, layers, architecture.with_arrays(), read
    if architecture.between:
        mixings, read = _mixings(*given)
        return branch_features(inputs, mixings, given[2], read)
    found = unchecked_path_features(*given)
    if architecture.is_linear:
        return found
    embedded = jnp.sqrt(architecture.prior_variances[0] / width) * inputs
    above = architecture.prior_variances[1 : len(architecture.activations)]
    variances = jnp.asarray(above, dtype=jnp.float64).reshape(-1)
    rules = rules_for(architecture.activations, variances, embedded)
    return TokenFeatures(embedded, found, variances, architecture.activations, rules)


@jit_and_keep
def unchecked_path_features(inputs, attention, architecture: Architecture, read) -> Array:
    """Compute path features, or readings (examples, tokens, paths) of nonlinear units."""
    numbers = architecture.layer_numbers()

    def of_example(tokens, mixings, reading):
        for form in reversed(architecture.forms):
            mixing = mixings.get(form.symbols.index)
            reading = of_layers.layer_reading(form, numbers, reading, mixing)
        if not architecture.is_linear:
            return reading
        return jnp.sqrt(architecture.prior_variances[0] / inputs.shape[2]) * (reading.T @ tokens)

    return over_examples(of_example, architecture, inputs, attention, read)


@jit_and_keep
def _mixings(inputs, attention, architecture: Architecture, read):
    """Return how the branches of each layer mix tokens, and `read`, for each example."""
    numbers = architecture.layer_numbers()
    tokens = inputs.shape[1]

    def of_example(_, mixings, reading):
        given = ((form, mixings.get(form.symbols.index)) for form in architecture.forms)
        found = (of_layers.layer_reading(form, numbers, jnp.eye(tokens), mixing) for form, mixing in given)
        return tuple(each.reshape(tokens, -1, tokens) for each in found), reading

    return over_examples(of_example, architecture, inputs, attention, read)


def over_examples(of_example: Callable, architecture: Architecture, inputs, attention, read):
    """Map of_example(tokens, stacked heads of layers by number, read) over examples."""
    layers = zip(architecture.forms, architecture.heads, strict=True)
    indices = [form.symbols.index for form, count in layers if count]
    stacked = [layer.reshape(*layer.shape[:-3], -1, layer.shape[-1]) for layer in attention]
    mixings = dict(zip(indices, stacked, strict=True))
    axes = {index: 0 if mixing.ndim == 3 else None for index, mixing in mixings.items()}
    in_axes = 0, axes, 0 if read.ndim == 3 else None
    return jax.vmap(of_example, in_axes)(inputs, mixings, read)


@jit
def readout_weights(readout: Readout, tokens: int, real=None) -> Float[Array, "... tokens read"]:
    """Return the weights of tokens; with `real` tokens, a matrix per example."""
    real = jnp.ones(tokens, dtype=bool) if real is None else real
    if readout == "all":
        return jnp.eye(tokens) * real[..., None] / np.sqrt(tokens)
    if readout == "mean":
        return (real / jnp.sum(real, axis=-1, keepdims=True))[..., None]
    step = -1 if readout == "last" else 1
    place = jnp.argmax(real[..., ::step], axis=-1)
    return jax.nn.one_hot(place, tokens)[..., ::step, None]


def checked_reading(architecture, readout, examples: int, tokens: int, real=None) -> Array:
    if readout is None or isinstance(readout, str):
        return readout_weights(checked_readout(architecture, readout, tokens), tokens, real)
    is_read = finite_array("readout", readout, "examples")[:, None] == np.arange(tokens)
    is_valid = np.any(is_read if real is None else is_read & real, axis=1)
    if len(is_read) != examples or not np.all(is_valid):
        raise ValueError(f"readout must be a real token of each of {examples} examples")
    return is_read[..., None].astype(float)


def checked_readout(architecture: Architecture, readout: Any, tokens: int) -> Readout:
    if readout is None:
        readout = "all" if architecture.read_tokens > 1 else "last"
    checks.checked_choice("readout", readout, get_args(Readout))
    needed = tokens if readout == "all" else 1
    if architecture.read_tokens != needed:
        raise ValueError(f"readout={readout!r} needs read_tokens={needed}, got {architecture.read_tokens}")
    return readout


def checked_inputs(inputs, real_tokens=None) -> tuple[Array, Bool[Array, "_ _"] | None]:
    """Return inputs, and which tokens are real, or None for all. Padding may be NaN."""
    axes = "examples tokens features"
    array = checks.numeric_array("inputs", inputs, axes)
    real = checked_real_tokens(real_tokens, *array.shape[:2])
    if not checks.is_traced(array) and np.any(is_padding := np.isnan(array).all(axis=2)):
        if np.any(is_empty := is_padding.all(axis=1)):
            raise ValueError(f"inputs[{np.argmax(is_empty)}] has no tokens: all entries are NaN")
        real = jnp.asarray(~is_padding) if real is None else real
        array = array_module(real).where((is_padding & ~real)[..., None], 0.0, array)
    return finite_array("inputs", array, axes), real


def checked_real_tokens(value, examples: int, tokens: int) -> Bool[Array, "_ _"] | None:
    if value is None:
        return None
    array = checks.numeric_array("real_tokens", value)
    if array.shape not in ((examples,), (examples, tokens)):
        shapes = f"({examples},) or ({examples}, {tokens})"
        raise ValueError(f"real_tokens must have shape {shapes}, got {array.shape}")
    if array.ndim == 1:
        real = array_module(array).arange(tokens) < array[:, None]
        is_valid = real.sum(axis=1) == array
    else:
        real = array != 0
        is_valid = (real == array).all(axis=1)
    is_valid &= real.any(axis=1)
    message = f"real_tokens must be booleans with a True, or numbers from 1 to {tokens}"
    wrong = Requirement(message, is_valid, lambda: f"{message}, got {array[np.argmin(is_valid)]}")
    return jnp.asarray(require(real, [wrong]))


def added_scores(mask, real, shape, counts, layout) -> Array | None:
    examples, tokens, _ = shape
    _check_layout(layout)
    if mask is None and real is None:
        return None
    if mask is None or isinstance(mask, str):
        is_causal = mask is not None and checks.checked_choice("mask", mask, ["causal"])
        mask = np.tri(tokens, k=0 if is_causal else tokens, dtype=bool).T
        layout = "keys-first"
    array = checks.numeric_array("mask", mask)
    array = array[None, None] if array.ndim == 2 else array
    for count in counts or (1,):
        whole = (examples, count, tokens, tokens)
        sizes = zip(array.shape, whole, strict=False)
        if array.ndim != 4 or any(size not in (1, most) for size, most in sizes):
            shapes = f"{whole[2:]}, or {whole} or 1 for each size"
            raise ValueError(f"mask must have shape {shapes}, got {shown(mask)}")
    dtype = jnp.asarray(mask).dtype
    module = array_module(array)
    if jnp.issubdtype(dtype, jnp.bool_):
        added = module.where(array != 0, 0.0, -np.inf)
    elif jnp.issubdtype(dtype, jnp.floating):
        message = "mask adds NaN or infinity to scores; use -inf to forbid attention"
        array = require(array, [Requirement(message, array < np.inf)])
        added = module.where(array <= _LOWEST, -np.inf, array)
    else:
        raise TypeError(f"mask must be booleans, or floats to add to scores, got {shown(mask)}")
    added = jnp.swapaxes(added, 2, 3) if layout == "torch" else added
    if layout != "keys-first" and added.shape[3] > 1:
        allowed = on_host(jnp.any(added > -jnp.inf, axis=(0, 1)))
        later = np.tri(tokens, k=-1) > 0
        message = (
            "mask allows queries to attend to later tokens, but not to earlier ones: "
            'pass its inverse, layout="torch", or layout="keys-first" if this is intended'
        )
        is_valid = (allowed & later.T).any() | ~(allowed & later).any()
        added = require(added, [Requirement(message, is_valid)])
    real = jnp.ones((1, tokens), dtype=bool) if real is None else real
    added = jnp.where(real[:, None, :, None], added, -jnp.inf)
    needs_key = real[:, None, None, :]
    alone = jnp.all(jnp.isneginf(added), axis=2, keepdims=True)
    # Nothing attends to padding, but its own softmax must not be NaN.
    itself = alone & ~needs_key & np.eye(tokens, dtype=bool)
    has_key = Requirement("mask leaves a query without any key", on_host(~(alone & needs_key)))
    return require(jnp.where(itself, 0.0, added), [has_key])


def numeric_maps(name: str, maps: ArrayLike | Sequence[ArrayLike]) -> Array | np.ndarray:
    shapes = list(map(np.shape, maps)) if isinstance(maps, (list, tuple)) else []
    for i, shape in enumerate(shapes):
        if shape != shapes[0]:
            wanted = f"the shape {shapes[0]} of {name}[0], got {shape}"
            raise ValueError(f"{name}[{i}] must have {wanted}; pad maps to the most tokens")
    return checks.numeric_array(name, maps)


def _checked_attention(attention, shape, architecture, layout, real) -> tuple[Array, ...]:
    examples, tokens, _ = shape
    _check_layout(layout)
    counts = tuple(heads for heads in architecture.heads if heads)
    attention = checks.checked_sequence("attention", attention, "arrays, one per layer with heads", len(counts))
    layers = []
    for i, (layer, heads) in enumerate(zip(attention, counts, strict=True)):
        name = f"attention[{i}]"
        shared = (heads, tokens, tokens)
        layer = numeric_maps(name, layer)
        if layer.shape not in (shared, (examples, *shared)):
            wanted = f"{(examples, *shared)} or {shared}"
            raise ValueError(f"{name} must have shape {wanted}, got {layer.shape}")
        if real is not None and layer.ndim == 4:
            # Maps of padding may be NaN: nothing that is read depends on them.
            pairs = real[:, None, :, None] & real[:, None, None, :]
            layer = jnp.where(jnp.isnan(layer) & ~pairs, 0.0, layer)
        layer = finite_array(name, layer)
        layer = jnp.swapaxes(layer, -1, -2) if layout == "torch" else layer
        is_transposed, leak = map(on_host, _judge(layer, real))
        other = "keys-first" if layout == "torch" else "torch"
        which = f"{name} is transposed: it sums to one over queries; pass layout={other!r}"
        is_ordered = Requirement(which, (layout == "keys-first") | ~is_transposed)
        is_real = Requirement(f"{name}: real tokens attend to padding", leak <= _LEAK)
        layers.append(require(layer, [is_ordered, is_real]))
    return tuple(layers)


@jit
def _judge(layer, real) -> tuple[Array, Array]:
    """Return whether only queries sum to one, and the largest attention to padding."""
    # The rows and columns of padding may be anything.
    kept = True if real is None else real[:, None] if layer.ndim == 4 else jnp.any(real, axis=0)
    of_keys, of_queries = (jnp.max(jnp.abs(jnp.sum(layer, axis=i) - 1), where=kept, initial=0.0) for i in (-2, -1))
    is_transposed = (of_queries <= _ONE) & ~(of_keys <= _ONE) & (jnp.min(layer) >= 0)
    if real is None:
        return is_transposed, jnp.zeros(())
    is_leak = ~real[:, None, :, None] & real[:, None, None, :]
    return is_transposed, jnp.max(jnp.where(is_leak, jnp.abs(layer), 0.0))


def _check_layout(layout) -> None:
    if layout is not None:
        checks.checked_choice("layout", layout, get_args(Layout))


class Network(eqx.Module):
    """A deep network whose attention depends on the bare input alone.

    - `embedding`: V^0 (N_1, N_0).
    - `weights`: V_l (N_{l+1}, blocks N_l) of each layer.
    - `readout_weights`: a (outputs, N_a), or rows (token, output) if all tokens are read.
    """

    architecture: Architecture
    embedding: Weights
    weights: tuple[Weights, ...]
    readout_weights: Weights
    heads: Heads
    readout: Readout = eqx.field(static=True)

    @classmethod
    def of_weights(
        cls, architecture: Architecture, weights: Any, heads: Heads, *, readout: Readout | None = None
    ) -> "Network":
        """Make a network from the `weights` of embedding, layers and readout."""
        checked_architecture(architecture)
        checked_instance("heads", heads, Heads)
        readout = checked_readout(architecture, readout, architecture.read_tokens)
        given = checks.checked_sequence("weights", weights, "arrays", architecture.depth + 2)
        weights = [finite_array(f"weights[{i}]", each, "rows columns") for i, each in enumerate(given)]
        features = weights[0].shape[1]
        counts = tuple(filter(None, architecture.heads))
        if heads.counts != counts or (counts and heads.input_features != features):
            found = [each.shape for each in heads.key_query or heads.query or ()]
            raise ValueError(f"heads must be {counts} on {features} features, got the shapes {found}")
        shapes = tuple(each.shape for each in weights)
        needed = weight_shapes(architecture, features)
        if shapes != needed:
            raise ValueError(f"weights must have the shapes {needed}, got {shapes}")
        embedding, *layers, last = weights
        return cls(architecture.with_arrays(), embedding, tuple(layers), last, heads, readout)

    def __call__(
        self, inputs: ArrayLike, mask: Mask | None = None, *, real_tokens=None, layout=None
    ) -> Float[Array, "examples *outputs"]:
        """Compute outputs, with arguments as in `bpkr.attention`."""
        inputs, real = checked_inputs(inputs, real_tokens)
        tokens = inputs.shape[1]
        checked_readout(self.architecture, self.readout, tokens)
        attention = self.heads(inputs, mask, real_tokens=real, layout=layout)
        read = readout_weights(self.readout, tokens, real)
        architecture = self.architecture
        numbers = architecture.layer_numbers()
        layers = list(zip(architecture.layers, architecture.forms, self.weights, strict=True))

        def of_example(tokens, mixings, read):
            hidden = self.embedding @ tokens.T / jnp.sqrt(tokens.shape[1])  # Eq. (1)
            hidden = apply_to(architecture.embedding, hidden)
            for kind, form, weights in layers:
                symbols = form.symbols
                arrays = {form.weights: weights, symbols.hidden: hidden}
                arrays[symbols.attention] = mixings.get(symbols.index)
                hidden = of_layers.evaluate_form(form.forward, numbers, arrays)
                hidden = apply_to(of_layers.activation_of(kind), hidden)
            by_token = self.readout_weights.reshape(read.shape[1], architecture.outputs, -1)
            scale = jnp.sqrt(len(hidden)) * architecture.root_power
            return jnp.einsum("tcn,nt->c", by_token, hidden @ read) / scale  # Eq. (4)

        outputs = over_examples(of_example, architecture, inputs, attention, read)
        return outputs[:, 0] if architecture.outputs == 1 else outputs

    def path_outputs(self, features: Any) -> Float[Array, "examples paths *outputs"]:
        """Return the term of each path in the output, Eq. (5)."""
        architecture = self.architecture
        if not architecture.is_linear:
            raise ValueError("outputs of nonlinear units are not a sum over paths")
        features = checked_features(architecture, features)
        embedding = self.embedding / jnp.sqrt(architecture.prior_variances[0])
        readings = _path_readings(path_weights(self)[0], embedding, features.shape[1])
        outputs = jnp.einsum("epi,pci->epc", features, readings) / architecture.root_power
        return outputs[..., 0] if architecture.outputs == 1 else outputs


def sample_network(
    architecture: Architecture, heads: Heads, *, input_features: int, readout: Readout | None = None, key: PRNGKeyArray
) -> Network:
    """Draw all weights but queries and keys from their prior; `heads` and `readout` as in `Network`."""
    require_float64()
    checked_instance("key", key, jax.Array, "jax.random.key(3)")
    checks.checked_whole_number("input_features", input_features, least=1)
    shapes = weight_shapes(checked_architecture(architecture), input_features)
    keys = jax.random.split(key, len(shapes))
    white = [jax.random.normal(one, shape) for one, shape in zip(keys, shapes, strict=True)]
    return network_of_whitened(architecture, white, heads, readout=readout)


def network_of_whitened(architecture: Architecture, white, heads: Heads, *, readout=None) -> Network:
    """Make a network from weights that are standard normal under the prior."""
    first, *_, last = map(jnp.sqrt, architecture.prior_variances)
    embedding, *layers, readout_weights = white
    weights = (first * embedding, *colour_layers(architecture, layers), last * readout_weights)
    return Network.of_weights(architecture, weights, heads, readout=readout)


def weight_shapes(architecture: Architecture, input_features: int):
    widths = checked_whole_widths(architecture)
    counts = architecture.head_counts()
    shapes = [(widths[0], input_features)]
    for form, (before, after) in zip(architecture.forms, pairwise(widths), strict=True):
        shapes.append((after, of_layers.size_of(form.blocks, counts) * before))
    return *shapes, (architecture.overlap_sizes[-1], widths[-1])


def colour_layers(architecture: Architecture, layers: Sequence[Weights]) -> tuple[Weights, ...]:
    """Return V_1, ..., V_L with their prior covariance, given standard normal numbers."""
    numbers = architecture.layer_numbers()
    coloured = []
    for form, white in zip(architecture.forms, layers, strict=True):
        root = of_layers.covariance_root(form, numbers)
        blocks = white.reshape(len(white), len(root), -1)
        coloured.append(jnp.einsum("ab,mbn->man", root, blocks).reshape(white.shape))
    return tuple(coloured)


def checked_whole_widths(architecture: Architecture) -> tuple[int, ...]:
    require_finite_widths(architecture, "a network")
    widths = tuple(map(float, architecture.widths))
    if any(width % 1 for width in widths):
        raise ValueError(f"widths must be whole numbers, got {widths}")
    return tuple(map(int, widths))


def path_weights(network: Network) -> tuple[Weights, ...]:
    """Return (w^(1), ..., w^(L+1)): weights (n_l, N_l) of partial paths; Eq. (6)."""
    architecture = checked_instance("network", network, Network).architecture
    if nonlinear_layers(architecture.layers):
        raise ValueError("paths through a nonlinear dense layer have no weights")
    forms = architecture.forms
    numbers = architecture.layer_numbers()
    return of_layers.all_path_weights(forms, numbers, network.weights, network.readout_weights)


def read_paths(first: Weights, embedding: Weights, features: Array) -> Float[Array, "examples outputs"]:
    """Return outputs, given w^(1), V^0 of unit variance, and path features; Eq. (5)."""
    weights = _path_readings(first, embedding, features.shape[1])
    flat = weights.transpose(0, 2, 1).reshape(-1, weights.shape[1])
    return features.reshape(len(features), -1) @ flat  # Eq. (5)


def _path_readings(first, embedding, paths: int) -> Float[Array, "paths outputs features"]:
    return (first @ embedding / jnp.sqrt(len(embedding))).reshape(paths, -1, embedding.shape[1])


def empirical_order_parameters(network: Network) -> OrderParameters:
    """Return U_l = w^(l) w^(l)T / N_l of sampled or trained weights, Eq. (13)."""
    return overlaps(path_weights(network))


def overlaps(weights: Sequence[Weights]) -> OrderParameters:
    return from_overlaps(weight @ weight.T / weight.shape[1] for weight in weights)  # Eq. (13)


class Head(NamedTuple):
    """An attention head: its layer, and its number there, from 1."""

    layer: int
    head: int

    def __str__(self) -> str:
        return f"layer {self.layer}, head {self.head}"


def removable_heads(scores: Sequence[ArrayLike]) -> list[Head]:
    """Rank the heads that can be removed such that every layer keeps one.

    Args:
        scores: the importance of the heads of each layer, arrays (H_l,), such as
            those of `head_scores` or `head_costs`.

    Returns:
        The heads, the least important first.
    """
    ranked = []
    for layer, values in enumerate(scores, 1):
        if np.size(values):
            values = checks.checked_array(f"scores[{layer - 1}]", values, "heads")
        ranked += [(score, Head(layer, head)) for head, score in enumerate(values, 1)]
    heads = [head for _, head in sorted(ranked)]
    # The most important head of each layer stays.
    last = {head.layer: head for head in heads}
    return [head for head in heads if last[head.layer] != head]
