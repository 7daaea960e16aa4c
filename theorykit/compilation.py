"""How XLA compiles the programs that users wait for."""

from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .checks import checked_function, is_traced
from .memory import memory_errors_in_words
from .settings import usual_settings
from .threads import threads_for

# the older of XLA's two ways to emit a fusion: the large programs of a solve compile in two fifths of the time
_OPTIONS = {"xla_cpu_use_fusion_emitters": False}


def jit(function: Callable) -> Callable:
    """`equinox.filter_jit(function)`, which a CPU compiles in about half the time, for programs with solves in them.

    XLA is asked for the older of its two ways to generate code, where it has two. That holds for whole programs: within
    another jit, `function` is compiled as that one is. Numbers with a decimal point are traced like arrays, so that
    another temperature compiles nothing anew. On a processor the call waits for its results, and the linear algebra of
    small matrices runs on one thread. Raises `TypeError` for what is no function; the result raises `MemoryError`, in
    words, where an array does not fit.

        >>> import jax.numpy as jnp
        >>> import theorykit
        >>> double = theorykit.jit(lambda x: 2 * x)
        >>> float(double(jnp.array(1.5)))
        3.0
    """
    checked_function("function", function)
    part = eqx.filter_jit(function)
    whole = cache(lambda: eqx.filter_jit(function, compiler_options=_options()))

    name = getattr(function, "__name__", "the function").strip("_").replace("_", " ")

    @wraps(function)
    def call(*arguments, **keywords):
        if is_traced(arguments, keywords, jnp.zeros(())):
            with usual_settings():
                return part(*arguments, **keywords)
        leaves, structure = jax.tree.flatten((arguments, keywords))
        leaves = [jnp.asarray(leaf, float) if type(leaf) is float else leaf for leaf in leaves]
        arguments, keywords = jax.tree.unflatten(structure, leaves)
        with usual_settings(), memory_errors_in_words(name):
            if jax.default_backend() != "cpu":
                return whole()(*arguments, **keywords)
            with threads_for(rows_of(arguments, keywords)):
                return jax.block_until_ready(whole()(*arguments, **keywords))

    return call


@cache
def _options() -> Mapping[str, Any] | None:
    """The options, if this version of XLA knows them: it refuses those that it does not."""
    try:
        jax.jit(lambda: 0.0, compiler_options=_OPTIONS).lower().compile()
    except jax.errors.JaxRuntimeError:
        return None
    return _OPTIONS


def rows_of(*values: Any) -> int:
    """Return the number of rows of the largest matrix that a function of `values` may factorise.

    It is the number of rows of square matrices, or of a batch of them, and the longest axis of any other array.
    """
    most = 0
    for leaf in jax.tree.leaves(values):
        shape = leaf.shape if eqx.is_inexact_array(leaf) else ()
        if shape:
            is_square = len(shape) > 1 and shape[-1] == shape[-2]
            most = max(most, shape[-1] if is_square else max(shape))
    return most
