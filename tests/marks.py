"""Values of a parametrised test that only the slow suite takes."""

from collections.abc import Iterable

import pytest


def slow(values: Iterable) -> list:
    """Each of `values` marked as slow: beside others that show the same in less time."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]
