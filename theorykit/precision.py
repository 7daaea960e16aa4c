"""Double precision, which the user enables and every numerical function checks.

The functions import JAX when they are called, because importing it takes most of a second.
"""

import os
import sys


def enable_float64() -> None:
    """Switch JAX to 64-bit numbers for the whole process. Call this before you create arrays.

    Example:
        >>> import jax.numpy as jnp
        >>> import theorykit
        >>> theorykit.enable_float64()
        >>> jnp.zeros(3).dtype
        dtype('float64')
    """
    import jax

    jax.config.update("jax_enable_x64", True)


def request_float64() -> None:
    """Switch JAX to 64-bit numbers in this process and its child processes, without importing it."""
    os.environ["JAX_ENABLE_X64"] = "1"
    if "jax" in sys.modules:
        enable_float64()


def require_float64() -> None:
    """Raise `RuntimeError` unless JAX computes in 64 bits."""
    import jax

    if not jax.config.jax_enable_x64:
        raise RuntimeError(
            "theorykit computes in float64, but JAX's x64 mode is off (jax_enable_x64=False). Call "
            "theorykit.enable_float64() at the start of the program, or set the environment variable JAX_ENABLE_X64=1."
        )
