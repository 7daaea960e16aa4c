"""Libraries that only some features need, imported when they are used."""

from importlib import import_module
from types import ModuleType
from typing import Any

_EXTRAS = {
    "arviz_base": "sampling",
    "arviz_stats": "sampling",
    "dask": "cluster",
    "distributed": "cluster",
    "h5netcdf": "files",
    "h5py": "files",
    "hypothesis": "testing",
    "matplotlib": "plots",
    "msgspec": "cli",
    "numpyro": "sampling",
    "optax": "training",
    "safetensors": "checkpoints",
    "tyro": "cli",
    "zarr": "zarr",
}
"""The extra of pyproject.toml that brings a library."""


class MissingLibrary(ImportError):
    """A library of an extra is not installed."""


def needed(module: str, feature: str) -> ModuleType:
    """Import `module`, of a library that `feature` needs; `MissingLibrary` says how to install one that is missing."""
    library = module.partition(".")[0]
    try:
        return import_module(module)
    except ImportError as error:
        # a library that is there, but lacks another one, says so itself
        if (error.name or library).partition(".")[0] != library:
            raise
        raise MissingLibrary(
            f"{feature} needs {library.replace('_', '-')}, which is not installed: in a clone of theorykit, "
            f"pip install -e '.[{_EXTRAS[library]}]'",
            name=library,
        ) from None


class Lazy:
    """A module of a library that `feature` needs, imported when it is first used."""

    def __init__(self, module: str, feature: str):
        self._module, self._feature = module, feature

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(needed(self._module, self._feature), name)
