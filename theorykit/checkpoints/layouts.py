"""The layouts of checkpoints: by which names the libraries save queries, keys and norms, and with which axes."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
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
        where, value = f"{shown(name)} in {self.called}", self.arrays[name]
        if hasattr(value, "detach") and hasattr(value, "numpy"):  # a tensor of torch
            try:
                value = value.detach().cpu()
                # NumPy has no bfloat16
                value = (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
            except (RuntimeError, TypeError, NotImplementedError) as error:
                raise TypeError(
                    f"{where} must be an array of floating-point numbers, got a tensor of type {value.dtype} that "
                    f"NumPy cannot take ({first_line(error)[:120]}): is it quantised, sparse or without values?"
                ) from None
        dtype = getattr(value, "dtype", None)
        # JAX's own floating-point types are none of NumPy's; of other libraries' arrays NumPy tells the type
        if isinstance(dtype, np.dtype) and not jax.dtypes.issubdtype(dtype, np.floating):
            raise TypeError(f"{where} must be of floating-point numbers, got {shown(value)}: is it quantised?")
        return np.asarray(checked_array(where, value, axes))

    def matrix(self, name: str) -> Matrix:
        """An array of two axes."""
        return self.array(name, "rows columns")

    def vector(self, name: str, length: int, may_lack: bool = False) -> Vector:
        """An array of one axis of this length; zeros where it `may_lack` and does."""
        if may_lack and not self.has(name):
            return np.zeros(length)
        found = self.array(name, "entries")
        if len(found) != length:
            raise ValueError(
                f"{shown(self.prefix + name)} in {self.called} must have {length} entries, got {len(found)}"
            )
        return found


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
    - `pattern`: of such names, with groups `prefix`, of what all layers are behind, and `layer` where there are layers.
      `rest` and what follows the same beginning is read by `read`.
    - `beside`: names behind the same beginning that `read` takes, or that leave attention as it is. All other arrays
      there are refused by name.
    - `output`: the name of the weights of a module's output map, by which a module in a list is told from other parts.
    - `norm`: the layer norm before attention, if there is one; `epsilon` is the library's default.
    - `namesakes`: models with another attention whose layers have the same names, which only config.json tells apart.
    - `model_types`: what config.json calls models of exactly this attention; none if the library writes no config.json.
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
                found.setdefault(groups["prefix"], {})[int(groups.get("layer") or 0)] = name[: match.start("rest")]
        return found


def _check_pair(source: Source, query: tuple[int, ...], key: tuple[int, ...]) -> None:
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


def _linear(source: Source, query: str, key: str) -> Projections:
    """Of two linear maps with weights (rows, features), each with a bias or none."""
    weights = [source.matrix(f"{name}.weight") for name in (query, key)]
    _check_pair(source, *(weight.shape for weight in weights))
    biases = [source.vector(f"{name}.bias", len(weights[0]), may_lack=True) for name in (query, key)]
    return Projections(*weights, *biases)


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
        _check_pair(source, query.shape, key.shape)
    rows = len(query)
    bias = source.vector("in_proj_bias", 3 * rows, may_lack=True)
    return Projections(query, key, bias[:rows], bias[rows : 2 * rows])


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


def _read_transformers(source: Source, query: str, key: str) -> Projections:
    """Two linear maps, both with biases or both without, whose heads together have as many rows as features."""
    found = _linear(source, query, key)
    if source.has(f"{query}.bias") != source.has(f"{key}.bias"):
        raise ValueError(
            f"{source.called} has one of {query}.bias and {key}.bias at {shown(source.prefix)} without the other"
        )
    rows, features = found.query.shape
    if rows != features:
        raise ValueError(
            f"{source.called} has queries of {rows} rows for {features} features at {shown(source.prefix)}: have "
            "heads been pruned? Then their number is not that of config.json"
        )
    return found


def _read_vit(source: Source) -> Projections:
    # transformers calls the maps otherwise in memory than in files
    if source.has("attention.attention.query.weight"):
        return _read_transformers(source, "attention.attention.query", "attention.attention.key")
    return _read_transformers(source, "attention.q_proj", "attention.k_proj")


def _read_flax(source: Source) -> Projections:
    """Flax: kernels (features, heads, G), of which heads and G become rows."""
    mark = "/" if source.has("query/kernel") else "."
    query, key = (source.array(f"{name}{mark}kernel", "features heads G") for name in ("query", "key"))
    _check_pair(source, (query.shape[1], query.shape[0]), (key.shape[1], key.shape[0]))
    _check_pair(source, (query.shape[2], query.shape[0]), (key.shape[2], key.shape[0]))
    biases = [
        source.array(f"{name}{mark}bias", "heads G") if source.has(f"{name}{mark}bias") else np.zeros(query.shape[1:])
        for name in ("query", "key")
    ]
    if any(bias.size != query[0].size for bias in biases):
        raise ValueError(f"{source.called} has biases of other shapes than the kernels at {shown(source.prefix)}")
    rows = [kernel.reshape(len(kernel), -1).T for kernel in (query, key)]
    return Projections(*rows, *(bias.reshape(-1) for bias in biases), heads=query.shape[1])


# names of layers behind any prefix, such as that of a task's model
_IN_LAYERS = r"(?P<prefix>(?:.*\.)?)"
# a module that stands alone is in no list, whose entries have numbers for names
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
        model_types=frozenset({"gpt2", "decision_transformer"}),
    ),
    "bert": Layout(
        "transformers' BERT",
        "encoder.layer.0.attention.self.query.weight",
        re.compile(_IN_LAYERS + r"encoder\.layer\.(?P<layer>\d+)\.(?P<rest>attention\.self\.query\.weight)"),
        lambda source: _read_transformers(source, "attention.self.query", "attention.self.key"),
        beside=re.compile(
            rf"attention\.self\.(?:query|key|value){_WB}|attention\.output\.(?:dense{_WB}|LayerNorm\.(?:weight|bias|gamma|beta))"
            rf"|(?:intermediate|output|{_CROSS})\..*"
        ),
        namesakes="RoFormer, YOSO and MRA",
        model_types=_words(
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
        re.compile(r"(?P<prefix>(?:.*\.)?)transformer\.layers\.(?P<layer>\d+)\.(?P<rest>to_q\.weight)"),
        lambda source: _linear(source, "to_q", "to_k"),
        beside=re.compile(rf"to_(?:q|k|v|out){_WB}"),
    ),
}
"""Every layout by its name, as `read_heads` takes it."""
