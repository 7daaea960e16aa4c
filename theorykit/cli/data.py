"""The user's arrays: read from npz or netCDF by name, turned into path features where raw inputs are given."""

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from .. import bpkr
from ..bpkr.data.data import check_data
from ..store.files import read_npz, read_variables
from .config import DataConfig

_NETCDF = (".nc", ".h5", ".netcdf")
_KINDS = {
    "c": "complex numbers: give real and imaginary parts as features",
    "M": "dates: convert them to numbers",
    "m": "times: convert them to numbers",
    "O": "Python objects, as text is: convert them to numbers",
    "S": "text: convert it to numbers",
    "T": "text: convert it to numbers",
    "U": "text: convert it to numbers",
    "V": "records: write each of their fields as an array",
}
# what netCDF puts where nothing was written
_UNWRITTEN = 9.969209968386869e36


def read_data(config: DataConfig, architecture: bpkr.Architecture, folder: Path) -> bpkr.Data:
    """The data that `config` describes, its file relative to `folder`."""
    path = folder / config.file
    arrays = _read_arrays(path, _names(config))

    def layers(names: Sequence[str] | None) -> list[np.ndarray] | None:
        return None if names is None else [arrays[name] for name in names]

    def features(direct: str | None, inputs: str | None) -> ArrayLike | None:
        if direct is not None:
            return arrays[direct]
        if inputs is None:
            return None
        heads = {"key_query": layers(config.key_query), "query": layers(config.query), "key": layers(config.key)}
        none = not any(architecture.heads) and not any(heads.values())
        attention = () if none else bpkr.attention(arrays[inputs], **heads)
        return bpkr.path_features(arrays[inputs], attention, architecture, config.readout or "last")

    training, test = features(config.features, config.inputs), features(config.test_features, config.test_inputs)
    assert training is not None, "DataConfig admits no file without features or inputs"
    test_labels = None if config.test_labels is None else arrays[config.test_labels]
    # before the solve, not after it
    return check_data(architecture, bpkr.Data(training, arrays[config.labels], test, test_labels))


def _names(config: DataConfig) -> list[str]:
    """Every array that is asked for."""
    single = (
        *(config.labels, config.features, config.inputs),
        *(config.test_features, config.test_inputs, config.test_labels),
    )
    of_layers = chain(config.key_query or (), config.query or (), config.key or ())
    return list(dict.fromkeys([*(name for name in single if name is not None), *of_layers]))


def _read_arrays(path: Path, names: Sequence[str]) -> Mapping[str, np.ndarray]:
    if path.is_dir():
        raise IsADirectoryError(f"the data file {path} is a folder; name a file in it")
    if not path.exists():
        raise FileNotFoundError(f"no data file {path}")
    if path.suffix == ".npz":
        return {name: _numbers(array, name, path) for name, array in read_npz(path, names).items()}
    if path.suffix in _NETCDF:
        variables = read_variables(path, names)
        fills = {name: variable.encoding.get("_FillValue") for name, variable in variables.items()}
        return {name: _numbers(variable.values, name, path, fills[name]) for name, variable in variables.items()}
    raise ValueError(f"data files are .npz or netCDF ({', '.join(_NETCDF)}), got {path}")


def _numbers(array: np.ndarray, name: str, path: Path, fill: Any = None) -> np.ndarray:
    """`array`, refused unless it is of finite real numbers."""
    here = f"the array {name!r} in {path}"
    if array.dtype.kind in _KINDS:
        raise ValueError(f"{here}, of dtype {array.dtype}, is of {_KINDS[array.dtype.kind]}")
    is_wide = array.dtype.kind == "f" and array.dtype.itemsize >= np.dtype(np.float32).itemsize
    bad = np.argwhere(~np.isfinite(array) | (np.abs(array) == array.dtype.type(_UNWRITTEN) if is_wide else False))
    if len(bad):
        first = tuple(int(i) for i in bad[0])
        missing = "" if fill is None else f", where its _FillValue {fill} says that a value is missing"
        raise ValueError(
            f"{here} has {len(bad)} entries that are not finite or were never written, the first {array[first]} at "
            f"index {first}{missing}: leave these examples out, or mend them"
        )
    return array
