"""Reports in words, and factors by name."""

import dataclasses
import importlib
import math
import sys

import numpy as np
import pytest

from theorykit import bpkr, testing
from theorykit.testing.explain import Finding, Report, Trial, _factor

FOUND = Finding("a claim", "3 for 1", "a factor")


def test_a_report_holds_if_nothing_was_found_and_is_written_to_be_read():
    clean, wrong = Report("A", (Finding("b", "1e-16"),)), Report("A", (FOUND,))
    assert clean.holds and not clean.findings and not wrong.holds and wrong.findings == (FOUND,)
    assert str(clean) == "A: 0 of 1 checks failed\nb\n- 1e-16"
    assert str(wrong) == "A: 1 of 1 checks failed\nWRONG: a claim\n- 3 for 1\n- a factor"
    with pytest.raises(dataclasses.FrozenInstanceError):
        clean.checks = (FOUND,)


def name_factor(values, sizes):
    return _factor(np.array(values), [Trial([], [], 1e-7, each) for each in sizes])


SIZES = [{"n": 5.0, "m": 7.0}, {"n": 11.0, "m": 5.0}]
NAMES = {
    "1": lambda n, m: 1.0,
    "-1": lambda n, m: -1.0,
    "0": lambda n, m: 0.0,
    "n": lambda n, m: n,
    "-1/n": lambda n, m: -1 / n,
    "sqrt(n)": lambda n, m: math.sqrt(n),
    "n**(3/2)": lambda n, m: n**1.5,
    "m**(-2)": lambda n, m: m**-2,
    "sqrt(n)/sqrt(m)": lambda n, m: math.sqrt(n / m),
    "1/(m*n)": lambda n, m: 1 / (n * m),
    "2/n": lambda n, m: 2 / n,
    "sqrt(2)": lambda n, m: math.sqrt(2),
    "0.3": lambda n, m: 0.3,
    "": lambda n, m: n + m,
}


@pytest.mark.parametrize("name", NAMES)
def test_a_factor_has_the_name_of_what_it_is(name):
    assert name_factor([NAMES[name](**sizes) for sizes in SIZES], SIZES) == name


def test_several_names_are_all_given():
    assert name_factor([2.0], [{"heads": 2.0}]) == "heads or 2"
    assert name_factor([math.nan], [{"heads": 2.0}]) == "nan"


def test_a_report_depends_on_the_seed_alone():
    def reports(seed):
        return repr(testing.check_layer(bpkr.Attention(2), reference=lambda w, x, *others: w[0] @ x, seed=seed))

    assert reports(1) == reports(1) != reports(2)


def test_only_strategies_need_hypothesis(monkeypatch):
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    monkeypatch.setitem(sys.modules, "hypothesis.strategies", None)
    monkeypatch.delitem(sys.modules, "theorykit.testing.strategies", raising=False)
    assert testing.check_layer(bpkr.Dense()).holds
    with pytest.raises(ImportError, match=r"strategies needs hypothesis: .*\[testing\]"):
        importlib.import_module("theorykit.testing.strategies")
