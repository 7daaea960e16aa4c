"""Results and runs on disk: files that are whole or not there, and runs known by what determines them."""

from .files import read, refuse_to_overwrite, replacing, write, write_document, write_source, write_text
from .outputs import FOLDER, Output, check_outputs, remove_kept
from .runs import (
    fingerprint,
    fingerprints,
    key_text,
    read_arrays,
    refuse_difference,
    resumed,
    write_arrays,
)

__all__ = [
    "FOLDER",
    "Output",
    "check_outputs",
    "fingerprint",
    "fingerprints",
    "key_text",
    "read",
    "read_arrays",
    "refuse_difference",
    "refuse_to_overwrite",
    "remove_kept",
    "replacing",
    "resumed",
    "write",
    "write_arrays",
    "write_document",
    "write_source",
    "write_text",
]
