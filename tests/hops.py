"""Count the package's functions between a public function and the generated functions of an action."""

import inspect
import sys
from collections.abc import Callable
from pathlib import Path

import theorykit
from theorykit.codegen import CompiledFunction

_PACKAGE = str(Path(theorykit.__file__).parent)


def deepest_stacks(monkeypatch, *ends: Callable) -> dict[str, list[str]]:
    """Return, per generated function, the deepest stack of the package's functions from its caller to one of `ends`.

    The result fills while solves are traced. A nested function or lambda counts as the function around it. Functions
    of JAX, Equinox and Optimistix do not count.
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
