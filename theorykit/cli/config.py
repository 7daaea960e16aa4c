"""The configuration of `theorykit solve`: a TOML file, read strictly; an unknown or mistyped key is named."""

import difflib
import re
import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from .. import bpkr


class AttentionConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True, tag_field="kind", tag="attention"):
    """A layer of attention; with `skip`, a straight branch of that gain beside it."""

    heads: int
    skip: float | None = None

    def build(self) -> bpkr.AbstractLayer:
        """The layer itself."""
        return _beside_straight(bpkr.Attention(self.heads), self.skip)


class DenseConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True, tag_field="kind", tag="dense"):
    """A linear layer without attention; with `skip`, a straight branch of that gain beside it."""

    skip: float | None = None

    def build(self) -> bpkr.AbstractLayer:
        """The layer itself."""
        return _beside_straight(bpkr.Dense(), self.skip)


def _beside_straight(layer: bpkr.AbstractLayer, gain: float | None) -> bpkr.AbstractLayer:
    return layer if gain is None else bpkr.Skip(layer, gain)


class ArchitectureConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The table [architecture]; see `bpkr.Architecture`. A layer is its number of heads, or a table."""

    layers: tuple[int | AttentionConfig | DenseConfig, ...]
    widths: float | tuple[float, ...]
    temperature: float
    prior_variances: float | tuple[float, ...] = 1.0
    outputs: int = 1

    def build(self) -> bpkr.Architecture:
        """The architecture itself."""
        layers = [layer if isinstance(layer, int) else layer.build() for layer in self.layers]
        numbers = {"temperature": self.temperature, "outputs": self.outputs}
        return bpkr.Architecture(layers, self.widths, self.prior_variances, **numbers)


class DataConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The table [data]: an npz or netCDF file, and the names of the arrays in it.

    Either `features`, path features (examples, paths, features); or `inputs` (examples, tokens, features) with the
    heads of each layer that has heads: `key_query`, or `query` and `key`; none for a network without attention.
    """

    file: str
    labels: str = "labels"
    features: str | None = None
    inputs: str | None = None
    key_query: tuple[str, ...] | None = None
    query: tuple[str, ...] | None = None
    key: tuple[str, ...] | None = None
    readout: Literal["first", "last", "mean"] = "last"
    test_features: str | None = None
    test_inputs: str | None = None
    test_labels: str | None = None

    def __post_init__(self):
        if (self.features is None) == (self.inputs is None):
            raise ValueError("[data] needs either `features` or `inputs`, one of the two")
        if self.test_labels is not None and self.test_features is None and self.test_inputs is None:
            raise ValueError("[data] has `test_labels`, but no `test_features` or `test_inputs` to predict them from")


class SolverConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The table [solver]; see `bpkr.solve`."""

    tolerance: float = 1e-9
    max_steps: int = 10_000


class OutputConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The table [output]: the file to write, beside the configuration; by default of its name, ending in .nc."""

    file: str | None = None


class SolveConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The whole file."""

    architecture: ArchitectureConfig
    data: DataConfig
    solver: SolverConfig = SolverConfig()
    output: OutputConfig = OutputConfig()


def read_config(path: Path) -> SolveConfig:
    """The configuration in the TOML file `path`; `ValueError` names the file, the key and the cause."""
    if not path.exists():
        raise FileNotFoundError(f"no configuration file {path}")
    try:
        return msgspec.convert(tomllib.loads(path.read_text()), SolveConfig)
    except tomllib.TOMLDecodeError as mistake:
        raise ValueError(f"{path} is not valid TOML: {mistake}") from mistake
    except msgspec.ValidationError as mistake:
        raise ValueError(f"{path}: {mistake}{_suggestion(str(mistake))}") from mistake


# the table that an error message places a key in -> the fields it may have
_LAYER = r"\$\.architecture\.layers\[.*\]"
_TABLES = {
    r"\$\.architecture": ArchitectureConfig.__struct_fields__,
    _LAYER: ("kind", *AttentionConfig.__struct_fields__),
    r"\$\.data": DataConfig.__struct_fields__,
    r"\$\.solver": SolverConfig.__struct_fields__,
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
