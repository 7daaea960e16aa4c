"""Values of a parametrised test that only the slow suite takes."""

from collections.abc import Iterable

import pytest


def slow(values: Iterable) -> list:
    """Mark each of `values` as slow, because other values test the same in less time."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]
