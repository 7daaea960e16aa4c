"""Call every public callable of a package with one mistaken argument at a time.

Each function, class constructor and public method gets a valid value for every parameter except one. The call must
raise a `TypeError` or `ValueError` that names the parameter, in one line. A parameter also fails if neither its
annotation nor the package's table gives a valid value. The table is `FACE` in `<package>_face.py` in this folder.
"""

import contextlib
import enum
import functools
import importlib
import inspect
import io
import pkgutil
import re
import types
import typing
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr

from tests.displays import MISCOUNTED, display_complaint
from theorykit.dynamics import NoCycleError

from .values import MISTAKES, Kind, annotated_kind, kind_of


def _by_name(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for names, value in table.items() for name in names.split()}


@dataclass(frozen=True)
class Face:
    """The table of a package: valid values that the annotations of its public callables do not give.

    Names that share an entry are separated by spaces. Callables have their names in the module, such as "Architecture"
    or "Network.outputs", and parameters are written as "Architecture.layers".

    - `kinds`: a `Kind` or a valid value per parameter name, or per "callable.parameter" if callables differ.
    - `instances`: for each class with public methods, an instance or a function that makes one.
    - `made`: classes that only the package constructs; their constructors are not called.
    - `given`: the parameters that a callable's example needs in addition to those without a default.

    The other tables list exceptions, with the reason as value:

    - `untried`: callables or parameters that are skipped; "Newton.*" means all methods of Newton.
    - `known`: mistakes that are accepted because of a known defect, such as "Action(scale=0)".
    - `examples`: callables that are not called with valid arguments.
    - `any_precision`: callables that compute in the precision of their arguments.
    - `belonging`: callables whose arguments depend on each other, so that changed numbers are refused.
    - `compiled`: callables that need not refuse numbers in compiled code.
    """

    module: types.ModuleType
    kinds: Mapping[str, Any]
    instances: Mapping[str, Any] = field(default_factory=dict)
    made: str = ""
    given: Mapping[str, Collection[str]] = field(default_factory=dict)
    untried: Mapping[str, str] = field(default_factory=dict)
    known: Mapping[str, str] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)
    any_precision: Mapping[str, str] = field(default_factory=dict)
    belonging: Mapping[str, str] = field(default_factory=dict)
    compiled: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self):
        kinds = {name: kind_of(value) for name, value in _by_name({"executor": None, **self.kinds}).items()}
        object.__setattr__(self, "kinds", kinds)
        for table in ("instances", "given", "untried", "examples", "any_precision", "belonging", "compiled"):
            object.__setattr__(self, table, _by_name(getattr(self, table)))


class Report(NamedTuple):
    """The number of calls, and the failures in words."""

    calls: int
    failures: tuple[str, ...]


def public_callables(face: Face) -> Iterator[tuple[str, Callable[[], Callable]]]:
    """Yield each public callable of a face: its name, and a function that returns it ready to call."""
    yield from _of_module(face, face.module, "")


def _of_module(face: Face, module: types.ModuleType, prefix: str) -> Iterator[tuple[str, Callable[[], Callable]]]:
    for name in public_names(module):
        value = getattr(module, name)
        is_alias = not inspect.isfunction(value) and type(value).__module__ in ("typing", "types", "jaxtyping")
        if isinstance(value, types.ModuleType):
            yield from _of_module(face, value, f"{prefix}{name}.")
        elif inspect.isclass(value):
            yield from _of_class(face, value, f"{prefix}{name}")
        elif callable(value) and hasattr(value, "__module__") and not is_alias:
            yield f"{prefix}{name}", lambda value=value: value


def public_names(module: types.ModuleType) -> list[str]:
    """Return the names in `__all__`; without it, the modules of a package, or the names that a module defines."""
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
    if not inspect.isabstract(cls) and name not in face.made.split():
        yield name, lambda: cls
    if f"{name}.*" in face.untried:
        return

    def bound(method: str) -> Callable:
        if name not in face.instances:
            raise LookupError(f"{name} has the public method {method}, but the face has no instance of {name}")
        return getattr(_made(face.instances[name]), method)

    for method, static in inspect.getmembers_static(cls):
        # Methods named unchecked_... are for compiled loops, which check their arguments before.
        public = not method.startswith(("_", "unchecked")) or method == "__call__"
        # Skip methods that come from another package or from a dataclass.
        owner = next(base for base in cls.__mro__ if method in vars(base))
        if not public or owner.__module__.partition(".")[0] != face.module.__name__.partition(".")[0]:
            continue
        if isinstance(static, (classmethod, staticmethod)):
            yield f"{name}.{method}", functools.partial(getattr, cls, method)
        elif callable(static) and not inspect.isclass(static) and len(inspect.signature(static).parameters) > 1:
            yield f"{name}.{method}", functools.partial(bound, method)


def _made(value: Any) -> Any:
    return _once(value) if isinstance(value, (types.FunctionType, functools._lru_cache_wrapper, type)) else value


@functools.cache
def _once(make: Callable[[], Any]) -> Any:
    return make()


def _tried(face: Face, only: Collection[str] = ()) -> Iterator[tuple[str, Callable, Mapping[str, Kind]]]:
    """Yield the name of each public callable to be tried, the callable, and the kinds of its parameters.

    After the last, raises a `LookupError` that names callables and parameters without an entry, and unused entries.
    """
    missing, unused = [], set(face.kinds) - {"executor"}
    for name, make in public_callables(face):
        if name in face.untried or (only and name not in only):
            continue
        try:
            function = make()
        except LookupError as error:
            missing.append(error.args[0])
            continue
        found = {}
        for each, parameter in inspect.signature(function).parameters.items():
            key = f"{name}.{each}" if f"{name}.{each}" in face.kinds else each
            found[each] = face.kinds.get(key) or annotated_kind(_resolved(function, parameter))
            unused.discard(key)
        if unknown := [each for each, kind in found.items() if kind is None]:
            missing.append(f"{name}: the face has no entry for {', '.join(unknown)}")
        else:
            yield name, function, found
    if unused and not only:
        missing.append(f"the face has entries for unknown parameters: {', '.join(sorted(unused))}")
    if missing:
        raise LookupError(*missing)


def _resolved(function: Callable, parameter: inspect.Parameter) -> inspect.Parameter:
    """A parameter whose annotation is no text, as annotations are in some modules."""
    if not isinstance(parameter.annotation, str):
        return parameter
    written = function.__init__ if inspect.isclass(function) else getattr(function, "func", function)
    names = inspect.unwrap(getattr(written, "__func__", written)).__globals__
    return parameter.replace(annotation=eval(parameter.annotation, names))


def try_face(face: Face, only: Collection[str] = ()) -> Report:
    """Call every public callable of `face`, or those in `only`, with every mistake for every parameter."""
    calls, failures, tried = 0, {}, set()
    for name, function, parameters in _tried(face, only):
        tried.add(name)
        for parameter, kind in parameters.items():
            if f"{name}.{parameter}" in face.untried:
                continue
            for mistake, value in _mistakes_for(function, parameter, kind):
                calls += 1
                arguments = _arguments_of(function, name, parameters, face, {parameter: value})
                if complaint := _complaint(function, arguments, parameter, kind):
                    failures[f"{name}({parameter}={mistake})"] = complaint
    refused = [call for call in face.known.keys() - failures.keys() if call.partition("(")[0] in tried]
    found = [f"{call}: {complaint}" for call, complaint in failures.items() if call not in face.known]
    return Report(calls, (*found, *(f"{call}: it is refused, so remove it from `known`" for call in refused)))


def _mistakes_for(function: Callable, parameter: str, kind: Kind) -> Iterator[tuple[str, Any]]:
    """Yield the names and values that `function` must refuse for `parameter`."""
    default = inspect.signature(function).parameters[parameter].default
    for name, value in MISTAKES.items():
        is_default = value is default or (type(value) is type(default) and value == default)
        if name not in kind.admits and not is_default:
            yield name, value
    yield from ((name, value) for name, value in kind.also().items() if name not in kind.admits)


def _arguments_of(function: Callable, name: str, parameters, face: Face, replaced: Mapping[str, Any]):
    """Return positional and keyword arguments of an example call, with the values in `replaced`."""
    positional, keywords = [], {}
    described = inspect.signature(function).parameters.values()
    # Parameters before *args cannot be given by name.
    by_place = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in described)
    for parameter in described:
        is_variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        is_needed = parameter.default is parameter.empty and not is_variadic
        if not (is_needed or parameter.name in replaced or parameter.name in face.given.get(name, ())):
            continue
        is_replaced = parameter.name in replaced
        value = replaced[parameter.name] if is_replaced else _once(parameters[parameter.name].example)
        before_others = by_place and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        if before_others or parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            positional.append(value)
        else:
            keywords[parameter.name] = value
    return positional, keywords


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _complaint(function: Callable, arguments, parameter: str, kind: Kind) -> str | None:
    """Return what is wrong with the outcome of the call, or None if it is refused as it should be."""
    positional, keywords = arguments
    with _quiet():
        try:
            result = function(*positional, **keywords)
            if inspect.isgenerator(result):
                list(result)
        except (TypeError, ValueError) as error:
            message = str(error).strip()
            named = any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", message) for word in (parameter, *kind.called))
            if miscounted := MISCOUNTED.search(message):
                return f"the error says {miscounted[0]}: {_first_line(error)}"
            return None if named and "\n" not in message else f"the error does not name it: {_first_line(error)}"
        except Exception as error:
            return f"{type(error).__name__}: {_first_line(error)}"
    return f"accepted; returns {type(result).__name__}"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:160] or "without a message"


def _example_calls(face: Face, only: Collection[str] = ()) -> Iterator[tuple[str, Callable, list, dict[str, Any]]]:
    """Yield each public callable of `face` by name, with valid arguments."""
    for name, function, parameters in _tried(face, only):
        if name not in face.examples:
            yield name, function, *_arguments_of(function, name, parameters, face, {})


def try_examples(face: Face, only: Collection[str] = ()) -> Report:
    """Call every public callable of `face` with valid arguments; none may fail."""
    calls, failures = 0, []
    for name, function, positional, keywords in _example_calls(face, only):
        calls += 1
        try:
            function(*positional, **keywords)
        except Exception as error:
            failures.append(f"{name}: {type(error).__name__}: {_first_line(error)}")
    return Report(calls, tuple(failures))


def try_display(face: Face, only: Collection[str] = ()) -> Report:
    """Every instance of `face`, and all that its public callables, or those named `only`, return: it shows itself."""
    shown = {name: _made(value) for name, value in face.instances.items()}
    for name, function, positional, keywords in _example_calls(face, only):
        with _quiet():
            shown[f"{name}(...)"] = function(*positional, **keywords)
    failures = []
    for name, value in shown.items():
        for each in value if type(value) in (list, tuple) else (value,):
            package = type(each).__module__.partition(".")[0]
            if package == "theorykit" and (complaint := display_complaint(each)):
                failures.append(f"{name}, {type(each).__name__}: {complaint}")
    return Report(len(shown), tuple(failures))


# Matches `visited` (orbit, pattern, level), with one or several names before the axes.
_NAMED = re.compile(r"((?:`\w+`(?:, | and ))*`\w+`) \(([a-z]\w*(?:, [a-z]\w*)*)\)")


def named_axes(text: str) -> dict[str, tuple[str, ...]]:
    """Return the axes of each variable named in a text; a layer index l is read as 1."""
    found = {}
    for names, axes in _NAMED.findall(re.sub(r"_l\b", "_1", " ".join(text.split()))):
        found.update({name: tuple(axes.split(", ")) for name in re.findall(r"`(\w+)`", names)})
    return found


def wrong_axes(text: str, result: xr.Dataset) -> list[str]:
    """Return messages about variables whose axes differ from those in a text."""
    return [
        f"{name} has the axes {result[name].dims}, not {axes}"
        for name, axes in named_axes(text).items()
        if name in result.variables and result[name].dims != axes
    ]


def try_axes(face: Face, only: Collection[str] = ()) -> Report:
    """Call every public callable of `face` that returns a data set, and compare its axes with the docstring.

    `calls` counts the variables whose axes are named.
    """
    failures, named = [], 0
    for name, function, positional, keywords in _example_calls(face, only):
        function = inspect.unwrap(function)
        if "xarray" not in str(typing.get_type_hints(function).get("return", "")):
            continue
        with _quiet():
            result = function(*positional, **keywords)
        if isinstance(result, xr.Dataset):
            documentation = inspect.getdoc(function) or ""
            named += len(set(named_axes(documentation)) & set(result.variables))
            failures += [f"{name}: {each}" for each in wrong_axes(documentation, result)]
    return Report(named, tuple(failures))


def try_single_precision(face: Face, only: Collection[str] = ()) -> Report:
    """Call every public callable of `face` without x64: it must refuse, or still return double precision."""
    ready, failures = list(_example_calls(face, only)), []
    jax.config.update("jax_enable_x64", False)
    try:
        for name, function, positional, keywords in ready:
            try:
                result = function(*positional, **keywords)
            except Exception as error:
                if not (isinstance(error, RuntimeError) and "float64" in str(error)):
                    failures.append(f"{name}: {type(error).__name__}: {_first_line(error)}")
                continue
            kinds = {str(leaf.dtype) for leaf in jax.tree.leaves(result) if hasattr(leaf, "dtype")}
            if kinds & {"float32", "complex64"} and name not in face.any_precision:
                failures.append(f"{name}: returns {sorted(kinds)}")
    finally:
        jax.config.update("jax_enable_x64", True)
    return Report(len(ready), tuple(failures))


def try_other_numbers(face: Face, only: Collection[str] = ()) -> Report:
    """Call every public callable of `face`, or those in `only`, twice: other numbers must not cause a compilation.

    Callables that refuse the other numbers are skipped, such as those whose weights must be signs.
    """
    calls, failures, compiled = 0, [], []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if event.endswith("backend_compile_duration") else None
    )
    for name, function, positional, keywords in _example_calls(face, only):
        if name in face.belonging:
            continue
        calls += 1
        with _quiet():
            jax.block_until_ready(_leaves(function(*positional, **keywords)))
            others = {key: _other_numbers(value) for key, value in keywords.items()}
            compiled.clear()
            try:
                jax.block_until_ready(_leaves(function(*_other_numbers(positional), **others)))
            except (ValueError, OSError, NoCycleError):
                continue
        if compiled:
            failures.append(f"{name}: {len(compiled)} compilations for other numbers")
    return Report(calls, tuple(failures))


def _leaves(result: Any) -> list[Any]:
    """Return the leaves of a result. The keys of its mappings may be symbols, which JAX cannot sort."""
    leaves = jax.tree.leaves(result, is_leaf=lambda node: isinstance(node, Mapping))
    return jax.tree.leaves([list(leaf.values()) if isinstance(leaf, Mapping) else leaf for leaf in leaves])


def _other_numbers(value: Any) -> Any:
    """Return `value` with every non-integer number and every array entry a little larger."""

    def larger(leaf):
        if isinstance(leaf, float):
            return leaf if leaf.is_integer() else 1.0625 * leaf
        is_array = isinstance(leaf, (np.ndarray, jax.Array)) and not _is_key(leaf)
        return 1.0625 * leaf if is_array and np.issubdtype(np.asarray(leaf).dtype, np.floating) else leaf

    def is_by_symbol(node):
        return isinstance(node, Mapping) and not all(isinstance(key, str) for key in node)

    return jax.tree.map(larger, value, is_leaf=is_by_symbol)


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def try_compiled(face: Face, only: Collection[str] = ()) -> Report:
    """Call every public callable of `face`, or those in `only`, under jit and under jit of vmap.

    They must refuse the numbers that they refuse eagerly. Callables that cannot be compiled with a parameter traced are
    skipped; the call with a valid value shows which.
    """
    calls, failures = 0, []
    for name, function, parameters in _tried(face, only):
        for parameter, kind in parameters.items():
            if name in face.compiled or f"{name}.{parameter}" in face.untried:
                continue
            mistakes = dict(_numeric_mistakes(function, parameter, kind))
            if not mistakes:
                continue
            right, rebuild = _numbers_of(_once(kind.example))

            def call(numbers, name=name, function=function, parameter=parameter, rebuild=rebuild, known=parameters):
                given, keywords = _arguments_of(function, name, known, face, {parameter: rebuild(numbers)})
                found = _leaves(function(*given, **keywords))
                return [entry for entry in found if isinstance(entry, (jax.Array, jax.core.Tracer))]

            for words, one in (("jit", jax.jit(call)), ("vmap", jax.jit(jax.vmap(call)))):
                stack = _stacked if words == "vmap" else lambda right, wrong: wrong
                returned = []
                with _quiet(), contextlib.suppress(Exception):
                    returned = jax.block_until_ready(one(stack(right, right)))
                # If no result depends on the numbers, there is nothing to check.
                for mistake, wrong in mistakes.items() if returned else ():
                    if not _is_refused(call, wrong):
                        continue  # For example, its shape differs from the other arguments.
                    calls += 1
                    if not _is_refused(one, stack(right, wrong)):
                        failures.append(f"{words} of {name}({parameter}={mistake}): accepted")
    return Report(calls, tuple(failures))


def _numeric_mistakes(function, parameter: str, kind: Kind) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Yield mistakes that replace the numbers of the valid value by other numbers."""
    found = _numbers_of(_once(kind.example))
    if found is None:
        return
    right, rebuild = found
    for mistake, value in _mistakes_for(function, parameter, kind):
        wrong = _numbers_of(value)
        if wrong is not None and [each.shape for each in wrong[0]] == [each.shape for each in right]:
            other = wrong[1](right)
            if other is not None and _structure(other) == _structure(rebuild(right)):
                yield mistake, wrong[0]


def _numbers_of(value: Any) -> tuple[list[np.ndarray], Callable[[Any], Any]] | None:
    """Return the numbers in a value as arrays, and a function that replaces them; None if some leaf is no number."""
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
    """Return the structure of a tree; mappings with symbols as keys are described by the symbols' names."""
    if isinstance(value, Mapping):
        return [(getattr(key, "name", key), _structure(entry)) for key, entry in value.items()]
    return jax.tree.structure(value)


def _stacked(right: list[np.ndarray], wrong: list[np.ndarray]) -> list[np.ndarray]:
    return [np.stack([one.astype(other.dtype), other]) for one, other in zip(right, wrong, strict=True)]


def _is_refused(function: Callable, numbers: list[np.ndarray]) -> bool:
    with _quiet():
        try:
            jax.block_until_ready(function(numbers))
        except (TypeError, ValueError, RuntimeError):
            return True
    return False


TRIALS = {
    "mistakes": try_face,
    "examples": try_examples,
    "axes": try_axes,
    "display": try_display,
    "single-precision": try_single_precision,
    "other-numbers": try_other_numbers,
    "compiled": try_compiled,
}
