"""Derived actions in the user's cache, each under a name that says of what structure it is, and what derived it."""

import hashlib
from contextlib import suppress
from functools import cache as remember
from pathlib import Path

import sympy

from ... import __version__, cache
from ...derivation.records import write_records
from ..specification.layer_form import NetworkForm
from .action import Action
from .kept import KINDS, action_text, read_action

_PART = "actions"
# the rooms that take part in a derivation: where their source is another, so may be what is derived
_DERIVES = ("symbolic", "codegen", "derivation", "bpkr/specification", "bpkr/action")


def read_cached(form: NetworkForm) -> Action | None:
    """The action of a network of this form, None where the cache has none that is whole."""
    if not cache.is_enabled():
        return None
    with suppress(ValueError):
        content = cache.read_entry(_PART, _name(form))
        found = None if content is None else read_action(content)
        if found is not None and found.form == form:
            return found
    return None


def write_cached(action: Action) -> None:
    """Keep `action` in the cache, unless it has an expression that cannot be kept."""
    if cache.is_enabled():
        with suppress(ValueError):
            cache.write_entry(_PART, _name(action.form), action_text(action))


def _name(form: NetworkForm) -> str:
    derived_by = {"theorykit": __version__, "sympy": sympy.__version__, "program": _program()}
    return f"{hashlib.sha256(write_records(form, KINDS, derived_by).encode()).hexdigest()[:32]}.json"


@remember
def _program() -> str:
    package = Path(__file__).parents[2]
    sources = [path for room in _DERIVES for path in sorted((package / room).rglob("*.py"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
