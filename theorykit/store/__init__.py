"""Results and runs on disk: files that are whole or not there, and runs known by what determines them."""

from .description import describe
from .files import read, refuse_to_overwrite, replacing, write, write_document, write_text
from .runs import (
    as_text,
    differences,
    keep,
    kept,
    read_arrays,
    read_kept,
    refuse_difference,
    refuse_unknown,
    resumed,
    settings_of,
    write_arrays,
)

__all__ = [
    "as_text",
    "describe",
    "differences",
    "keep",
    "kept",
    "read",
    "read_arrays",
    "read_kept",
    "refuse_difference",
    "refuse_to_overwrite",
    "refuse_unknown",
    "replacing",
    "resumed",
    "settings_of",
    "write",
    "write_arrays",
    "write_document",
    "write_text",
]
