"""The layouts of checkpoints: by which names the libraries save queries, keys and norms, and with which axes."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from ..checks import checked_array, first_line, shown

Matrix = Float[np.ndarray, "rows features"]
Vector = Float[np.ndarray, " rows"]


@dataclass(frozen=True)
class Source:
    """The arrays of a checkpoint whose names begin with `prefix`; `called` is what errors call the checkpoint."""

    arrays: Mapping[str, Any]
    called: str
    prefix: str = ""

    def has(self, name: str) -> bool:
        """Whether there is an array of this name behind the prefix."""
        return self.prefix + name in self.arrays

    def array(self, name: str, axes: str) -> np.ndarray:
        """An array in float64, of these axes, finite; `ValueError` where it is missing or no array of weights."""
        name = self.prefix + name
        if name not in self.arrays:
            raise ValueError(f"{self.called} has no array {shown(name)}, which its layout needs")
        where = f"{shown(name)} in {self.called}"
        value = _on_host(where, self.arrays[name])
        dtype = getattr(value, "dtype", None)
        # JAX's own floating-point types are none of NumPy's; of other libraries' arrays NumPy tells the type
        kind = dtype if isinstance(dtype, np.dtype) else None
        if kind is not None and not jax.dtypes.issubdtype(kind, np.floating):
            raise TypeError(f"{where} must be of floating-point numbers, got {shown(value)}: is it quantised?")
        return np.asarray(checked_array(where, value, axes))

    def matrix(self, name: str) -> Matrix:
        """An array of two axes."""
        return self.array(name, "rows columns")

    def vector(self, name: str, length: int) -> Vector:
        """An array of one axis of this length."""
        found = self.array(name, "entries")
        if len(found) != length:
            raise ValueError(
                f"{shown(self.prefix + name)} in {self.called} must have {length} entries, got {len(found)}"
            )
        return found

    def vector_or_zeros(self, name: str, length: int) -> Vector:
        """`vector`, and zeros where there is none of this name."""
        return self.vector(name, length) if self.has(name) else np.zeros(length)


def _on_host(where: str, value: Any) -> Any:
    """A tensor of torch as an array; any other value as it is."""
    if not (hasattr(value, "detach") and hasattr(value, "numpy")):
        return value
    try:
        value = value.detach().cpu()
        # NumPy has no bfloat16
        return (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
    except (RuntimeError, TypeError, NotImplementedError) as error:
        raise TypeError(
            f"{where} must be an array of floating-point numbers, got a tensor of type {value.dtype} that NumPy cannot "
            f"take ({first_line(error)[:120]}): is it quantised, sparse or without values?"
        ) from None


@dataclass(frozen=True)
class Projections:
    """Queries and keys of all heads one below the other, the rows of a head together; `heads` where the file says."""

    query: Matrix
    key: Matrix
    query_bias: Vector
    key_bias: Vector
    heads: int | None = None


@dataclass(frozen=True)
class Layout:
    """How one library saves attention.

    - `library`: whose layout it is, for errors and documents.
    - `example`: the name of an array by which the layout is known, of layer 0 if it has layers.
    - `pattern`: of such names, with groups `prefix`, of what all layers are behind, and `layer` where there are layers;
      what is behind neither is read by `read`.
    - `beside`: of what may stand behind the name's beginning: what `read` takes, and what leaves attention as it is.
      All other arrays there are refused by name.
    - `output`: the name of the weights of a module's output map, by which a module in a list is told from other parts.
    - `norm`: the layer norm before attention, if there is one; `epsilon` is the library's default.
    - `namesakes`: models with another attention whose layers have the same names, which only config.json tells apart.
    - `model_types`: what config.json calls models of exactly this attention; others may have another. Empty where the
      library writes no config.json.
    """

    library: str
    example: str
    pattern: re.Pattern[str]
    read: Callable[[Source], Projections]
    beside: re.Pattern[str]
    output: re.Pattern[str] | None = None
    norm: str | None = None
    epsilon: float = 1e-5
    causal: bool = False
    namesakes: str = ""
    model_types: frozenset[str] = frozenset()

    @property
    def stands_alone(self) -> bool:
        """Whether it is the layout of an attention module, without the layer around it."""
        return "layer" not in self.pattern.groupindex

    def is_decoder(self, names: Iterable[str], stem: str) -> bool:
        """Whether the layer also attends to another model's tokens, as layers do whose own attention is causal."""
        cross = re.compile(rf"{re.escape(stem)}(?:{_CROSS}|multihead_attn)\.")
        return any(map(cross.match, names))

    def module_at(self, stem: str, names: Collection[str]) -> bool:
        """Whether an attention module of this layout has these arrays, its output map among them, behind `stem`."""
        behind = [name.removeprefix(stem) for name in names if name.startswith(stem)]
        return "" in self.stems(behind) and any(map(self.output.fullmatch, behind)) if self.output else False

    def listed_modules(self, names: Collection[str]) -> Iterator[str]:
        """The paths of modules of which there are several: in a list, or two in a layer."""
        for name in names if self.output else ():
            for mark in re.finditer(r"[./]", name):
                stem, rest = name[: mark.end()], name[mark.end() :]
                is_first = "" in self.stems([rest]) and re.search(r"(?:^|[./])(?:\d+|multihead_attn)[./]", stem)
                if is_first and self.module_at(stem, names):
                    yield stem

    def stems(self, names: Iterable[str]) -> Mapping[str, Mapping[int, str]]:
        """For each prefix that fits, what the names of each layer's arrays begin with, by the layer's number."""
        found: dict[str, dict[int, str]] = {}
        for name in names:
            if match := self.pattern.fullmatch(name):
                groups = match.groupdict()
                layer = int(groups.get("layer") or 0)
                found.setdefault(groups["prefix"], {})[layer] = name[: match.start("rest")]
        return found


def _linear(source: Source, query: str, key: str) -> Projections:
    """Of two linear maps with weights (rows, features), and biases or none."""
    found = _projections(source, (f"{query}.weight", f"{key}.weight"), (f"{query}.bias", f"{key}.bias"))
    if source.has(f"{query}.bias") != source.has(f"{key}.bias"):
        raise ValueError(
            f"{source.called} has one of {query}.bias and {key}.bias at {shown(source.prefix)} without the other"
        )
    return found


def _projections(source: Source, weights: tuple[str, str], biases: tuple[str, str]) -> Projections:
    query, key = (source.matrix(name) for name in weights)
    check_pair(source, query.shape, key.shape)
    return Projections(query, key, *(source.vector_or_zeros(name, len(query)) for name in biases))


def check_pair(source: Source, query: tuple[int, ...], key: tuple[int, ...]) -> None:
    """Raise `ValueError` unless queries and keys, (rows, features), are as many and act on the same features."""
    if query[1] != key[1]:
        raise ValueError(
            f"{source.called} has queries of {query[1]} features and keys of {key[1]} at {shown(source.prefix)}: "
            "keys are of other tokens, and the theory is of self-attention"
        )
    if query[0] != key[0]:
        raise ValueError(
            f"{source.called} has {key[0]} rows of keys for {query[0]} of queries at {shown(source.prefix)}: "
            "grouped-query attention, whose heads share keys, is not read"
        )


def _read_torch(source: Source) -> Projections:
    """torch.nn.MultiheadAttention: queries, keys and values one below the other, or a matrix each."""
    if source.has("bias_k") or source.has("bias_v"):
        raise ValueError(
            f"{source.called} has bias_k at {shown(source.prefix)}, a key that is no token's, which is not read"
        )
    if source.has("in_proj_weight"):
        stacked = source.matrix("in_proj_weight")
        features = stacked.shape[1]
        if len(stacked) != 3 * features:
            raise ValueError(
                f"{shown(source.prefix + 'in_proj_weight')} in {source.called} must have shape (3 features, features), "
                f"got {stacked.shape}"
            )
        query, key = stacked[:features], stacked[features : 2 * features]
    else:
        query, key = source.matrix("q_proj_weight"), source.matrix("k_proj_weight")
        check_pair(source, query.shape, key.shape)
    rows = len(query)
    bias = source.vector_or_zeros("in_proj_bias", 3 * rows)
    return Projections(query, key, bias[:rows], bias[rows : 2 * rows])


def _read_torch_encoder(source: Source) -> Projections:
    return _read_torch(Source(source.arrays, source.called, f"{source.prefix}self_attn."))


def _read_gpt2(source: Source) -> Projections:
    """GPT-2: queries, keys and values side by side, (features, 3 features), the transpose of a linear map's weight."""
    stacked = source.matrix("attn.c_attn.weight")
    features = len(stacked)
    if stacked.shape[1] != 3 * features:
        raise ValueError(
            f"{shown(source.prefix + 'attn.c_attn.weight')} in {source.called} must have shape (features, 3 "
            f"features), got {stacked.shape}: have heads been pruned, do they share keys, or is it transposed?"
        )
    bias = source.vector("attn.c_attn.bias", 3 * features)
    query, key = stacked[:, :features].T, stacked[:, features : 2 * features].T
    return Projections(query, key, bias[:features], bias[features : 2 * features])


def _read_bert(source: Source) -> Projections:
    return _whole(source, _linear(source, "attention.self.query", "attention.self.key"))


def _read_vit(source: Source) -> Projections:
    saved = source.has("attention.attention.query.weight")
    names = ("attention.attention.query", "attention.attention.key")
    return _whole(source, _linear(source, *(names if saved else ("attention.q_proj", "attention.k_proj"))))


def _whole(source: Source, projections: Projections) -> Projections:
    """Of a model in which all heads together have as many rows as there are features."""
    rows, features = projections.query.shape
    if rows != features:
        raise ValueError(
            f"{source.called} has queries of {rows} rows for {features} features at {shown(source.prefix)}: have "
            "heads been pruned? Then their number is not that of config.json"
        )
    return projections


def _read_equinox(source: Source) -> Projections:
    weights, biases = (tuple(f"{name}_proj.{of}" for name in ("query", "key")) for of in ("weight", "bias"))
    return _projections(source, weights, biases)


def _read_flax(source: Source) -> Projections:
    """Flax: kernels (features, heads, G), of which heads and G become rows."""
    mark = "/" if source.has("query/kernel") else "."
    query, key = (source.array(f"{name}{mark}kernel", "features heads G") for name in ("query", "key"))
    check_pair(source, (query.shape[1], query.shape[0]), (key.shape[1], key.shape[0]))
    check_pair(source, (query.shape[2], query.shape[0]), (key.shape[2], key.shape[0]))
    biases = (
        source.array(f"{name}{mark}bias", "heads G") if source.has(f"{name}{mark}bias") else np.zeros(query.shape[1:])
        for name in ("query", "key")
    )
    flat = [bias.reshape(-1) for bias in biases]
    if any(bias.size != query[0].size for bias in flat):
        raise ValueError(f"{source.called} has biases of other shapes than the kernels at {shown(source.prefix)}")
    rows = [kernel.reshape(len(kernel), -1).T for kernel in (query, key)]
    return Projections(*rows, *flat, heads=query.shape[1])


def _read_attention_paths(source: Source) -> Projections:
    return _projections(source, ("to_q.weight", "to_k.weight"), ("to_q.bias", "to_k.bias"))


_IN_LAYERS = r"(?P<prefix>(?:.*\.)?)"
# a module that stands alone is in no list, whose entries have numbers for names
_ALONE = r"(?P<prefix>(?:(?!self_attn\.|multihead_attn\.)[^.\d][^.]*\.)*)"
_WB = r"\.(?:weight|bias)"
_CROSS = "crossattention|ln_cross_attn"
_TORCH = rf"in_proj_weight|in_proj_bias|[qkv]_proj_weight|bias_[kv]|out_proj{_WB}"


def _kinds(names: str) -> frozenset[str]:
    return frozenset(names.split())


LAYOUTS: Mapping[str, Layout] = {
    "torch": Layout(
        "torch.nn.MultiheadAttention",
        "in_proj_weight",
        re.compile(_ALONE + r"(?P<rest>in_proj_weight|q_proj_weight)"),
        _read_torch,
        beside=re.compile(_TORCH),
        output=re.compile(r"out_proj\.weight"),
    ),
    "torch_encoder": Layout(
        "torch.nn.TransformerEncoder",
        "layers.0.self_attn.in_proj_weight",
        re.compile(
            r"(?P<prefix>(?:.*?\.)??)(?:layers\.(?P<layer>\d+)\.)?(?P<rest>self_attn\.(?:in_proj_weight|q_proj_weight))"
        ),
        _read_torch_encoder,
        beside=re.compile(rf"self_attn\.(?:{_TORCH})|norm1{_WB}|(?:multihead_attn|norm[23]|linear[12])\..*"),
        norm="norm1",
    ),
    "gpt2": Layout(
        "transformers' GPT-2",
        "h.0.attn.c_attn.weight",
        re.compile(_IN_LAYERS + r"h\.(?P<layer>\d+)\.(?P<rest>attn\.c_attn\.weight)"),
        _read_gpt2,
        beside=re.compile(rf"ln_1{_WB}|attn\.(?:c_attn|c_proj){_WB}|attn\.(?:masked_)?bias|(?:ln_2|mlp|{_CROSS})\..*"),
        norm="ln_1",
        causal=True,
        namesakes="GPT-1",
        model_types=frozenset({"gpt2", "decision_transformer"}),
    ),
    "bert": Layout(
        "transformers' BERT",
        "encoder.layer.0.attention.self.query.weight",
        re.compile(_IN_LAYERS + r"encoder\.layer\.(?P<layer>\d+)\.(?P<rest>attention\.self\.query\.weight)"),
        _read_bert,
        beside=re.compile(
            rf"attention\.self\.(?:query|key|value){_WB}|attention\.output\.(?:dense{_WB}|LayerNorm\.(?:weight|bias|gamma|beta))"
            rf"|(?:intermediate|output|{_CROSS})\..*"
        ),
        namesakes="RoFormer, YOSO and MRA",
        model_types=_kinds(
            "bert bert-generation big_bird camembert chinese_clip_text_model data2vec-text dpr electra ernie layoutlm "
            "lxmert markuplm rembert roberta splinter visual_bert xlm-roberta"
        ),
    ),
    "vit": Layout(
        "transformers' ViT",
        "encoder.layer.0.attention.attention.query.weight",
        re.compile(
            r"(?P<prefix>(?:.*?\.)??)(?:encoder\.layer|layers)\.(?P<layer>\d+)"
            r"\.(?P<rest>attention\.(?:attention\.query|q_proj)\.weight)"
        ),
        _read_vit,
        beside=re.compile(
            rf"layernorm_before{_WB}|attention\.attention\.(?:query|key|value){_WB}|attention\.output\.dense{_WB}"
            rf"|attention\.[qkvo]_proj{_WB}|(?:layernorm_after|intermediate|output|mlp)\..*"
        ),
        norm="layernorm_before",
        epsilon=1e-12,
        namesakes="VideoPrism",
        model_types=_kinds("vit deit vit_mae vit_msn audio-spectrogram-transformer dpt ijepa vilt vivit yolos"),
    ),
    "equinox": Layout(
        "equinox.nn.MultiheadAttention",
        "query_proj.weight",
        re.compile(_ALONE + r"(?P<rest>query_proj\.weight)"),
        _read_equinox,
        beside=re.compile(rf"(?:query|key|value|output)_proj{_WB}"),
        output=re.compile(r"output_proj\.weight"),
    ),
    "flax": Layout(
        "flax.nnx.MultiHeadAttention",
        "query.kernel",
        re.compile(r"(?P<prefix>(?:[^./\d][^./]*[./])*)(?P<rest>query[./]kernel)"),
        _read_flax,
        beside=re.compile(r"(?:query|key|value|out)[./](?:kernel|bias)"),
        output=re.compile(r"out[./]kernel"),
    ),
    "attention_paths": Layout(
        "the network of Tiberi et al.",
        "transformer.layers.0.to_q.weight",
        re.compile(r"(?P<prefix>(?:.*\.)?)transformer\.layers\.(?P<layer>\d+)\.(?P<rest>to_q\.weight)"),
        _read_attention_paths,
        beside=re.compile(rf"to_(?:q|k|v|out){_WB}"),
    ),
}
"""Every layout by its name, as `read_heads` takes it."""
