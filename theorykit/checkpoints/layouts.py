"""Layouts of checkpoints, which are the names and axes with which libraries save queries, keys and norms."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from ..checks import checked_array, counted, first_line, shown

Matrix = Float[np.ndarray, "rows features"]
Vector = Float[np.ndarray, " rows"]


@dataclass(frozen=True)
class Source:
    """The arrays of a checkpoint whose names begin with `prefix`. Errors call the checkpoint `called`."""

    arrays: Mapping[str, Any]
    called: str
    prefix: str = ""

    def has(self, name: str) -> bool:
        """Check whether there is an array with this name after the prefix."""
        return self.prefix + name in self.arrays

    def refuse(self, what: str) -> ValueError:
        """Return an error with the message that the layer has `what`."""
        return ValueError(f"{self.called} has, at {shown(self.prefix)}, {what}")

    def array(self, name: str, axes: str) -> np.ndarray:
        """Load a finite array with these axes as float64."""
        name = self.prefix + name
        if name not in self.arrays:
            raise ValueError(f"{self.called} has no array {shown(name)}, which its layout needs")
        where, value = f"{shown(name)} in {self.called}", self.arrays[name]
        if hasattr(value, "detach") and hasattr(value, "numpy"):  # This is a torch tensor.
            try:
                value = value.detach().cpu()
                # NumPy has no bfloat16.
                value = (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
            except (RuntimeError, TypeError, NotImplementedError) as error:
                raise TypeError(
                    f"{where} must hold floating-point numbers, got a tensor of type {value.dtype} that NumPy cannot "
                    f"convert ({first_line(error)[:120]}); quantised, sparse and meta tensors are not read"
                ) from None
        dtype = getattr(value, "dtype", None)
        # Ask JAX, because NumPy does not know its floating-point types.
        if isinstance(dtype, np.dtype) and not jax.dtypes.issubdtype(dtype, np.floating):
            raise TypeError(f"{where} must hold floating-point numbers, got {shown(value)}, as if quantised")
        return np.asarray(checked_array(where, value, axes))

    def matrix(self, name: str) -> Matrix:
        """Load an array with two axes."""
        return self.array(name, "rows columns")

    def vector(self, name: str, length: int, may_lack: bool = False) -> Vector:
        """Load an array with one axis of this length, or return zeros if the array is missing and `may_lack`."""
        if may_lack and not self.has(name):
            return np.zeros(length)
        found = self.array(name, "entries")
        if len(found) != length:
            raise self.refuse(f"{counted(len(found), 'entry')} of {name} instead of {length}")
        return found


@dataclass(frozen=True)
class Projections:
    """Queries and keys of all heads, stacked along rows. `heads` is the number of heads, if the file has it."""

    query: Matrix
    key: Matrix
    query_bias: Vector
    key_bias: Vector
    heads: int | None = None


@dataclass(frozen=True)
class Layout:
    """The format in which one library saves attention.

    - `library`: name of the library or model in messages.
    - `example`: name of an array that identifies the layout, in layer 0 if there are layers.
    - `pattern`: pattern of such names. It has the groups `prefix`, which all layers share, `layer` if there are layers,
      and `rest`.
    - `read`: function that reads queries and keys from arrays whose names begin with the part before `rest`.
    - `beside`: pattern of the other names with this beginning that `read` uses, or that do not affect attention. All
      other names raise an error.
    - `output`: pattern of the name of a module's output weights, which identifies modules in a list.
    - `norm`: name of the layer norm before attention.
    - `epsilon`: the library's default epsilon of this norm.
    - `causal`: whether attention is causal.
    - `namesakes`: models with different attention but the same names of layers. Only config.json distinguishes them.
    - `model_types`: names in config.json of models with exactly this attention. Empty if the library writes none.
    - `decoders`: those of `model_types` that are causal if config.json sets `is_decoder`. Other models ignore it.
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
    decoders: frozenset[str] = frozenset()

    @property
    def stands_alone(self) -> bool:
        """Check whether this is the layout of a single attention module, without a layer around it."""
        return "layer" not in self.pattern.groupindex

    def is_decoder(self, names: Iterable[str], stem: str) -> bool:
        """Check whether the layer also has cross-attention, as in decoders, whose self-attention is causal."""
        cross = re.compile(rf"{re.escape(stem)}(?:{_CROSS}|multihead_attn)\.")
        return any(map(cross.match, names))

    def module_at(self, stem: str, names: Collection[str]) -> bool:
        """Check whether the arrays after `stem` are an attention module of this layout, including its output map."""
        behind = [name.removeprefix(stem) for name in names if name.startswith(stem)]
        return "" in self.stems(behind) and any(map(self.output.fullmatch, behind)) if self.output else False

    def listed_modules(self, names: Collection[str]) -> Iterator[str]:
        """Yield the paths of modules that occur several times: in a list, or twice in a layer."""
        for name in names if self.output else ():
            for mark in re.finditer(r"[./]", name):
                stem, rest = name[: mark.end()], name[mark.end() :]
                is_first = "" in self.stems([rest]) and re.search(r"(?:^|[./])(?:\d+|multihead_attn)[./]", stem)
                if is_first and self.module_at(stem, names):
                    yield stem

    def stems(self, names: Iterable[str]) -> Mapping[str, Mapping[int, str]]:
        """Return, for each matching prefix, the beginning of names of arrays in each layer, by layer number."""
        found: dict[str, dict[int, str]] = {}
        for name in names:
            if match := self.pattern.fullmatch(name):
                groups = match.groupdict()
                found.setdefault(groups["prefix"], {})[int(groups.get("layer") or 0)] = name[: match.start("rest")]
        return found


def _check_pair(source: Source, query: tuple[int, ...], key: tuple[int, ...]) -> None:
    if query[1] != key[1]:
        raise source.refuse(
            f"queries of {query[1]} features and keys of {key[1]}: attention to other tokens is not read"
        )
    if query[0] != key[0]:
        raise source.refuse(f"{key[0]} rows of keys for {query[0]} of queries: grouped-query attention is not read")


def _linear(source: Source, query: str, key: str, as_transformers: bool = False) -> Projections:
    """Read two linear maps with weights (rows, features), each with or without a bias.

    In transformers, both maps or neither have a bias, and there are as many rows as features.
    """
    weights = [source.matrix(f"{name}.weight") for name in (query, key)]
    _check_pair(source, *(weight.shape for weight in weights))
    rows, features = weights[0].shape
    if as_transformers and source.has(f"{query}.bias") != source.has(f"{key}.bias"):
        raise source.refuse(f"one of {query}.bias and {key}.bias without the other")
    if as_transformers and rows != features:
        raise source.refuse(f"queries of {rows} rows for {features} features: models with pruned heads are not read")
    return Projections(*weights, *(source.vector(f"{name}.bias", rows, may_lack=True) for name in (query, key)))


def _stacked(source: Source, name: str, transposed: bool = False) -> tuple[Matrix, Matrix]:
    """Split queries and keys from a matrix (3 features, features) of queries, keys and values, or its transpose."""
    stacked = source.matrix(name).T if transposed else source.matrix(name)
    features = stacked.shape[1]
    if len(stacked) != 3 * features:
        said = f"{len(stacked)} rows of {name} for {features} features, not {3 * features}"
        raise source.refuse(f"{said}: heads may be pruned or share keys, or the matrix may be transposed")
    return stacked[:features], stacked[features : 2 * features]


def _read_torch(source: Source) -> Projections:
    if source.has("bias_k") or source.has("bias_v"):
        raise source.refuse("bias_k, a key that does not belong to a token, which is not read")
    if source.has("in_proj_weight"):
        query, key = _stacked(source, "in_proj_weight")
    else:
        query, key = source.matrix("q_proj_weight"), source.matrix("k_proj_weight")
        _check_pair(source, query.shape, key.shape)
    rows = len(query)
    bias = source.vector("in_proj_bias", 3 * rows, may_lack=True)
    return Projections(query, key, bias[:rows], bias[rows : 2 * rows])


def _read_gpt2(source: Source) -> Projections:
    query, key = _stacked(source, "attn.c_attn.weight", transposed=True)
    features = len(query)
    bias = source.vector("attn.c_attn.bias", 3 * features)
    return Projections(query, key, bias[:features], bias[features : 2 * features])


def _read_vit(source: Source) -> Projections:
    # In transformers, the names of the maps in memory and in files differ.
    is_file = source.has("attention.attention.query.weight")
    names = ("attention.query", "attention.key") if is_file else ("q_proj", "k_proj")
    return _linear(source, *(f"attention.{name}" for name in names), as_transformers=True)


def _read_flax(source: Source) -> Projections:
    """Read Flax kernels (features, heads, G), and flatten heads and G into rows."""
    mark = "/" if source.has("query/kernel") else "."
    query, key = (source.array(f"{name}{mark}kernel", "features heads G") for name in ("query", "key"))
    for axis in (1, 2):
        _check_pair(source, *((kernel.shape[axis], len(kernel)) for kernel in (query, key)))
    biases = [
        source.array(f"{name}{mark}bias", "heads G") if source.has(f"{name}{mark}bias") else np.zeros(query.shape[1:])
        for name in ("query", "key")
    ]
    if any(bias.size != query[0].size for bias in biases):
        raise source.refuse("biases whose shapes do not fit the kernels")
    rows = [kernel.reshape(len(kernel), -1).T for kernel in (query, key)]
    return Projections(*rows, *(bias.reshape(-1) for bias in biases), heads=query.shape[1])


# Any prefix before the names of layers. A model with a task head, for example, stores its encoder under "bert.".
_IN_LAYERS = r"(?P<prefix>(?:.*\.)?)"
# Prefix of a single module. Modules with a number in their path are in a list.
_ALONE = r"(?P<prefix>(?:(?!self_attn\.|multihead_attn\.)[^.\d][^.]*\.)*)"
_WB = r"\.(?:weight|bias)"
_CROSS = "crossattention|ln_cross_attn"
_TORCH = rf"in_proj_weight|in_proj_bias|[qkv]_proj_weight|bias_[kv]|out_proj{_WB}"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


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
        lambda source: _read_torch(replace(source, prefix=f"{source.prefix}self_attn.")),
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
        model_types=_words("gpt2 decision_transformer"),
    ),
    "bert": Layout(
        "transformers' BERT",
        "encoder.layer.0.attention.self.query.weight",
        re.compile(_IN_LAYERS + r"encoder\.layer\.(?P<layer>\d+)\.(?P<rest>attention\.self\.query\.weight)"),
        lambda source: _linear(source, "attention.self.query", "attention.self.key", as_transformers=True),
        beside=re.compile(
            rf"attention\.self\.(?:query|key|value){_WB}|attention\.output\.(?:dense{_WB}|LayerNorm\.(?:weight|bias|gamma|beta))"
            rf"|(?:intermediate|output|{_CROSS})\..*"
        ),
        namesakes="RoFormer, YOSO and MRA",
        model_types=_words(
            "bert bert-generation big_bird camembert chinese_clip_text_model data2vec-text dpr electra ernie layoutlm "
            "lxmert markuplm rembert roberta splinter visual_bert xlm-roberta"
        ),
        decoders=_words(
            "bert bert-generation big_bird camembert data2vec-text electra ernie rembert roberta xlm-roberta"
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
        model_types=_words("vit deit vit_mae vit_msn audio-spectrogram-transformer dpt ijepa vilt vivit yolos"),
    ),
    "equinox": Layout(
        "equinox.nn.MultiheadAttention",
        "query_proj.weight",
        re.compile(_ALONE + r"(?P<rest>query_proj\.weight)"),
        lambda source: _linear(source, "query_proj", "key_proj"),
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
        re.compile(_IN_LAYERS + r"transformer\.layers\.(?P<layer>\d+)\.(?P<rest>to_q\.weight)"),
        lambda source: _linear(source, "to_q", "to_k"),
        beside=re.compile(rf"to_(?:q|k|v|out){_WB}"),
    ),
}
"""All layouts by the names that `read_heads` accepts."""
