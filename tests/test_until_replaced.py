"""One plain use of each feature that is to be replaced or dropped: each test goes with its feature."""

import sys

import pytest

from theorykit._compat import MissingLibrary, needed


def test_a_missing_library_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpyro", None)
    with pytest.raises(MissingLibrary, match=r"sampling needs numpyro: .*\[sampling\]"):
        needed("numpyro", "sampling")
