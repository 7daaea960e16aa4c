"""How many functions of the package stand between a public function and the generated functions of an action."""

import inspect
import sys
from collections.abc import Callable
from pathlib import Path

import theorykit
from theorykit.codegen import CompiledFunction

_PACKAGE = str(Path(theorykit.__file__).parent)


def deepest_stacks(monkeypatch, *ends: Callable) -> dict[str, list[str]]:
    """By generated function, the deepest stack of the package's functions from its caller out to one of `ends`.

    It fills while solves are traced. A lambda or function inside another counts as that one, and JAX, Equinox and
    Optimistix not at all.
    """
    deepest: dict[str, list[str]] = {}
    codes = [inspect.unwrap(function).__code__ for function in ends]

    def stack() -> list[str]:
        found, frame = [], sys._getframe(2)
        while frame is not None:
            if frame.f_code.co_filename.startswith(_PACKAGE):
                name = f"{frame.f_code.co_filename}:{frame.f_code.co_qualname.split('.<locals>')[0]}"
                found += [name] if not found or found[-1] != name else []
                if frame.f_code in codes:
                    return found
            frame = frame.f_back
        return []

    def recorded(call):
        def recording(self, *values, **arguments):
            deepest[self.program.name] = max(deepest.get(self.program.name, []), stack(), key=len)
            return call(self, *values, **arguments)

        return recording

    for method in ("__call__", "call_from"):
        monkeypatch.setattr(CompiledFunction, method, recorded(getattr(CompiledFunction, method)))
    return deepest
