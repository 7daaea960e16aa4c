"""Read the user's arrays by name from npz or netCDF files, and convert inputs to path features."""

import difflib
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from jax.typing import ArrayLike

from .. import bpkr, checkpoints
from ..bpkr.data.data import check_data
from ..checks import counted
from .config import CAUSAL, NOT_ARRAYS, DataConfig, as_names

_NETCDF = (".nc", ".h5", ".netcdf")
_TEXT = "text: convert it to numbers, or, if labels are classes, set `classes = true`"
_KINDS = {
    "c": "complex numbers: use real and imaginary parts as features",
    "M": "dates: convert them to numbers",
    "m": "times: convert them to numbers",
    "O": "Python objects, such as text: convert them to numbers",
    "S": _TEXT,
    "T": _TEXT,
    "U": _TEXT,
    "V": "records: save each of their fields as an array",
}
# netCDF's default fill value for entries that were never written.
_UNWRITTEN = 9.969209968386869e36


def read_data(
    config: DataConfig, architecture: bpkr.Architecture, folder: Path, *, infer_outputs: bool = False
) -> bpkr.Data:
    """Read the data in `config`, with files relative to `folder`.

    If `infer_outputs` is set, the labels set the number of outputs. Otherwise they must match the architecture.
    """
    keys = (key for key in config.__struct_fields__ if key not in NOT_ARRAYS)
    named = [(key, name) for key in keys for name in as_names(getattr(config, key))]
    names = list(dict.fromkeys(name for key, name in named if name != CAUSAL or not key.endswith("mask")))
    labels = [name for name in (config.labels, config.test_labels) if name is not None]
    try:
        arrays = read_arrays(folder / config.file, names, labels if config.classes else ())
    except ValueError as mistake:
        missing = re.search(r"has no array '(.*?)'", str(mistake))
        key = next((key for key, name in named if missing and name == missing[1]), None)
        if key is None:
            raise
        known = [CAUSAL] if key.endswith("mask") else []
        close = difflib.get_close_matches(missing[1].casefold(), known) or ()
        meant = "".join(f'; did you mean "{name}"?' for name in close)
        raise ValueError(f"[data] `{key}`: {mistake}{meant}") from mistake
    heads = None
    if config.checkpoint is not None and config.layer is not None:
        counts = [count for count in architecture.heads if count]
        if len(counts) != 1:
            raise ValueError(f"a `checkpoint` has one layer, but {len(counts)} layers of [architecture] have heads")
        options = {name: getattr(config, name) for name in ("prefix", "layout", "norm_first", "causal")}
        path = folder / config.checkpoint
        heads = checkpoints.read_heads(path, layer=config.layer, heads=counts[0], **options)
    training, test = (_features(config, arrays, architecture, heads, prefix) for prefix in ("", "test_"))
    test_labels = None if config.test_labels is None else arrays[config.test_labels]
    make = bpkr.Data.of_classes if config.classes else bpkr.Data
    # Check the data before the solve instead of after it.
    data = make(training, arrays[config.labels], test, test_labels)
    if infer_outputs:
        columns = np.shape(data.labels)[1:]
        architecture = replace(architecture, outputs=columns[0] if columns else 1)
    return check_data(architecture, data)


def _features(
    config: DataConfig,
    arrays: Mapping[str, np.ndarray],
    architecture: bpkr.Architecture,
    heads: checkpoints.CheckpointHeads | None,
    prefix: str,
) -> ArrayLike | None:
    """Return path features from the file or from inputs. The `prefix` is "test_" for test examples, and else empty."""
    direct, name = getattr(config, f"{prefix}features"), getattr(config, f"{prefix}inputs")
    if direct is not None:
        return arrays[direct]
    if name is None:
        return None
    inputs, maps, mask = arrays[name], getattr(config, f"{prefix}attention"), getattr(config, f"{prefix}mask")
    # A causal mask also fits the inputs of test examples.
    words = as_names(config.mask if mask is None and config.is_causal else mask)
    masks = tuple(word if word == CAUSAL else arrays[word] for word in words)
    real = [part for part in masks if not isinstance(part, str) and part.ndim <= 2]
    others = [part for part in masks if isinstance(part, str) or part.ndim > 2]
    if len(real) > 1 or len(others) > 1:
        raise ValueError(f"[data] `{prefix}mask` may have one array that states which tokens are real, and one mask")
    options: dict[str, Any] = {"layout": config.attention_layout} if others else {}
    options |= {"real_tokens": real[0]} if real else {}
    options |= {"mask": others[0]} if others else {}
    given = config.given("key_query", "query", "key", "query_bias", "key_bias")
    if maps is not None:
        attention: Sequence[ArrayLike] = [arrays[name] for name in as_names(maps)]
    elif heads is not None:
        # `attention` normalises the inputs itself.
        attention = [heads.attention(inputs, **options)]
        inputs = heads.normalise(inputs)
    elif given or any(architecture.heads):
        products = {key: [arrays[array] for array in as_names(getattr(config, key))] for key in given}
        attention = bpkr.attention(inputs, **products, **options)
    else:
        attention = ()
    if (maps is not None or not attention) and others:
        why = f"next to `{prefix}attention`" if attention else "because no layer of [architecture] has heads"
        raise ValueError(f"[data] `{prefix}mask` may only state which tokens are real, {why}")
    of_features: dict[str, Any] = {"real_tokens": real[0]} if real else {}
    of_features |= {} if maps is None else {"layout": config.attention_layout}
    return bpkr.path_features(inputs, attention, architecture, config.readout, **of_features)


def read_arrays(path: Path, names: Sequence[str] | None, of_classes: Sequence[str] = ()) -> Mapping[str, np.ndarray]:
    """Read arrays by name. Arrays must be finite numbers, except those in `of_classes`. None reads all, unchecked."""
    if path.is_dir():
        raise IsADirectoryError(f"the data file {path} is a folder; pass a file in it")
    if not path.exists():
        raise FileNotFoundError(f"there is no data file {path}")
    fills: Mapping[str, Any] = {}
    if path.suffix == ".npz":
        try:
            with np.load(path) as file:
                arrays = {name: file[name] for name in (file.files if names is None else names) if name in file.files}
        except (zipfile.BadZipFile, ValueError) as error:
            raise ValueError(f"{path} cannot be read: {error}") from error
    elif path.suffix in _NETCDF:
        with xr.open_dataset(path, engine="h5netcdf") as dataset:
            variables = {
                name: each.load() for name, each in dataset.variables.items() if names is None or name in names
            }
        arrays = {name: variable.values for name, variable in variables.items()}
        fills = {name: variable.encoding.get("_FillValue") for name, variable in variables.items()}
    else:
        raise ValueError(f"data files must be .npz or netCDF ({', '.join(_NETCDF)}), got {path}")
    for name in names or ():
        if name not in arrays:
            raise ValueError(f"{path} has no array {name!r}")
    for name, array in arrays.items():
        if names is not None and name not in of_classes:
            _check_numbers(array, f"the array {name!r} in {path}", fills.get(name))
    return arrays


def _check_numbers(array: np.ndarray, here: str, fill: Any) -> None:
    """Raise `ValueError` unless all entries of `array` are finite real numbers that were written to the file."""
    if array.dtype.kind in _KINDS:
        raise ValueError(f"{here}, of dtype {array.dtype}, contains {_KINDS[array.dtype.kind]}")
    is_wide = array.dtype.kind == "f" and array.dtype.itemsize >= np.dtype(np.float32).itemsize
    bad = np.argwhere(~np.isfinite(array) | (np.abs(array) == array.dtype.type(_UNWRITTEN) if is_wide else False))
    if len(bad):
        first = tuple(int(i) for i in bad[0])
        missing = "" if fill is None else f", where its _FillValue {fill} marks missing values"
        raise ValueError(
            f"{here} is not finite or was never written in {counted(len(bad), 'entry')}, the first {array[first]} at "
            f"index {first}{missing}: leave these examples out, or correct them"
        )
