"""The user's arrays: read from npz or netCDF by name, turned into path features where raw inputs are given."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import xarray as xr
from jax.typing import ArrayLike

from .. import bpkr
from ..sweeps import Data
from ..sweeps.data import checked
from .config import DataConfig


def read_data(config: DataConfig, architecture: bpkr.Architecture, folder: Path) -> Data:
    """The data that `config` describes, its file relative to `folder`."""
    path = folder / config.file
    arrays = _read_arrays(path)

    def named(name: str) -> np.ndarray:
        if name not in arrays:
            raise ValueError(f"{path} has no array {name!r}; it has {', '.join(sorted(arrays))}")
        return arrays[name]

    def layers(names: Sequence[str] | None) -> list[np.ndarray] | None:
        return None if names is None else [named(name) for name in names]

    def features(direct: str | None, inputs: str | None) -> ArrayLike | None:
        if direct is not None:
            return named(direct)
        if inputs is None:
            return None
        tokens = named(inputs)
        heads = {"key_query": layers(config.key_query), "query": layers(config.query), "key": layers(config.key)}
        none = not any(architecture.heads) and not any(heads.values())
        attention = () if none else bpkr.attention(tokens, **heads)
        return bpkr.path_features(tokens, attention, architecture, config.readout)

    training, test = features(config.features, config.inputs), features(config.test_features, config.test_inputs)
    assert training is not None, "DataConfig admits no file without features or inputs"
    test_labels = None if config.test_labels is None else named(config.test_labels)
    # before the solve, not after it
    return checked(architecture, Data(training, named(config.labels), test, test_labels))


def _read_arrays(path: Path) -> Mapping[str, np.ndarray]:
    if not path.exists():
        raise FileNotFoundError(f"no data file {path}")
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            return dict(archive)
    if path.suffix in {".nc", ".h5", ".netcdf"}:
        with xr.open_dataset(path, engine="h5netcdf") as dataset:
            return {str(name): variable.values for name, variable in dataset.variables.items()}
    raise ValueError(f"data files are .npz or netCDF (.nc), got {path}")
