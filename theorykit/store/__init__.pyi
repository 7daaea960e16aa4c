# ruff: noqa: F401
from .description import describe
from .files import FOLDER, Output, check_outputs, read, remove_kept, write, write_document, write_source, write_text
from .runs import (
    CHECKPOINT_SECONDS,
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

__all__ = ["read", "write", "write_document", "write_source", "write_text"]
