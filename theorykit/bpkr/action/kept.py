"""Saved actions: text files with every step of the derivation.

A file is JSON, with a checksum in its last line. Reading raises an error if the file is damaged, or has another version
of the format or of the derivation. Reading never runs code from a file: a file can only name expressions and records of
the kinds listed here and in `symbolic.documents.table`. Derived actions are also cached per user. The name of a cache
file is a hash of the structure and of the program that derived the action.
"""

import hashlib
import json
from contextlib import suppress
from functools import cache as remember
from pathlib import Path

import sympy

from ... import __version__, atomic_files, cache
from ...checks import checked_arguments, shown
from ...derivation.records import RECORDS, read_records, write_records
from ..specification.activations import Activation
from ..specification.layer_form import LayerForm, NetworkForm
from ..specification.layers import LayerSymbols
from .action import Action, Predictor
from .symbols import ActionSymbols

# Version of the file format.
FORMAT = 2
# Increase this whenever a change of `derive` changes the expressions or steps of an architecture.
DERIVATION = 2
KINDS = (Action, ActionSymbols, Activation, LayerForm, LayerSymbols, NetworkForm, Predictor, *RECORDS)
_KIND = "an action of theorykit"
_PART = "actions"
# Packages that take part in a derivation. A change of their source invalidates the cache.
_DERIVES = ("symbolic", "codegen", "derivation", "bpkr/specification", "bpkr/action")


@checked_arguments
def save_action(action: Action, path: Path, overwrite: bool = False) -> None:
    """Save an action, with every step of its derivation, as a text file. `load_action` reads the file.

    Args:
        action: the action to save.
        path: the file to write.
        overwrite: replace the file if it exists and theorykit wrote it.

    Raises:
        ValueError: an expression has no text form.
        FileExistsError: the file exists, and `overwrite` is false or theorykit did not write the file.
    """
    atomic_files.write(action_text(action), path, overwrite=overwrite)


@checked_arguments
def load_action(path: Path) -> Action:
    """Load an action that `save_action` wrote to `path`. It equals the saved action, expression by expression.

    `action.derivation.verify()` checks every step again.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, is not a saved action, or was written by an incompatible version.
    """
    try:
        return read_action(path.read_bytes())
    except FileNotFoundError as error:
        raise FileNotFoundError(f"the file {path} does not exist") from error
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise ValueError(f"{path} {error}") from error


def action_text(action: Action) -> bytes:
    """Return the content of a file with `action`."""
    written_with = {"theorykit": __version__, "sympy": sympy.__version__}
    heading = {"kind": _KIND, "format": FORMAT, "derivation": DERIVATION, "written with": written_with}
    return atomic_files.with_sum(write_records(action, KINDS, heading).encode())


def read_action(content: bytes) -> Action:
    """Read the action from the content of a file; raise `ValueError` with the reason if it is not an action."""
    if atomic_files.is_damaged(content):
        raise ValueError("is damaged: the checksum of its content differs from the checksum in its last line")
    if not atomic_files.is_whole(content):
        raise ValueError(
            "is not a file from save_action, or is truncated: its last line is not a checksum of the lines before it"
        )
    try:
        document, _ = json.JSONDecoder().raw_decode(content.decode())
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("kind") != _KIND:
        raise ValueError("does not contain an action, but another result of theorykit")
    for name, ours in (("format", FORMAT), ("derivation", DERIVATION)):
        if document.get(name) != ours:
            raise ValueError(
                f"was written with {shown(document.get('written with'))} by version {shown(document.get(name))} of the "
                f"{name}, but this theorykit reads version {ours}; derive the action again"
            )
    try:
        found = read_records(document, KINDS)
    except ValueError as error:
        raise ValueError(f"is damaged: {error}") from error
    if not isinstance(found, Action):
        raise ValueError(f"is damaged: it contains {shown(found)} instead of an action")
    return found


def read_cached(form: NetworkForm) -> Action | None:
    """Read the action of a network of this form from the cache; return None if there is no valid entry."""
    if not cache.is_enabled():
        return None
    with suppress(ValueError):
        content = cache.read_entry(_PART, name_of(form))
        found = None if content is None else read_action(content)
        if found is not None and found.form == form:
            return found
    return None


def write_cached(action: Action) -> None:
    """Write `action` to the cache, unless one of its expressions cannot be saved."""
    if cache.is_enabled():
        with suppress(ValueError):
            cache.write_entry(_PART, name_of(action.form), action_text(action))


def name_of(form: NetworkForm) -> str:
    """Return the name of a network's action in the cache; raise `ValueError` if an expression has no text form."""
    derived_by = {"theorykit": __version__, "sympy": sympy.__version__, "program": _program()}
    return f"{hashlib.sha256(write_records(form, KINDS, derived_by).encode()).hexdigest()[:32]}.json"


@remember
def _program() -> str:
    package = Path(__file__).parents[2]
    sources = [path for room in _DERIVES for path in sorted((package / room).rglob("*.py"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
