"""Test session: double precision, reproducible property tests, and compiled code forgotten between modules."""

import os

import hypothesis
import jax
import pytest

jax.config.update("jax_enable_x64", True)
# most of the suite's time is XLA compiling small functions that run once
jax.config.update("jax_disable_most_optimizations", True)

hypothesis.settings.register_profile("default", deadline=None, max_examples=20, derandomize=bool(os.environ.get("CI")))
hypothesis.settings.load_profile("default")


@pytest.fixture(autouse=True, scope="module")
def forget_compiled_code():
    """Compiled functions hold memory maps, of which a process may have only so many."""
    yield
    jax.clear_caches()
