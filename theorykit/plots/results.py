"""Check labelled results that are passed to drawing functions."""

import functools
from collections.abc import Callable
from typing import TypeVar, get_type_hints

from ..checks import checked_arguments

Function = TypeVar("Function", bound=Callable)


def draws_results(function: Function) -> Function:
    """Decorate `function` so that it checks types of arguments, and names what is missing in a result."""
    checked = checked_arguments(function)
    parameters = {name: kind for name, kind in get_type_hints(function).items() if name != "return"}
    results = [name for name, kind in parameters.items() if "xarray" in getattr(kind, "__module__", "")]

    @functools.wraps(function)
    def drawn(*arguments, **keywords):
        try:
            return checked(*arguments, **keywords)
        except (KeyError, AttributeError, ValueError) as missing:
            reason = str(missing.args[0]).partition("\n")[0]
            if isinstance(missing, ValueError) and any(name in reason for name in parameters):
                raise
            what = f"{' or '.join(results)} is not a result that {function.__name__} can draw"
            raise ValueError(f"{what}: {reason}") from missing

    return drawn
