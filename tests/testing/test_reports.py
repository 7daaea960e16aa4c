"""Reports in words, and factors by name."""

import dataclasses
import importlib
import math
import sys
import threading

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from theorykit import bpkr, progress, saddle, testing
from theorykit.testing import Finding, Report
from theorykit.testing.hypotheses import name_factor
from theorykit.testing.report import report_of

from .layers import normal

FOUND, OTHER = Finding("a claim", "3 for 1", "a factor"), Finding("a claim", "4 for 1", "a factor")


def test_a_report_holds_if_nothing_was_found_and_is_written_to_be_read():
    clean, wrong = Report("A", (), (Finding("b", "1e-16"),)), Report("A", (FOUND,), (), ("all else: no time",))
    assert clean.holds and not wrong.holds
    assert str(clean) == "A: nothing wrong was found in 1 check.\nHolds:\n- b: 1e-16"
    assert repr(clean) == str(clean) and "- measured: 3 for 1\n" in wrong._repr_markdown_()
    assert str(wrong) == (
        "A: 1 mistake was found in 1 check.\nWRONG: a claim\n- measured: 3 for 1\n- likely: a factor\n"
        "Not checked:\n- all else: no time"
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        clean.findings = (FOUND,)


def test_lines_of_a_report_are_not_long():
    long = Finding("a claim " * 30, "a measure " * 30, "a meaning " * 30)
    assert all(len(line) <= 100 for line in str(Report("A", (long,), (Finding("b", "c " * 200),))).splitlines())


def test_what_is_said_of_one_claim_becomes_one():
    results = [FOUND, Finding("b", "1"), OTHER, Finding("b", "2"), Finding("a claim", "3"), Finding("b", "1")]
    joined = Finding("a claim", "3 for 1; 4 for 1", "a factor")
    assert report_of("A", results, []) == Report("A", (joined,), (Finding("b", "1; 2"),))


@pytest.mark.parametrize("shown", [True, False])
def test_checks_say_what_they_cost_and_count(shown, monkeypatch):
    told, refreshed = [], threading.Event()
    monkeypatch.setattr(progress, "_DELAY", -1.0)
    monkeypatch.setattr(progress, "tell", lambda line: (told.append(line), refreshed.set()))

    def results():
        assert refreshed.wait(60.0) or not shown
        yield from (FOUND, OTHER)

    refreshed.set() if not shown else None
    report_of("The layer A", results(), [], cost="a minute", progress=shown)
    assert told[:1] == ["checks of the layer A: a minute"][:shown]
    assert [line.startswith("checks of the layer A: done, 2 checks") for line in told[1:]] == [True][:shown]


@pytest.mark.parametrize("shown", [True, False])
def test_both_checks_report_their_progress(shown, monkeypatch):
    given = []

    class Recorded(progress.Progress):
        def __init__(self, work, **options):
            given.append((work, options["shown"]))
            super().__init__(work, **options)

    monkeypatch.setattr("theorykit.testing.report.Progress", Recorded)
    m = sympy.Symbol("m", real=True)
    action = saddle.Action(m**2 / 2, {m: saddle.Real()})
    assert testing.check_layer(bpkr.Attention(1), checks=[], progress=shown).holds
    assert testing.check_action(action, progress=shown).holds
    assert given == [("checks of the layer Attention", shown), ("checks of the action", shown)]


SIZES = [{"n": 5.0, "m": 7.0}, {"n": 11.0, "m": 5.0}]
NAMES = {
    "1": lambda n, m: 1.0,
    "-1": lambda n, m: -1.0,
    "n": lambda n, m: n,
    "-1 / n": lambda n, m: -1 / n,
    "sqrt(n)": lambda n, m: math.sqrt(n),
    "n * sqrt(n)": lambda n, m: n**1.5,
    "1 / m**2": lambda n, m: m**-2,
    "sqrt(n) / sqrt(m)": lambda n, m: math.sqrt(n / m),
    "1 / (n * m)": lambda n, m: 1 / (n * m),
    "2 / n": lambda n, m: 2 / n,
    "sqrt(2)": lambda n, m: math.sqrt(2),
    "0.3": lambda n, m: 0.3,
    "": lambda n, m: n + m,
}


@pytest.mark.parametrize("name", NAMES)
def test_a_factor_has_the_name_of_what_it_is(name):
    named = name_factor([NAMES[name](**sizes) for sizes in SIZES], SIZES)
    assert sorted(named.split(" * ")) == sorted(name.split(" * ")) or named in (name, "2 / n", "1 / (m * n)")


@given(power=st.sampled_from([0.5, 1.0, -0.5, -2.0]), sign=st.sampled_from([1, -1]), noise=st.floats(-1e-9, 1e-9))
def test_a_named_factor_is_worth_what_was_measured(power, sign, noise):
    measured = [sign * (1 + noise) * sizes["n"] ** power for sizes in SIZES]
    name = name_factor(measured, SIZES)
    for value, sizes in zip(measured, SIZES, strict=True):
        assert eval(name, {"sqrt": math.sqrt}, sizes) == pytest.approx(value, rel=1e-8)


def test_several_names_are_all_given():
    assert name_factor([2.0], [{"heads": 2.0}]) == "heads or 2"
    assert name_factor([0.0], [{"heads": 2.0}]) == name_factor([math.nan], [{"heads": 2.0}]) == ""


def test_a_layer_report_is_a_report_and_depends_on_the_seed_alone():
    options = {"draw_weights": normal, "checks": ["reference"]}
    first, again, other = (testing.check_layer(bpkr.Dense(), **options, seed=seed) for seed in (1, 1, 2))
    assert isinstance(first, Report) and first == again != other


def test_only_strategies_need_hypothesis(monkeypatch):
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    monkeypatch.setitem(sys.modules, "hypothesis.strategies", None)
    monkeypatch.delitem(sys.modules, "theorykit.testing.strategies", raising=False)
    assert testing.check_layer(bpkr.Dense(), checks=[]).holds
    with pytest.raises(ImportError, match=r"strategies needs hypothesis, which is not installed: .*\[testing\]"):
        importlib.import_module("theorykit.testing.strategies")
