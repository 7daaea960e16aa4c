"""Actions that are kept: written as text, with every step of their derivation, and read again.

A file is JSON and a last line with the sum of what is before it. It says in which version of this format it is written,
and which version of the derivation led to it; one of another version is refused, as a damaged one is. Reading it runs
nothing that it says: it names expressions and records of the kinds that are listed here and in
`symbolic.documents.table`.
"""

import json
from pathlib import Path

import sympy

from ... import __version__, atomic_files
from ...checks import checked_arguments, shown
from ...derivation.records import RECORDS, read_records, write_records
from ..specification.activations import Activation
from ..specification.layer_form import LayerForm, NetworkForm
from ..specification.layers import LayerSymbols
from .action import Action, Predictor
from .symbols import ActionSymbols

# of how the file is written
FORMAT = 2
# raised whenever `derive` comes to other expressions, or by other steps, for an architecture that it has derived before
DERIVATION = 1
KINDS = (Action, ActionSymbols, Activation, LayerForm, LayerSymbols, NetworkForm, Predictor, *RECORDS)
_KIND = "an action of theorykit"


@checked_arguments
def save_action(action: Action, path: Path, overwrite: bool = False) -> None:
    """Keep `action`, with every step that led to it, as text in the file `path`; `load_action` reads it.

    Raises `ValueError` for an expression of a kind that there is no text of, naming it; `FileExistsError` if there is
    a file, unless it is one that theorykit wrote and `overwrite` is said.
    """
    atomic_files.write(action_text(action), path, overwrite=overwrite)


@checked_arguments
def load_action(path: Path) -> Action:
    """The action that `save_action` left in `path`: equal to the derived one, expression by expression.

    `action.derivation.verify()` checks every step again. Raises `ValueError`, naming the file and the cause, for one
    that is damaged, is something else, or was written by another version of the format or of the derivation.
    """
    try:
        return read_action(path.read_bytes())
    except FileNotFoundError as error:
        raise FileNotFoundError(f"there is no file {path}") from error
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise ValueError(f"{path} {error}") from error


def action_text(action: Action) -> bytes:
    """The content of a file with `action`."""
    written_with = {"theorykit": __version__, "sympy": sympy.__version__}
    heading = {"kind": _KIND, "format": FORMAT, "derivation": DERIVATION, "written with": written_with}
    return atomic_files.with_sum(write_records(action, KINDS, heading).encode())


def read_action(content: bytes) -> Action:
    """The action in the content of a file; `ValueError` says what the file is instead."""
    if atomic_files.is_damaged(content):
        raise ValueError("is damaged: its content has another sum than its last line says")
    if not atomic_files.is_whole(content):
        raise ValueError(
            "is no file that save_action wrote, or it is cut short: its last line is not the sum of the others"
        )
    try:
        document, _ = json.JSONDecoder().raw_decode(content.decode())
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("kind") != _KIND:
        raise ValueError("holds no action, but another result of theorykit")
    for name, ours in (("format", FORMAT), ("derivation", DERIVATION)):
        if document.get(name) != ours:
            written_with = document.get("written with")
            version = written_with.get("theorykit") if isinstance(written_with, dict) else None
            origin = f" (it is of theorykit {version})" if isinstance(version, str) else ""
            raise ValueError(
                f"was written by version {shown(document.get(name))} of the {name}, and this theorykit has version "
                f"{ours}: derive the action again{origin}"
            )
    try:
        found = read_records(document, KINDS)
    except ValueError as error:
        raise ValueError(f"is damaged: {error}") from error
    if not isinstance(found, Action):
        raise ValueError(f"is damaged: it holds {shown(found)} where the action should be")
    return found
