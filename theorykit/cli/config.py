"""The configuration of `theorykit solve`, `sweep` and `compare`: a TOML file with strict validation."""

import difflib
import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec

from .. import bpkr

# One name, or one name per layer with heads.
Names = str | tuple[str, ...]
CAUSAL = "causal"
# Keys whose values are not names of arrays.
NOT_ARRAYS = (
    *("file", "classes", "readout", "attention_layout"),
    *("checkpoint", "layer", "prefix", "layout", "norm_first", "causal"),
)
_SAMPLERS = ("exact", "gibbs", "nuts")
# Integers that JAX can count with, and seeds of its random numbers.
_AtLeastOne = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
_Positive = Annotated[float, msgspec.Meta(gt=0)]
_NotNegative = Annotated[float, msgspec.Meta(ge=0)]
# A seed of JAX's random numbers.
_Seed = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class AttentionConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True, tag_field="kind", tag="attention"):
    """A layer of attention. `skip` adds a parallel skip connection with this gain."""

    heads: _AtLeastOne
    skip: float | None = None

    def build(self) -> "bpkr.AbstractLayer":
        """Build the layer."""
        layer = bpkr.Attention(self.heads)
        return layer if self.skip is None else bpkr.Skip(layer, self.skip)


class DenseConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True, tag_field="kind", tag="dense"):
    """A layer without attention. `skip` adds a parallel skip connection with this gain."""

    skip: float | None = None
    activation: str = "identity"

    def build(self) -> "bpkr.AbstractLayer":
        """Build the layer."""
        layer = bpkr.Dense(activation=self.activation)
        return layer if self.skip is None else bpkr.Skip(layer, self.skip)


class ArchitectureConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The table [architecture]; see `bpkr.Architecture`. Widths or temperatures of a sweep can be omitted here."""

    layers: tuple[_AtLeastOne | AttentionConfig | DenseConfig, ...]
    widths: _Positive | tuple[_Positive, ...] | None = None
    temperature: _NotNegative | None = None
    prior_variances: _Positive | tuple[_Positive, ...] = 1.0
    outputs: _AtLeastOne | None = None
    read_tokens: _AtLeastOne = 1
    embedding: str = "identity"
    richness: _NotNegative | None = None
    width_ratios: tuple[_Positive, ...] | None = None

    def build(
        self, widths: float | tuple[float, ...] | None = None, temperature: float | None = None
    ) -> "bpkr.Architecture":
        """Build the architecture. `widths` and `temperature` replace the values in the table."""
        widths = _require("widths", self.widths if widths is None else widths)
        return bpkr.Architecture(
            [layer if isinstance(layer, int) else layer.build() for layer in self.layers],
            widths,
            self.prior_variances,
            temperature=_require("temperature", self.temperature if temperature is None else temperature),
            outputs=1 if self.outputs is None else self.outputs,
            read_tokens=self.read_tokens,
            embedding=self.embedding,
            richness=self.richness,
            # A sweep replaces the widths, and has ratios only at infinite width.
            width_ratios=self.width_ratios if widths == math.inf or self.widths != math.inf else None,
        )


def _require(name: str, value: Any) -> Any:
    if value is None:
        raise ValueError(f"[architecture] needs the key `{name}`")
    return value


class DataConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The table [data], with an npz or netCDF file and the names of the arrays in it; see docs/command-line.md.

    The table has either path `features` (examples, paths, features), or `inputs` (examples, tokens, features) with
    their attention. Attention is given by `key_query`, by `query` and `key`, by `attention`, or by one `layer` of a
    `checkpoint`. No key is ignored.
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
        given = self.given
        if (self.features is None) == (self.inputs is None):
            raise ValueError("[data] must have either `features` or `inputs`")
        if self.test_features is not None and self.test_inputs is not None:
            raise ValueError("[data] has both `test_features` and `test_inputs`: keep only one of them")
        if self.test_labels is not None and not given("test_features", "test_inputs"):
            raise ValueError("[data] has `test_labels`, but no `test_features` or `test_inputs`: add one of them")
        of_inputs = given("key_query", "query", "key", "query_bias", "key_bias", "checkpoint", "readout")
        if of_inputs and not given("inputs", "test_inputs"):
            raise ValueError(f"[data] has `{of_inputs[0]}`, which was already applied to `features`: remove it")
        if (self.query is None) != (self.key is None) or (self.query is not None and self.key_query is not None):
            raise ValueError("[data] must have either `key_query`, or both `query` and `key`")
        if self.query is None and (biases := given("query_bias", "key_bias")):
            raise ValueError(f"[data] has `{biases[0]}`, but no `query` and `key` to add it to")
        if (self.checkpoint is None) != (self.layer is None):
            raise ValueError("[data] must have both `checkpoint` and `layer`, or neither")
        if self.checkpoint is None and (options := given("prefix", "layout", "norm_first", "causal")):
            raise ValueError(f"[data] has `{options[0]}`, but no `checkpoint`")
        maps, heads = given("attention", "test_attention"), given("key_query", "query", "checkpoint")
        if self.checkpoint is not None and len(heads) > 1:
            raise ValueError(f"[data] has both `checkpoint` and `{heads[0]}`: keep only one of them")
        for prefix in ("", "test_"):
            inputs, attention, mask = f"{prefix}inputs", f"{prefix}attention", f"{prefix}mask"
            if (loose := given(attention, mask)) and not given(inputs):
                raise ValueError(f"[data] has `{loose[0]}`, but no `{inputs}` to which it belongs")
            if maps and given(inputs) and not given(attention):
                raise ValueError(f"[data] has `{maps[0]}`, but no `{attention}` for its `{inputs}`")
            if CAUSAL in as_names(getattr(self, mask)) and given(attention):
                raise ValueError(f"[data] has `{mask}`, but `{attention}` already contains the mask: remove it")
        if maps and heads:
            raise ValueError(f"[data] has both `{maps[0]}` and `{heads[0]}`: keep only one of them")
        if self.attention_layout is not None and not maps and not given("mask", "test_mask"):
            raise ValueError("[data] has `attention_layout`, but no `attention` and no `mask`")
        if self.test_inputs is not None and self.mask is not None and self.test_mask is None and not self.is_causal:
            close = [name for name in as_names(self.mask) if difflib.get_close_matches(name.casefold(), [CAUSAL])]
            meant = f'; is {close[0]!r} in `mask` an array, or did you mean "{CAUSAL}"?' if close else ""
            raise ValueError(f"[data] has a `mask` for the `inputs`, but no `test_mask` for the `test_inputs`{meant}")
        if self.is_causal and self.test_mask is not None and CAUSAL not in as_names(self.test_mask):
            raise ValueError('[data] has the `mask` "causal", but its `test_mask` is not "causal"')

    def given(self, *names: str) -> list[str]:
        """Return the keys in `names` that have a value."""
        return [name for name in names if getattr(self, name) is not None]

    @property
    def is_causal(self) -> bool:
        """Check whether the mask is only "causal", which fits any inputs."""
        return as_names(self.mask) == (CAUSAL,)


def as_names(names: Names | None) -> tuple[str, ...]:
    """Return the names in the value of one key."""
    return () if names is None else (names,) if isinstance(names, str) else names


class SolverConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The table [solver]; see `bpkr.solve`."""

    tolerance: _Positive = 1e-9
    max_steps: _AtLeastOne = 1000


class OutputConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The table [output], with the file to write, next to the configuration."""

    file: str | None = None


class SweepConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The table [sweep], with the grid of `theorykit sweep`. The architecture sets missing widths or temperatures."""

    widths: tuple[_Positive | tuple[_Positive, ...], ...] | None = None
    temperatures: tuple[_NotNegative, ...] | None = None
    richness: tuple[_NotNegative, ...] | None = None
    file: str | None = None

    def __post_init__(self):
        if self.widths is None and self.temperatures is None and self.richness is None:
            raise ValueError("[sweep] must have `widths` or `temperatures`, or both, or `richness`")

    def grid(self, architecture: ArchitectureConfig) -> tuple[Sequence[float | tuple[float, ...]], Sequence[float]]:
        """Return the widths and temperatures of the grid."""
        widths, temperatures = self.widths, self.temperatures
        return (
            (_require("widths", architecture.widths),) if widths is None else widths,
            (_require("temperature", architecture.temperature),) if temperatures is None else temperatures,
        )


class CompareConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The table [compare], with the approaches of `theorykit compare` and the lengths of sampler runs."""

    approaches: tuple[Literal["saddle", "one_over_n", "infinite_width", "exact", "gibbs", "nuts"], ...] = (
        *("saddle", "one_over_n", "exact", "gibbs", "infinite_width"),
    )
    chains: _AtLeastOne | None = None
    draws: _AtLeastOne | None = None
    warmup: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    seed: _Seed | None = None
    file: str | None = None

    def __post_init__(self):
        if not self.approaches or len(set(self.approaches)) < len(self.approaches):
            raise ValueError(
                f"[compare] `approaches` must be one or more, each named once, got {list(self.approaches)}"
            )
        sampled = [name for name in ("chains", "draws", "warmup", "seed") if getattr(self, name) is not None]
        if sampled and not set(self.approaches) & set(_SAMPLERS):
            raise ValueError(f"[compare] has `{sampled[0]}`, which only samplers use, but `approaches` has none")

    def options(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the keywords of every sampler, which set the length of its run."""
        from ..bpkr.sampling.chains import DEFAULT_SCHEDULES

        given = {"chains": self.chains, "draws": self.draws, "warmup": self.warmup}
        changes = {name: number for name, number in given.items() if number is not None}
        samplers = [approach for approach in self.approaches if approach in _SAMPLERS]
        return {sampler: {"schedule": replace(DEFAULT_SCHEDULES[sampler], **changes)} for sampler in samplers}


class SolveConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The complete configuration file of `theorykit solve`, `sweep` and `compare`."""

    architecture: ArchitectureConfig
    data: DataConfig
    solver: SolverConfig = SolverConfig()
    output: OutputConfig = OutputConfig()
    sweep: SweepConfig | None = None
    compare: CompareConfig = CompareConfig()


def read_config(path: Path) -> SolveConfig:
    """Read the configuration from a TOML file. Errors name the file, the key and the cause."""
    if path.is_dir():
        raise IsADirectoryError(f"the configuration {path} is a folder; pass a file in it")
    if not path.exists():
        raise FileNotFoundError(f"there is no configuration file {path}")
    text, settings = "", {}
    try:
        text = path.read_bytes().decode("utf-8-sig")
        settings = tomllib.loads(text)
        config = msgspec.convert(settings, SolveConfig)
    except UnicodeDecodeError as mistake:
        raise ValueError(
            f"{path} is not valid TOML: it is not UTF-8 text at byte {mistake.start}; if it is a data file, "
            "`theorykit init` writes a configuration for it"
        ) from mistake
    except RecursionError as mistake:
        raise ValueError(f"{path} is not valid TOML: its brackets are nested too deeply") from mistake
    except tomllib.TOMLDecodeError as mistake:
        line = re.search(r"at line (\d+)", str(mistake))
        shown = "" if line is None else f": {_shortened(text.splitlines()[int(line[1]) - 1])}"
        raise ValueError(f"{path} is not valid TOML: {mistake}{shown}") from mistake
    except msgspec.ValidationError as mistake:
        raise ValueError(f"{path}: {_in_words(str(mistake), settings)}") from mistake
    except ValueError as mistake:  # Python refuses a number with thousands of digits.
        raise ValueError(f"{path} cannot be read: {mistake}") from mistake
    # The libraries that read data take long to import.
    if not (path.parent / config.data.file).exists():
        raise FileNotFoundError(f"{path}: [data] `file`: no data file {path.parent / config.data.file}")
    return config


_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
_BOUNDS = {">": "above", ">=": "of at least", "<=": "of at most"}


def _in_words(message: str, settings: Mapping[str, Any]) -> str:
    """Put a message of msgspec into words that name the key and its value, and suggest what was meant."""
    said, _, place = message.removesuffix("`").partition(" - at `$")
    table, _, key = place.removeprefix(".").partition(".")
    here = f"[{table}] `{key}`" if key else f"[{table}]" if table else "the file"
    # A table that may be left out is in a union with None.
    kind = get_type_hints(SolveConfig).get(table, SolveConfig)
    kind, value = next(iter(get_args(kind)), kind), settings
    for name in re.findall(r"\w+", place):
        value = value[int(name) if isinstance(value, list) else name]
    in_layer = key.startswith("layers[")
    what, _, name = said.removesuffix("`").partition(" field `")
    if what == "Object missing required":
        return f"{here} needs the {'key' if table else 'table'} `{name}`{_LAYERS if in_layer else ''}"
    if what == "Object contains unknown":
        if in_layer:
            kind = DenseConfig if value.get("kind") == "dense" else AttentionConfig
        known = ["kind"] * in_layer + list(kind.__struct_fields__)
        close = difflib.get_close_matches("layers" if name == "heads" and not in_layer else name, known, n=1)
        meant = f"did you mean `{close[0]}`?" if close else f"there are {', '.join(known)}"
        return f"{here} has no {'key' if table else 'table'} `{name}`; {meant}"
    given = _shortened(json.dumps(value, ensure_ascii=False, default=str))
    if said.startswith("Invalid"):
        known = ["attention", "dense"] if in_layer else _choices(get_type_hints(kind)[re.findall(r"\w+", key)[0]])
        close = difflib.get_close_matches(value, known, n=1)
        meant = f'; did you mean "{close[0]}"?' if close else ""
        return f"{here} must be one of {', '.join(map(json.dumps, known))}, got {given}{meant}"
    expected = re.fullmatch(r"Expected `(.*?)`(?: ([<>]=?) (\S+))?(?:, got `.*`?)?", said)
    if expected is None:
        # Messages of `__post_init__` name the key, and some of msgspec do not.
        return said if "`" in said else f"{here}: {said}, got {given}"
    kinds = [each for each in expected[1].split(" | ") if each in _KINDS]
    wanted = " or ".join(_KINDS[each] for each in kinds)
    wanted += f" {_BOUNDS[expected[2]]} {expected[3].removesuffix('.0')}" if expected[2] else ""
    fix = ""
    if isinstance(value, str) and "str" not in kinds and re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?|inf|true|false", value):
        fix = f"; write {value}, without quotes"
    elif "str" in kinds and not isinstance(value, list | dict):
        fix = f'; write "{given}", in quotes'
    elif kinds == ["array"] and not isinstance(value, dict):
        fix = f"; write [{given}], in brackets"
    return f"{here} must be {wanted}, got {given}{fix or (_LAYERS if in_layer else '')}"


_LAYERS = '; a layer is a number of heads, {kind = "attention", heads = ...} or {kind = "dense"}'
# More characters of a value than this do not help to find it.
_SHOWN = 80


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _choices(kind: Any) -> list[str]:
    """Return all strings among the parameters of a type, the choices of a `Literal`."""
    return [kind] if isinstance(kind, str) else [choice for part in get_args(kind) for choice in _choices(part)]
