"""Checkpoint files as mappings from names to arrays, each of which is loaded when it is asked for."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..checks import checked_path, shown
from . import npz_files, safetensors_files
from .json_objects import read_object
from .npz_files import ArchivedArray
from .safetensors_files import SafetensorsArray

_INDEX = ".safetensors.index.json"
_SAVED = "model.safetensors"
_PART = re.compile(r"(?P<name>.*)-(?P<number>\d+)-of-(?P<count>\d+)\.safetensors")
_PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".bin.index.json")
_INSTEAD = (
    "pickles can run any code and are not read: load it where you trust it, and save the arrays by "
    "safetensors.torch.save_file(model.state_dict(), 'model.safetensors')"
)


@dataclass(frozen=True)
class Checkpoint(Mapping):
    """The arrays of the checkpoint file `path` by name; each is loaded anew whenever it is asked for.

    What `read_checkpoint` returns. Only the file's headers are in memory.
    """

    path: Path
    stored: Mapping[str, SafetensorsArray | ArchivedArray]

    def __getitem__(self, name: str) -> np.ndarray:
        """The array `name`, in its type in the file; bfloat16 as float32."""
        if name not in self.stored:
            raise KeyError(f"{self.path} has no array {shown(name)}")
        return self.stored[name].read()

    def __contains__(self, name: object) -> bool:
        return name in self.stored

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.path)!r}, {len(self)} arrays)"

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of the array `name`, which is not loaded for it."""
        if not isinstance(name, str) or name not in self.stored:
            raise ValueError(f"name must be one of the arrays in {self.path}, got {shown(name)}")
        return self.stored[name].shape


def read_checkpoint(path: str | Path) -> Checkpoint:
    """The arrays in a checkpoint file: `.safetensors`, the `.safetensors.index.json` of a file in parts, or `.npz`.

    A folder, as `save_pretrained` writes it, stands for the checkpoint in it, `model.safetensors` or its index.

    Nothing is loaded but the header, which is checked against the file; an array is loaded when it is asked for by its
    name. Nothing is ever unpickled.

    Raises `FileNotFoundError` where there is no file, and `ValueError`, in one line that names it, for a damaged file,
    one of another format, and pickles, which `torch.save` writes.
    """
    path = checked_path("path", path)
    path = _in_folder(path) if path.is_dir() else path
    if path.name.endswith(_PICKLES):
        raise ValueError(f"{path} is a pickle by its ending; {_INSTEAD}")
    _check_is_file(path)
    if path.name.endswith(_INDEX):
        return Checkpoint(path, _in_parts(path))
    if path.suffix == ".safetensors":
        return Checkpoint(path, safetensors_files.find_arrays(path))
    if path.suffix == ".npz":
        return Checkpoint(path, npz_files.find_arrays(path))
    raise ValueError(f"{path} ends in none of .safetensors, {_INDEX} and .npz, the checkpoints that can be read")


def _in_folder(folder: Path) -> Path:
    """The checkpoint that `save_pretrained` wrote into a folder."""
    for name in (_SAVED, f"model{_INDEX}"):
        if (folder / name).is_file():
            return folder / name
    names = sorted(path.name for path in folder.iterdir())
    if any(name.startswith("adapter_") for name in names):
        raise ValueError(f"{folder} has an adapter, and no model: merge it into its model, and save that")
    pickles = [name for name in names if name.endswith(_PICKLES)]
    if pickles:
        raise ValueError(f"{folder} has {pickles[0]}, a pickle by its ending, and no {_SAVED}; {_INSTEAD}")
    raise ValueError(f"{folder} is a folder without {_SAVED} or its index: give the checkpoint in it")


def refuse_part(path: Path) -> None:
    """Raise `ValueError` for one of several files that a checkpoint was divided into."""
    if (part := _PART.fullmatch(path.name)) and int(part["count"]) > 1:
        raise ValueError(
            f"{path} is part {int(part['number'])} of {int(part['count'])} of a checkpoint, whose layers may be in "
            f"several of them: give {part['name']}{_INDEX}, or the folder"
        )


def _check_is_file(path: Path) -> None:
    if not path.exists():
        raise FileNotFoundError(f"there is no checkpoint {path}")
    if not path.is_file():
        raise ValueError(f"{path} is no regular file")


def _in_parts(path: Path) -> Mapping[str, SafetensorsArray]:
    """The arrays of a checkpoint in several files beside its index."""
    places = read_object(path, "the index of a checkpoint").get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(each, str) for each in places.values()):
        raise ValueError(f"{path} is no index of a checkpoint: it has no weight_map from names of arrays to files")
    parts = {}
    for file in sorted(set(places.values())):
        # an index that someone else wrote may not choose which files are read
        if Path(file).name != file or "\0" in file or not file.endswith(".safetensors"):
            raise ValueError(f"{path} names {shown(file)}, which is no safetensors file beside it")
        part = path.parent / file
        if not part.is_file():
            raise FileNotFoundError(f"{path} names {part}, which is not there")
        parts[file] = safetensors_files.find_arrays(part)
    for name, file in places.items():
        if name not in parts[file]:
            raise ValueError(f"{path} says that {shown(name)} is in {file}, which does not have it")
    return {name: parts[file][name] for name, file in places.items()}
