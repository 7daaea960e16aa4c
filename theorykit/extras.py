"""Import optional libraries when a feature first uses them."""

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
    "numpyro": "sampling",
    "zarr": "zarr",
}
"""The extra in pyproject.toml that installs each library."""


class MissingLibrary(ImportError):
    """An optional library is not installed."""


def needed(module: str, feature: str) -> ModuleType:
    """Import `module`, or raise `MissingLibrary` with the `feature` that needs its library and how to install it."""
    library = module.partition(".")[0]
    try:
        return import_module(module)
    except ImportError as error:
        # The library is installed but lacks a dependency, which the original error names.
        if (error.name or library).partition(".")[0] != library:
            raise
        raise MissingLibrary(
            f"{feature} needs {library.replace('_', '-')}, which is not installed: in a clone of theorykit, run "
            f"pip install -e '.[{_EXTRAS[library]}]'",
            name=library,
        ) from None


class Lazy:
    """A module that is imported on first use, from a library that `feature` needs."""

    def __init__(self, module: str, feature: str):
        self._module, self._feature = module, feature

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(needed(self._module, self._feature), name)
