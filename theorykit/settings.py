"""JAX's settings, which belong to the whole process: those that other programs made are set aside while theorykit runs.

Arrays of different ranks and types meet in it, and infinities, as of a density at its edge, are numbers on their way.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import ParamSpec, TypeVar

import jax

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

# a setting, what it is unless somebody sets it, and how it is set for a while
_USUAL = {
    "jax_numpy_rank_promotion": ("allow", jax.numpy_rank_promotion),
    "jax_numpy_dtype_promotion": ("standard", jax.numpy_dtype_promotion),
    "jax_debug_nans": (False, jax.debug_nans),
    "jax_debug_infs": (False, jax.debug_infs),
    "jax_disable_jit": (False, jax.disable_jit),
}


def with_usual_settings(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """`function`, which runs with JAX's usual settings, whatever they are around it."""

    @wraps(function)
    def call(*arguments: Arguments.args, **keywords: Arguments.kwargs) -> Result:
        others = [(usual, set_to) for name, (usual, set_to) in _USUAL.items() if getattr(jax.config, name) != usual]
        if not others:
            return function(*arguments, **keywords)
        with ExitStack() as settings:
            for usual, set_to in others:
                settings.enter_context(set_to(usual))
            return function(*arguments, **keywords)

    return call
