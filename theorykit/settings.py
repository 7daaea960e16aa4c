"""JAX's settings: those that other programs made are set aside while theorykit runs.

Arrays of different ranks and types meet in it, and infinities, as of a density at its edge, occur on the way.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import jax

# a setting, what it is unless somebody sets it, and how it is set for a while
_USUAL = {
    "jax_numpy_rank_promotion": ("allow", jax.numpy_rank_promotion),
    "jax_numpy_dtype_promotion": ("standard", jax.numpy_dtype_promotion),
    "jax_debug_nans": (False, jax.debug_nans),
    "jax_debug_infs": (False, jax.debug_infs),
    "jax_disable_jit": (False, jax.disable_jit),
}


@contextmanager
def usual_settings() -> Iterator[None]:
    """JAX's usual settings, whatever they are around it: a context, or `@usual_settings()` around a function."""
    with ExitStack() as settings:
        for name, (usual, set_to) in _USUAL.items():
            if getattr(jax.config, name) != usual:
                settings.enter_context(set_to(usual))
        yield
