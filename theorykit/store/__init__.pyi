from .description import describe
from .files import read, refuse_to_overwrite, replacing, write, write_document, write_source, write_text
from .outputs import FOLDER, Output, check_outputs, remove_kept
from .runs import (
    as_text,
    differences,
    fingerprint,
    keep,
    leaf_arrays,
    read_arrays,
    read_kept,
    refuse_unknown,
    resume,
    settings_of,
    tree_like,
    write_arrays,
)

__all__ = [
    "FOLDER",
    "Output",
    "as_text",
    "check_outputs",
    "describe",
    "differences",
    "fingerprint",
    "keep",
    "leaf_arrays",
    "read",
    "read_arrays",
    "read_kept",
    "refuse_to_overwrite",
    "refuse_unknown",
    "remove_kept",
    "replacing",
    "resume",
    "settings_of",
    "tree_like",
    "write",
    "write_arrays",
    "write_document",
    "write_source",
    "write_text",
]
