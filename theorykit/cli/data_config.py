"""The table [data] of a configuration: which arrays of a file are features, inputs, attention, labels."""

from typing import Literal

import msgspec

# one name, or one for each layer that has heads
Names = str | tuple[str, ...]

CAUSAL = "causal"
# keys that name no array
NOT_ARRAYS = (
    *("file", "classes", "readout", "attention_layout"),
    *("checkpoint", "layer", "prefix", "layout", "norm_first", "causal"),
)


class DataConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The table [data]: an npz or netCDF file, and the names of the arrays in it.

    Either `features`, path features (examples, paths, features); or `inputs` (examples, tokens, features) with what
    attends to them in each layer that has heads: `key_query`; or `query` and `key`, which may have biases; or the
    `attention` itself; or the heads of one `layer` of a `checkpoint`, a file beside the configuration, as
    `checkpoints.read_heads` reads them, after that layer's norm, with its `prefix`, `layout`, `norm_first` and `causal`
    if they are given. A network without attention needs none. `mask` is
    "causal", the name of an array, or several: one that says which tokens are real holds for the `readout`, by default
    "last", too. `attention_layout` is the order of the axes of attention and masks, as `layout` of `bpkr.path_features`
    and `bpkr.attention`. Test examples are given in one of the two ways, too, with attention and masks of their own; a
    mask that is "causal" holds for both. With `classes`, labels are classes, text or numbers, and become outputs. No
    key is ignored.
    """

    file: str
    labels: str = "labels"
    features: str | None = None
    inputs: str | None = None
    key_query: Names | None = None
    query: Names | None = None
    key: Names | None = None
    query_bias: Names | None = None
    key_bias: Names | None = None
    attention: Names | None = None
    checkpoint: str | None = None
    layer: int | None = None
    prefix: str | None = None
    layout: str | None = None
    norm_first: bool | None = None
    causal: bool | None = None
    mask: Names | None = None
    attention_layout: Literal["keys-first", "torch"] | None = None
    readout: Literal["first", "last", "mean", "all"] | None = None
    test_features: str | None = None
    test_inputs: str | None = None
    test_attention: Names | None = None
    test_mask: Names | None = None
    test_labels: str | None = None
    classes: bool = False

    def __post_init__(self):
        if (self.features is None) == (self.inputs is None):
            raise ValueError("[data] needs either `features` or `inputs`, one of the two")
        if self.test_features is not None and self.test_inputs is not None:
            raise ValueError("[data] has both `test_features` and `test_inputs`, of which one would be ignored")
        if self.test_labels is not None and self.test_features is None and self.test_inputs is None:
            raise ValueError("[data] has `test_labels`, but no `test_features` or `test_inputs` to predict them from")
        self._check_heads()
        self._check_attention()
        self._check_masks()

    def given(self, *names: str) -> list[str]:
        """Those of these keys that have a value."""
        return [name for name in names if getattr(self, name) is not None]

    def _check_heads(self) -> None:
        of_inputs = self.given("key_query", "query", "key", "query_bias", "key_bias", "checkpoint", "readout")
        if of_inputs and self.inputs is None and self.test_inputs is None:
            raise ValueError(f"[data] has `{of_inputs[0]}`, which `features` have been through already: leave it out")
        if (self.query is None) != (self.key is None) or (self.query is not None and self.key_query is not None):
            raise ValueError("[data] gives heads by either `key_query`, or `query` and `key`")
        if self.query is None and (biases := self.given("query_bias", "key_bias")):
            raise ValueError(f"[data] has `{biases[0]}`, but no `query` and `key` that it would be added to")
        if (self.checkpoint is None) != (self.layer is None):
            raise ValueError("[data] needs both `checkpoint` and `layer`, or neither")
        if self.checkpoint is None and (options := self.given("prefix", "layout", "norm_first", "causal")):
            raise ValueError(f"[data] has `{options[0]}`, but no `checkpoint`")
        if self.checkpoint is not None and (heads := self.given("key_query", "query")):
            raise ValueError(f"[data] has both `checkpoint` and `{heads[0]}`, of which one would be ignored")

    def _check_attention(self) -> None:
        for prefix in ("", "test_"):
            if self.given(f"{prefix}attention", f"{prefix}mask") and getattr(self, f"{prefix}inputs") is None:
                name = self.given(f"{prefix}attention", f"{prefix}mask")[0]
                raise ValueError(f"[data] has `{name}`, but no `{prefix}inputs` that it would be of")
        arrays = self.given("attention", "test_attention")
        if not arrays:
            return
        if heads := self.given("key_query", "query", "checkpoint"):
            raise ValueError(f"[data] has both `{arrays[0]}` and `{heads[0]}`, of which one would be ignored")
        for prefix in ("", "test_"):
            if self.given(f"{prefix}inputs") and not self.given(f"{prefix}attention"):
                raise ValueError(f"[data] has `{arrays[0]}`, but no `{prefix}attention` for its `{prefix}inputs`")

    def _check_masks(self) -> None:
        for prefix in ("", "test_"):
            words = as_names(getattr(self, f"{prefix}mask"))
            if CAUSAL in words and self.given(f"{prefix}attention"):
                raise ValueError(f"[data] has `{prefix}mask`, but `{prefix}attention` is what is attended to already")
        if self.attention_layout is not None and not self.given("attention", "test_attention", "mask", "test_mask"):
            raise ValueError("[data] has `attention_layout`, but no `attention` and no `mask`")
        if self.test_inputs is not None and self.mask is not None and self.test_mask is None and not self.is_causal:
            raise ValueError("[data] has a `mask` of the `inputs`, but no `test_mask` of the `test_inputs`")
        if self.is_causal and self.test_mask is not None and CAUSAL not in as_names(self.test_mask):
            raise ValueError('[data] has a `mask` that is "causal", which its `test_mask` is not')

    @property
    def is_causal(self) -> bool:
        """Whether the mask is "causal" and nothing else, so that it fits any inputs."""
        return as_names(self.mask) == (CAUSAL,)


def as_names(names: Names | None) -> tuple[str, ...]:
    """The names that one key gives."""
    return () if names is None else (names,) if isinstance(names, str) else names
