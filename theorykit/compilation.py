"""How XLA compiles the programs that users wait for."""

from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .arguments import is_traced

# the older of XLA's two ways to emit a fusion: the large programs of a solve compile in two fifths of the time
_OPTIONS = {"xla_cpu_use_fusion_emitters": False}


def compiled(function: Callable) -> Callable:
    """`equinox.filter_jit(function)`, sooner compiled on a CPU where neither its arguments nor its call are traced.

    Options of the compiler are those of a whole program: within another jit, `function` is compiled as that one is.
    """
    part = eqx.filter_jit(function)
    whole = cache(lambda: eqx.filter_jit(function, compiler_options=_options()))

    @wraps(function)
    def call(*arguments):
        return (part if is_traced(arguments, jnp.zeros(())) else whole())(*arguments)

    return call


@cache
def _options() -> Mapping[str, Any] | None:
    """The options, if this version of XLA knows them: it refuses those that it does not."""
    try:
        jax.jit(lambda: 0.0, compiler_options=_OPTIONS).lower().compile()
    except jax.errors.JaxRuntimeError:
        return None
    return _OPTIONS
