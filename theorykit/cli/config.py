"""The configuration of `theorykit solve`: a TOML file, read strictly; an unknown or mistyped key is named."""

import difflib
import re
import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from .. import bpkr


class ArchitectureConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The table [architecture]; see `bpkr.Architecture`."""

    heads: tuple[int, ...]
    widths: float | tuple[float, ...]
    temperature: float
    prior_variances: float | tuple[float, ...] = 1.0

    def build(self) -> bpkr.Architecture:
        """The architecture itself."""
        return bpkr.Architecture(self.heads, self.widths, self.prior_variances, temperature=self.temperature)


class DataConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The table [data]: an npz or netCDF file, and the names of the arrays in it.

    Either `features`, path features (examples, paths, features); or `inputs` (examples, tokens, features) with the
    heads of each layer: `key_query`, or `query` and `key`.
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


def _suggestion(message: str) -> str:
    unknown = re.search(r"unknown field `([^`]*)`", message)
    if unknown is None:
        return ""
    tables = (SolveConfig, ArchitectureConfig, DataConfig, SolverConfig, OutputConfig)
    known = sorted({name for table in tables for name in table.__struct_fields__})
    close = difflib.get_close_matches(unknown[1], known, n=1)
    return f"; did you mean `{close[0]}`?" if close else f"; known fields are {', '.join(known)}"
