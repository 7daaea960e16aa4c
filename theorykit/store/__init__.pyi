from .description import describe
from .files import read, refuse_to_overwrite, replacing, write, write_document, write_source, write_text
from .outputs import FOLDER, Output, check_outputs, remove_kept
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
    "FOLDER",
    "Output",
    "as_text",
    "check_outputs",
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
    "remove_kept",
    "replacing",
    "resumed",
    "settings_of",
    "write",
    "write_arrays",
    "write_document",
    "write_source",
    "write_text",
]
