"""Build small models of every family in transformers, save them, and compare the attention maps that are read.

`python -m tests.checkpoints.families docs/checkpoints.md` writes the table of families that are read. It needs torch,
transformers and safetensors.
"""

import contextlib
import inspect
import json
import re
import signal
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import theorykit
from theorykit.checkpoints import read_heads

FEATURES, HEADS, TOKENS = 24, 3, 7
# Sizes of a small model, by the names that configurations of most families use.
_SIZES = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "hidden_dim", "emb_dim"), FEATURES),
    **dict.fromkeys(("embedding_size",), FEATURES),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "num_key_value_heads"), HEADS),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), HEADS),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "n_inner"), 16),
    **dict.fromkeys(("mlp_dim", "moe_intermediate_size"), 16),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx"), 40),
    **dict.fromkeys(("d_kv", "head_dim"), FEATURES // HEADS),
    **dict.fromkeys(("num_experts", "num_local_experts", "type_vocab_size"), 2),
    **{"vocab_size": 60, "image_size": 16, "patch_size": 4, "n_routed_experts": 4},
    **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}
# Largest number of parameters of a model that is built.
_MOST_PARAMETERS = 5_000_000
# Longest time in seconds to build and save a model.
_MOST_SECONDS = 60
_PATIENCE = "it takes too long"


def families() -> list[str]:
    """Return the kinds of models in transformers, by their names in config.json."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return list(CONFIG_MAPPING_NAMES)


def configuration(kind: str, **options: Any) -> Any:
    """Return the configuration of a small model of a kind, with eager attention."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    made = CONFIG_MAPPING[kind]
    known = {*inspect.signature(made.__init__).parameters, *getattr(made, "__annotations__", {})}
    try:
        config = made(**{name: size for name, size in _SIZES.items() if name in known}, **options)
    except Exception:  # Some configurations check that sizes are consistent.
        config = made(**options)
    return _small(config)


def _small(config: Any) -> Any:
    for name, size in _SIZES.items():
        if isinstance(getattr(config, name, None), (int, float)) and not isinstance(getattr(config, name), bool):
            with contextlib.suppress(Exception):
                setattr(config, name, size)
    for name in getattr(type(config), "sub_configs", {}):
        if hasattr(getattr(config, name, None), "to_dict"):
            _small(getattr(config, name))
    config._attn_implementation = "eager"
    return config


def build(config: Any) -> Any:
    """Build a model with random nonzero weights from a configuration. Raises `ValueError` if it is not small."""
    import torch
    from transformers import AutoModel

    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in AutoModel.from_config(config).parameters())
    if count > _MOST_PARAMETERS:
        raise ValueError(f"it has {count} parameters at its smallest")
    torch.manual_seed(0)
    return scattered(AutoModel.from_config(config, attn_implementation="eager"))


def scattered(model: Any) -> Any:
    """Convert a model to double precision, with weights so large that attention maps are far from uniform."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dtype.is_floating_point:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model.to(torch.float64).eval()


def _inputs(config: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the kinds of inputs that models take. Every model takes one kind."""
    import torch

    text = {"input_ids": torch.randint(3, 50, (2, TOKENS))}
    image, clip = torch.randn(2, 3, 16, 16).double(), torch.randn(2, 32, 3, 16, 16).double()
    sizes = (getattr(config, "state_dim", 1), getattr(config, "act_dim", 1), 1)
    steps = dict(
        zip(("states", "actions", "returns_to_go"), (torch.randn(2, 5, n).double() for n in sizes), strict=True)
    )
    seen = torch.randn(2, 5, getattr(config, "visual_feat_dim", 1)).double()
    yield text
    yield {"pixel_values": image}
    yield {**text, "pixel_values": image}
    yield {"pixel_values": clip}
    yield {"input_values": torch.randn(2, 1024, 128).double()}
    yield {**text, "bbox": torch.randint(0, 30, (2, TOKENS, 4))}
    yield {**text, "token_type_ids": torch.zeros(2, TOKENS, 7, dtype=torch.long)}
    yield {**text, "visual_feats": seen, "visual_pos": torch.rand(2, 5, 4).double()}
    yield {**steps, "rewards": steps["returns_to_go"], "timesteps": torch.arange(5).repeat(2, 1)}
    yield {**text, "decoder_input_ids": text["input_ids"]}
    yield {"pixel_values": image, "decoder_input_ids": text["input_ids"]}


def own_maps(model: Any, heads: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the inputs of the layer with the queries of `heads`, and its maps (examples, heads, queries, keys).

    The maps are the first softmax that the layer computes during a call of the model.
    """
    import torch

    functional, softmax = torch.nn.functional, torch.nn.functional.softmax
    layer, states, maps = _layer(model, heads), [], []

    def enter(_, positional, keywords):
        states.append((positional[0] if positional else keywords["hidden_states"]).detach().numpy().copy())

    def recorded(scores, dim=None, dtype=None, **_):
        found = softmax(scores, dim=dim)
        if len(states) == 1 and found.ndim == 4:
            maps.append(found.detach().numpy().copy())
        return found

    handle = layer.register_forward_pre_hook(enter, with_kwargs=True)
    functional.softmax = recorded
    try:
        for given in _inputs(model.config):
            states.clear(), maps.clear()
            with torch.no_grad(), contextlib.suppress(Exception):
                model(**given)
            if maps:
                return states[0], maps[0]
    finally:
        functional.softmax = softmax
        handle.remove()
    raise ValueError(f"no inputs make {type(model).__name__} attend")


def _layer(model: Any, heads: Any) -> Any:
    """Return the layer of a model whose weights contain the queries of `heads`, up to a factor."""
    query = np.asarray(heads.query).reshape(-1, heads.query.shape[2])
    for name, parameter in model.named_parameters():
        for matrix in (parameter.detach().numpy(), parameter.detach().numpy().T):
            rows = matrix[: len(query)] if matrix.ndim == 2 else matrix
            if rows.shape == query.shape and np.allclose(rows * query[0, 0], query * rows[0, 0], rtol=1e-12, atol=0):
                return model.get_submodule(re.match(r"(?:.*\.)?\d+(?=\.)", name)[0])
    raise ValueError("the model has no such queries")


@dataclass(frozen=True)
class Outcome:
    """The result for one family.

    - `kind`: name of the family in config.json.
    - `what`: "read", "refused" or "not built".
    - `reason`: the layout that was read, or the error message.
    - `difference`: largest difference between the maps that were read and the model's own maps.
    """

    kind: str
    what: str
    reason: str = ""
    difference: float = 0.0


def outcome(kind: str, folder: Path) -> Outcome:
    """Build a model of a family, save it to `folder`, and read its first layer."""
    try:
        with _limited():
            model = build(configuration(kind))
            model.save_pretrained(folder)
    except Exception as error:
        return Outcome(kind, "not built", _without(str(error) or type(error).__name__, folder))
    return read(kind, model, folder)


def read(kind: str, model: Any, saved: Any, **options: Any) -> Outcome:
    """Read the first layer of a saved model, and compare its maps with the model's own maps."""
    try:
        heads = read_heads(saved, layer=0, **options)
    except (ValueError, TypeError) as refusal:
        return Outcome(kind, "refused", _without(str(refusal), saved))
    states, maps = own_maps(model, heads)
    found = np.asarray(heads.attention(states, normalised=False if heads.norm else None)).swapaxes(2, 3)
    return Outcome(kind, "read", heads.layout, float(np.max(np.abs(found - maps))))


def _without(message: str, saved: Any) -> str:
    return message.splitlines()[0].replace(f"{saved}/", "") if message else message


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def stop(*_):
        raise TimeoutError(_PATIENCE)

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(_MOST_SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# Rows of the table, by patterns in error messages.
_REASONS = {
    r"rotary": "rotary positions, or the names of LLaMA, most of whose relatives have them",
    r"relative positions": "scores depend on relative positions, or attention is in windows",
    r"norms of queries": "queries and keys are normalised",
    r"sink": "attention has sinks",
    r"learned queries": "the attention with these names has learned queries",
    r"grouped|share keys": "heads share keys",
    r"has attention in \d+ places": "several models in one file: `prefix` selects one",
    r"has modules of": "modules of torch in lists, or two in a layer: `prefix` selects one",
    r"which transformers' (?:BERT|ViT|GPT-2) does not have|that transformers' \S+ does not have": (
        "an array that the model with these names does not have"
    ),
    r"but its|attention_type|BROS|CANINE": "the model has the names of a layout, but other attention",
    r"no array|one of .* without": "an array of the layout is missing",
    r"it is not known whether": "the model is not known to have the attention of the layout",
    r"GPT-1": "its norm comes after attention",
    r"none of the layouts": "no layout",
}


def category(reason: str) -> str:
    """Return the row of the table for an error message."""
    return next((row for pattern, row in _REASONS.items() if re.search(pattern, reason)), reason)


def table(outcomes: list[Outcome]) -> str:
    """Return the table in Markdown."""
    rows = defaultdict(list)
    for one in outcomes:
        reason = f"`{one.reason}`" if one.what == "read" else category(one.reason) if one.what == "refused" else ""
        if one.what != "not built":
            rows[one.what, reason].append(f"{one.kind}")
    lines = ["| | layout, or reason | kinds |", "|---|---|---|"]
    for (what, reason), kinds in sorted(rows.items(), key=lambda row: (row[0][0], -len(row[1]))):
        lines.append(f"| {what} | {reason} | {len(kinds)}: {', '.join(sorted(kinds))} |")
    return "\n".join(lines)


def main() -> None:
    """Try every family, and write the table to the page."""
    import transformers

    theorykit.enable_float64()
    outcomes = []
    for number, kind in enumerate(families()):
        with tempfile.TemporaryDirectory() as folder:
            outcomes.append(outcome(kind, Path(folder)))
        print(number, json.dumps(outcomes[-1].__dict__), file=sys.stderr, flush=True)
    counts = Counter(one.what for one in outcomes)
    largest = max(one.difference for one in outcomes)
    page, begin, end = Path(sys.argv[1]), "<!-- tests/checkpoints/families.py -->\n", "\n<!-- end -->"
    before, rest = page.read_text().split(begin)
    text = f"""
We built a small model of every kind in transformers {transformers.__version__}, {len(outcomes)} in all, with random
weights, saved it with `save_pretrained`, and read its first layer with `checkpoints.read_heads`. {counts["read"]} kinds
were read, with maps that differ from the model's own maps by at most {largest:.1g}. {counts["refused"]} kinds raised an
error, which names the array or the entry of config.json that is the reason. The other {counts["not built"]} are parts
of other models, or could not be built from a small configuration.

{table(outcomes)}
"""
    page.write_text(f"{before}{begin}{text}{end}{rest.partition(end)[2]}")


if __name__ == "__main__":
    main()
