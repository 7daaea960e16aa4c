"""The configuration of `theorykit solve`, `sweep` and `compare`: a TOML file, read strictly; a mistake is named."""

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec

from .. import bpkr
from ..bpkr.sampling import APPROACHES, DEFAULT_SCHEDULES, Schedule
from .data_config import DataConfig


class AttentionConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True, tag_field="kind", tag="attention"):
    """A layer of attention; with `skip`, a skip connection of that gain beside it."""

    heads: int
    skip: float | None = None

    def build(self) -> bpkr.AbstractLayer:
        """The layer itself."""
        return _with_skip(bpkr.Attention(self.heads), self.skip)


class DenseConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True, tag_field="kind", tag="dense"):
    """A layer without attention; with `skip`, a skip connection of that gain beside it.

    `activation` is the name of the function of its hidden units.
    """

    skip: float | None = None
    activation: str = "identity"

    def build(self) -> bpkr.AbstractLayer:
        """The layer itself."""
        return _with_skip(bpkr.Dense(activation=self.activation), self.skip)


def _with_skip(layer: bpkr.AbstractLayer, gain: float | None) -> bpkr.AbstractLayer:
    return layer if gain is None else bpkr.Skip(layer, gain)


class ArchitectureConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The table [architecture]; see `bpkr.Architecture`. A layer is its number of heads, or a table.

    A sweep over widths needs none here, and one over temperatures no temperature.
    """

    layers: tuple[int | AttentionConfig | DenseConfig, ...]
    widths: float | tuple[float, ...] | None = None
    temperature: float | None = None
    prior_variances: float | tuple[float, ...] = 1.0
    outputs: int = 1
    read_tokens: int = 1
    embedding: str = "identity"

    def build(self) -> bpkr.Architecture:
        """The architecture itself."""
        return self.build_at(_require("widths", self.widths))

    def build_at(self, widths: float | tuple[float, ...], temperature: float | None = None) -> bpkr.Architecture:
        """The architecture, but with these widths, and this temperature if one is given."""
        layers = [layer if isinstance(layer, int) else layer.build() for layer in self.layers]
        numbers = {
            "temperature": _require("temperature", self.temperature) if temperature is None else temperature,
            "outputs": self.outputs,
            "read_tokens": self.read_tokens,
            "embedding": self.embedding,
        }
        return bpkr.Architecture(layers, widths, self.prior_variances, **numbers)


def _require(name: str, value: Any) -> Any:
    if value is None:
        raise ValueError(f"[architecture] is missing the required field `{name}`")
    return value


class SolverConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The table [solver]; see `bpkr.solve`."""

    tolerance: float = 1e-9
    max_steps: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = 1000


class OutputConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The table [output]: the file to write, beside the configuration; by default of its name, ending in .nc."""

    file: str | None = None


class SweepConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The table [sweep]: the grid of `theorykit sweep`, by default of the architecture's own width or temperature.

    A width is that of all layers, or (N_1, ..., N_L, N_a). `file` is the one to write, beside the configuration; by
    default of its name, ending in -sweep.nc.
    """

    widths: tuple[float | tuple[float, ...], ...] | None = None
    temperatures: tuple[float, ...] | None = None
    file: str | None = None

    def __post_init__(self):
        if self.widths is None and self.temperatures is None:
            raise ValueError("[sweep] needs `widths` or `temperatures`, or both")

    def grid(self, architecture: ArchitectureConfig) -> tuple[Sequence[float | tuple[float, ...]], Sequence[float]]:
        """Widths and temperatures."""
        widths = (_require("widths", architecture.widths),) if self.widths is None else self.widths
        if self.temperatures is None:
            return widths, (_require("temperature", architecture.temperature),)
        return widths, self.temperatures


_THEORIES = ("saddle", "one_over_n", "infinite_width")
_Seed = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_AtLeastOne = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


class CompareConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The table [compare]: which approaches `theorykit compare` takes, and how long samplers run.

    `chains`, `draws` and `warmup` are of every sampler, each by default the sampler's own; `seed` is 0 by default.
    `file` is the one to write, beside the configuration; by default of its name, ending in -comparison.nc.
    """

    approaches: tuple[str, ...] = ("saddle", "one_over_n", "exact", "gibbs", "infinite_width")
    chains: _AtLeastOne | None = None
    draws: _AtLeastOne | None = None
    warmup: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    seed: _Seed | None = None
    file: str | None = None

    def __post_init__(self):
        if unknown := [approach for approach in self.approaches if approach not in APPROACHES]:
            close = difflib.get_close_matches(unknown[0], APPROACHES, n=1)
            end = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(map(repr, APPROACHES))}"
            raise ValueError(f"unknown approach {unknown[0]!r}{end}")
        if not self.approaches or len(set(self.approaches)) < len(self.approaches):
            raise ValueError(f"`approaches` must be one or more, each named once, got {list(self.approaches)}")
        sampled = [name for name in ("chains", "draws", "warmup", "seed") if getattr(self, name) is not None]
        if sampled and set(self.approaches) <= set(_THEORIES):
            raise ValueError(f"[compare] has `{sampled[0]}`, but `approaches` has no sampler that it would be for")

    def options(self) -> Mapping[str, Mapping[str, Schedule]]:
        """What was said of how long samplers run, as keywords of every sampler."""
        given = {"chains": self.chains, "draws": self.draws, "warmup": self.warmup}
        changes = {name: number for name, number in given.items() if number is not None}
        samplers = [approach for approach in self.approaches if approach not in _THEORIES]
        return {sampler: {"schedule": replace(DEFAULT_SCHEDULES[sampler], **changes)} for sampler in samplers}


class SolveConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The whole file."""

    architecture: ArchitectureConfig
    data: DataConfig
    solver: SolverConfig = SolverConfig()
    output: OutputConfig = OutputConfig()
    sweep: SweepConfig | None = None
    compare: CompareConfig = CompareConfig()


def read_config(path: Path) -> SolveConfig:
    """The configuration in the TOML file `path`; `ValueError` names the file, the key and the cause."""
    if path.is_dir():
        raise IsADirectoryError(f"the configuration {path} is a folder; name a file in it")
    if not path.exists():
        raise FileNotFoundError(f"no configuration file {path}")
    try:
        return msgspec.convert(tomllib.loads(path.read_bytes().decode("utf-8-sig")), SolveConfig)
    except UnicodeDecodeError as mistake:
        raise ValueError(f"{path} is not text in UTF-8 (at byte {mistake.start}), which TOML is") from mistake
    except RecursionError as mistake:
        raise ValueError(f"{path} is not valid TOML: its brackets are nested too deeply") from mistake
    except tomllib.TOMLDecodeError as mistake:
        raise ValueError(f"{path} is not valid TOML: {mistake}") from mistake
    except msgspec.ValidationError as mistake:
        raise ValueError(f"{path}: {mistake}{_suggestion(str(mistake))}") from mistake
    except ValueError as mistake:  # a number of thousands of digits
        raise ValueError(f"{path} cannot be read: {mistake}") from mistake


# the table that an error message places a key in -> the fields it may have
_LAYER = r"\$\.architecture\.layers\[.*\]"
_TABLES = {
    r"\$\.architecture": ArchitectureConfig.__struct_fields__,
    _LAYER: ("kind", *AttentionConfig.__struct_fields__),
    r"\$\.data": DataConfig.__struct_fields__,
    r"\$\.solver": SolverConfig.__struct_fields__,
    r"\$\.sweep": SweepConfig.__struct_fields__,
    r"\$\.compare": CompareConfig.__struct_fields__,
    r"\$\.output": OutputConfig.__struct_fields__,
}


def _suggestion(message: str) -> str:
    if re.search(rf"missing required field `kind` - at `{_LAYER}`", message):
        return '; a layer is a number of heads, {kind = "attention", heads = ...} or {kind = "dense"}'
    unknown = re.search(r"unknown field `([^`]*)`(?: - at `([^`]*)`)?", message)
    if unknown is None:
        return ""
    name, place = unknown[1], unknown[2] or "$"
    known = next((fields for pattern, fields in _TABLES.items() if re.fullmatch(pattern, place)), None)
    known = sorted(set(known or SolveConfig.__struct_fields__) - {name})
    if name == "heads" and "layers" in known:
        return "; did you mean `layers`?"
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean `{close[0]}`?" if close else f"; known fields are {', '.join(known)}"
