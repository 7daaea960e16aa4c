"""Run theorykit under JAX's default settings, whatever settings the user's program has chosen.

Strict settings would raise errors: theorykit mixes ranks and types, and infinities occur, for example in the logarithm
of a density at the edge of its support.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import jax

# Each setting with its default value and the context that sets it.
_USUAL = {
    "jax_numpy_rank_promotion": ("allow", jax.numpy_rank_promotion),
    "jax_numpy_dtype_promotion": ("standard", jax.numpy_dtype_promotion),
    "jax_debug_nans": (False, jax.debug_nans),
    "jax_debug_infs": (False, jax.debug_infs),
    "jax_disable_jit": (False, jax.disable_jit),
    # Objects with a traced field that refer to themselves, as samplers make, look like leaks until they are collected.
    "jax_check_tracer_leaks": (False, jax.check_tracer_leaks),
}


@contextmanager
def usual_settings() -> Iterator[None]:
    """Use JAX's default settings within this context, or within a function decorated by `@usual_settings()`."""
    with ExitStack() as settings:
        for name, (usual, set_to) in _USUAL.items():
            if getattr(jax.config, name) != usual:
                settings.enter_context(set_to(usual))
        yield
