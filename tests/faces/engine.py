"""Every public callable of a face of the package, tried with mistaken arguments one at a time.

A face is a module with `__all__`. Each of its functions, class constructors and public methods is called with a right
value for every parameter but one, which is a mistake. It must raise `TypeError` or `ValueError` that names the
parameter, in one line. A public callable or a parameter that the description of its face says nothing of fails too.

The description of a face is `FACE` in `<name>_face.py` of this folder, which `test_faces` finds by itself.
"""

import contextlib
import dataclasses
import enum
import functools
import importlib
import inspect
import io
import pkgutil
import re
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from theorykit.dynamics import NoCycleError

from .values import MISTAKES, Kind


@dataclass(frozen=True)
class Face:
    """What the parameters of the public callables of `module` are: those in its `__all__`, or of all its modules.

    - `kinds`: of every parameter by its name, or by "callable.parameter" where callables differ.
    - `instances`: for each class with public methods, a function that makes an object of it.
    - `records`: classes, by name, whose constructor is not tried, each with the reason.
    - `untried`: "callable" or "callable.parameter" that is not tried, each with the reason.
    - `examples`: callables that even the slow test does not call with right arguments, each with the reason.
    - `any_precision`: callables that compute in the precision of what they are given, each with the reason.
    - `belonging`: callables whose arguments belong together, so that one with other numbers is refused, each with why.
    - `given`: the parameters that a callable's example needs beside those without a default.
    - `compiled`: callables that need not refuse numbers in compiled code, each with the reason.
    """

    module: types.ModuleType
    kinds: Mapping[str, Kind]
    instances: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    records: Mapping[str, str] = field(default_factory=dict)
    untried: Mapping[str, str] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)
    any_precision: Mapping[str, str] = field(default_factory=dict)
    belonging: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    compiled: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """What came of the trial: how many calls were made, and what is wrong, in words."""

    calls: int
    failures: tuple[str, ...]


def public_callables(face: Face) -> Iterator[tuple[str, Callable[[], Callable]]]:
    """Each public callable of a face by name, and a function that makes it ready to be called."""
    yield from _of_module(face, face.module, "")


def _of_module(face: Face, module: types.ModuleType, prefix: str) -> Iterator[tuple[str, Callable[[], Callable]]]:
    for name in public_names(module):
        value = getattr(module, name)
        if isinstance(value, types.ModuleType):
            yield from _of_module(face, value, f"{prefix}{name}.")
        elif inspect.isclass(value):
            yield from _of_class(face, value, f"{prefix}{name}")
        elif callable(value) and hasattr(value, "__module__") and not _is_type_alias(value):
            yield f"{prefix}{name}", functools.partial(_itself, value)


def public_names(module: types.ModuleType) -> list[str]:
    """What `__all__` lists; without it, the modules of a package, or what a module defines itself."""
    if hasattr(module, "__all__"):
        return module.__all__
    if hasattr(module, "__path__"):
        names = [found.name for found in pkgutil.iter_modules(module.__path__)]
        for name in names:
            importlib.import_module(f"{module.__name__}.{name}")
        return names
    names = [name for name in vars(module) if not name.startswith("_")]
    return [name for name in names if getattr(getattr(module, name), "__module__", None) == module.__name__]


def _of_class(face: Face, cls: type, name: str) -> Iterator[tuple[str, Callable[[], Callable]]]:
    if issubclass(cls, (BaseException, enum.Enum)) or getattr(cls, "_is_protocol", False):
        return
    if not inspect.isabstract(cls) and name not in face.records:
        yield name, functools.partial(_itself, cls)
    for method, static in inspect.getmembers_static(cls):
        # what is called unchecked is for compiled loops, which have checked before
        public = not method.startswith(("_", "unchecked")) or method == "__call__"
        if not public or not _is_ours(cls, method):
            continue
        if isinstance(static, (classmethod, staticmethod)):
            yield f"{name}.{method}", functools.partial(getattr, cls, method)
        elif callable(static) and not inspect.isclass(static) and len(inspect.signature(static).parameters) > 1:
            yield f"{name}.{method}", functools.partial(_method, face, name, method)


def _itself(value):
    return value


def _method(face: Face, cls: str, method: str) -> Callable:
    if cls not in face.instances:
        raise LookupError(f"{cls} has the public method {method}, and the face gives no instance of {cls}")
    return getattr(_instance(face.instances[cls]), method)


@functools.cache
def _instance(make: Callable[[], Any]) -> Any:
    return make()


def _is_ours(cls: type, method: str) -> bool:
    """Whether the method is written in the package, not inherited from another or made by a dataclass."""
    owner = next(base for base in cls.__mro__ if method in vars(base))
    return owner.__module__.startswith("theorykit")


def _is_type_alias(value: Any) -> bool:
    return not isinstance(value, types.FunctionType) and type(value).__module__ in ("typing", "types", "jaxtyping")


def try_face(face: Face) -> Report:
    """Every public callable of `face`, with every mistake for every parameter."""
    calls, failures = 0, []
    for name, make in public_callables(face):
        if name in face.untried:
            continue
        try:
            function = make()
            parameters = parameters_of(function, name, face)
        except LookupError as missing:
            failures.append(str(missing.args[0]))
            continue
        for parameter, kind in parameters.items():
            if f"{name}.{parameter}" in face.untried:
                continue
            for mistake, value in mistakes_for(function, parameter, kind):
                calls += 1
                if complaint := _complaint(function, name, parameters, face, parameter, value):
                    failures.append(f"{name}({parameter}={mistake}): {complaint}")
    return Report(calls, tuple(failures))


def parameters_of(function: Callable, name: str, face: Face) -> Mapping[str, Kind]:
    """The kind of each parameter of `function`."""
    found = {}
    for parameter in inspect.signature(function).parameters.values():
        kind = face.kinds.get(f"{name}.{parameter.name}") or face.kinds.get(parameter.name)
        if kind is None:
            raise LookupError(f"{name}: the face says nothing of its parameter {parameter.name}")
        found[parameter.name] = kind
    return found


def mistakes_for(function: Callable, parameter: str, kind: Kind) -> Iterator[tuple[str, Any]]:
    """The values, by name, that `function` must refuse for `parameter`."""
    default = inspect.signature(function).parameters[parameter].default
    for name, value in MISTAKES.items():
        is_default = value is default or (type(value) is type(default) and value == default)
        if name not in kind.admits and not is_default:
            yield name, value
    yield from ((name, value) for name, value in kind.also().items() if name not in kind.admits)


def arguments_of(
    function: Callable, name: str, parameters: Mapping[str, Kind], face: Face, replaced: Mapping[str, Any]
):
    """Positional and keyword arguments of an example call, those in `replaced` instead of the right ones."""
    positional, keywords = [], {}
    described = inspect.signature(function).parameters.values()
    # what stands before any number of arguments cannot be given by name
    by_place = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in described)
    for parameter in described:
        needed = parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        )
        if not (needed or parameter.name in replaced or parameter.name in face.given.get(name, ())):
            continue
        value = replaced.get(parameter.name, _MISSING)
        value = _instance(parameters[parameter.name].example) if value is _MISSING else value
        before_others = by_place and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        if before_others or parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            positional.append(value)
        else:
            keywords[parameter.name] = value
    return positional, keywords


_MISSING = object()


def _complaint(function, name, parameters, face, parameter, value) -> str | None:
    """What is wrong with how the call goes; None if it is refused as it should be."""
    positional, keywords = arguments_of(function, name, parameters, face, {parameter: value})
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            result = function(*positional, **keywords)
            if inspect.isgenerator(result):
                list(result)
        except (TypeError, ValueError) as error:
            return _unnamed(str(error), parameter, parameters[parameter])
        except Exception as error:
            return f"{type(error).__name__}: {_first_line(str(error))}"
    return f"taken, and returns {type(result).__name__}"


def _unnamed(message: str, parameter: str, kind: Kind) -> str | None:
    named = any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", message) for word in (parameter, *kind.called))
    return None if named and "\n" not in message.strip() else f"the error does not name it: {_first_line(message)}"


def _first_line(message: str) -> str:
    return message.strip().splitlines()[0][:160] if message.strip() else "without a message"


def example_calls(face: Face) -> Iterator[tuple[str, Callable, list[Any], dict[str, Any]]]:
    """Each public callable of `face` by name, with right arguments."""
    for name, make in public_callables(face):
        if name not in face.untried and name not in face.examples:
            function = make()
            yield name, function, *arguments_of(function, name, parameters_of(function, name, face), face, {})


def try_examples(face: Face) -> Report:
    """Every public callable of `face` with right arguments: none may fail."""
    calls, failures = 0, []
    for name, function, positional, keywords in example_calls(face):
        calls += 1
        try:
            function(*positional, **keywords)
        except Exception as error:
            failures.append(f"{name}: {type(error).__name__}: {_first_line(str(error))}")
    return Report(calls, tuple(failures))


def try_single_precision(face: Face) -> Report:
    """Every public callable of `face` without x64: refused for it, or still right in double precision."""
    ready = list(example_calls(face))
    jax.config.update("jax_enable_x64", False)
    try:
        failures = [
            f"{name}: {failure}"
            for name, function, positional, keywords in ready
            if (failure := _failure_in_single_precision(function, positional, keywords, name in face.any_precision))
        ]
    finally:
        jax.config.update("jax_enable_x64", True)
    return Report(len(ready), tuple(failures))


def _failure_in_single_precision(function, positional, keywords, may_be_single) -> str:
    try:
        result = function(*positional, **keywords)
    except RuntimeError as error:
        return "" if "float64" in str(error) else _first_line(str(error))
    except Exception as error:
        return f"{type(error).__name__}: {_first_line(str(error))}"
    kinds = {str(leaf.dtype) for leaf in jax.tree.leaves(result) if hasattr(leaf, "dtype")}
    return f"returns {sorted(kinds)}" if kinds & {"float32", "complex64"} and not may_be_single else ""


def try_other_numbers(face: Face, only: tuple[str, ...] = ()) -> Report:
    """Every public callable of `face`, or those named `only`, twice: nothing is compiled for other numbers anew.

    Of those that refuse the other numbers, such as weights that are no signs any more, nothing is asked.
    """
    calls, failures, compiled = 0, [], []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if event.endswith("backend_compile_duration") else None
    )
    for name, function, positional, keywords in example_calls(face):
        if (only and name not in only) or name in face.belonging:
            continue
        calls += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _wait_for(function(*positional, **keywords))
            others = {key: other_numbers(value) for key, value in keywords.items()}
            compiled.clear()
            try:
                _wait_for(function(*other_numbers(positional), **others))
            except (ValueError, OSError, NoCycleError):
                continue
        if compiled:
            failures.append(f"{name}: {len(compiled)} compilations for other numbers")
    return Report(calls, tuple(failures))


def _wait_for(result: Any) -> None:
    """Until all of `result` is computed; the keys of its dictionaries may be symbols, which cannot be put in order."""
    parts = jax.tree.leaves(result, is_leaf=lambda part: isinstance(part, Mapping))
    jax.block_until_ready([list(part.values()) if isinstance(part, Mapping) else part for part in parts])


def other_numbers(value: Any) -> Any:
    """`value` with every number that is not whole, and every entry of its arrays, a little larger."""

    def larger(leaf):
        if isinstance(leaf, float):
            return leaf if leaf.is_integer() else 1.0625 * leaf
        is_float = isinstance(leaf, (np.ndarray, jax.Array)) and np.issubdtype(np.asarray(leaf).dtype, np.floating)
        return 1.0625 * leaf if is_float else leaf

    def is_by_symbol(node):
        # JAX sorts keys, which symbols cannot be
        return isinstance(node, Mapping) and not all(isinstance(key, str) for key in node)

    return jax.tree.map(lambda leaf: leaf if _is_key(leaf) else larger(leaf), value, is_leaf=is_by_symbol)


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def try_compiled(face: Face, only: tuple[str, ...] = ()) -> Report:
    """Every public callable of `face`, or those named `only`, under jit and under jit of vmap.

    Numbers that are refused eagerly must be refused there. Callables that cannot be compiled with a parameter traced,
    which the right value shows, are not asked.
    """
    calls, failures = 0, []
    for name, make in public_callables(face):
        if name in face.untried or name in face.compiled or (only and name not in only):
            continue
        function = make()
        parameters = parameters_of(function, name, face)
        for parameter, kind in parameters.items():
            if f"{name}.{parameter}" in face.untried:
                continue
            mistakes = dict(_numeric_mistakes(function, parameter, kind))
            if not mistakes:
                continue
            right, rebuild = _numbers_of(_instance(kind.example))

            def call(numbers, name=name, function=function, parameter=parameter, rebuild=rebuild, known=parameters):
                given, keywords = arguments_of(function, name, known, face, {parameter: rebuild(numbers)})
                return _arrays_in(function(*given, **keywords))

            for words, one in (("jit", jax.jit(call)), ("vmap", jax.jit(jax.vmap(call)))):
                batch = words == "vmap"
                if not _compiles(one, _stacked(right, right) if batch else right):
                    continue
                for mistake, wrong in mistakes.items():
                    if not _is_refused(call, wrong):
                        continue  # of another shape than the other arguments, say
                    calls += 1
                    if not _is_refused(one, _stacked(right, wrong) if batch else wrong):
                        failures.append(f"{words} of {name}({parameter}={mistake}): taken")
    return Report(calls, tuple(failures))


def _numeric_mistakes(function, parameter: str, kind: Kind) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Mistakes that are numbers in the places of the numbers of the right value."""
    found = _numbers_of(_instance(kind.example))
    if found is None:
        return
    right, _ = found
    for mistake, value in mistakes_for(function, parameter, kind):
        wrong = _numbers_of(value)
        if wrong is None or [each.shape for each in wrong[0]] != [each.shape for each in right]:
            continue
        if wrong[1](right) is None or _structure(wrong[1](right)) != _structure(found[1](right)):
            continue
        yield mistake, wrong[0]


def _numbers_of(value: Any) -> tuple[list[np.ndarray], Callable[[Any], Any]] | None:
    """The numbers in a value as arrays, and a function that puts others in their place; None if there are others."""
    if isinstance(value, Mapping):
        keys = list(value)
        found = _numbers_of([value[key] for key in keys])
        return None if found is None else (found[0], lambda numbers: dict(zip(keys, found[1](numbers), strict=True)))
    try:
        leaves, structure = jax.tree.flatten(value)
        arrays = [np.asarray(leaf) for leaf in leaves if not (isinstance(leaf, np.ma.MaskedArray) or _is_key(leaf))]
    except Exception:
        return None
    if not arrays or len(arrays) != len(leaves) or any(array.dtype.kind not in "fiuc" for array in arrays):
        return None
    return arrays, lambda numbers: jax.tree.unflatten(structure, numbers)


def _structure(value: Any) -> Any:
    """The structure of a tree, of mappings by symbol by the names of these."""
    if isinstance(value, Mapping):
        return [(getattr(key, "name", key), _structure(entry)) for key, entry in value.items()]
    return jax.tree.structure(value)


def _stacked(right: list[np.ndarray], wrong: list[np.ndarray]) -> list[np.ndarray]:
    return [np.stack([one.astype(other.dtype), other]) for one, other in zip(right, wrong, strict=True)]


def _arrays_in(result: Any) -> list[Any]:
    leaves = jax.tree.leaves(result, is_leaf=lambda node: isinstance(node, Mapping))
    entries = [entry for leaf in leaves for entry in (leaf.values() if isinstance(leaf, Mapping) else (leaf,))]
    return [entry for entry in jax.tree.leaves(entries) if isinstance(entry, (jax.Array, jax.core.Tracer))]


def _compiles(function: Callable, numbers: list[np.ndarray]) -> bool:
    """Whether the right numbers go through, and something is returned that depends on them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return bool(jax.block_until_ready(function(numbers)))
        except Exception:
            return False


def _is_refused(function: Callable, numbers: list[np.ndarray]) -> bool:
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            jax.block_until_ready(function(numbers))
        except (TypeError, ValueError, RuntimeError):
            return True
    return False


def as_dictionary(report: Report) -> Mapping[str, Any]:
    """For JSON."""
    return dataclasses.asdict(report)
