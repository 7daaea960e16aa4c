"""The published algorithm, as the benchmarks run it, against numbers of the published program itself."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import self_attention_published as published

DATA = Path(__file__).parent.parent / "data" / "dmft"
MANIFEST = json.loads((DATA / "manifest.json").read_text())


def reference(name, case):
    with np.load(DATA / f"dmft_{name}.npz") as arrays:
        return {key.partition("/")[2]: arrays[key] for key in arrays.files if key.startswith(f"{case}/")}


def parameters_of(record, weights):
    settings = {name: record[name] for name in ("beta", "gamma", "epsilon")}
    return published.parameters_of(weights, record["P"], **settings)


def every_few(records, number=3):
    """Every few of the cases of each number of patterns, and those of the paper's setting."""
    return [record for record in records if int(record["case"][1:]) % number == 0 or record["case"] > "c065"]


@pytest.mark.parametrize("record", every_few(MANIFEST["trajectories"]), ids=lambda record: record["case"])
def test_attentions_are_those_of_the_published_program(record):
    numbers = reference("trajectories", record["case"])
    parameters = parameters_of(record, numbers["W"])
    prompted = published.attention_of_prompt(numbers["x0"], numbers["W"], parameters)
    np.testing.assert_allclose(prompted, numbers["A0"], rtol=0, atol=1e-15)
    attentions = published.trajectory(prompted, record["L"], parameters, record["steps"])
    np.testing.assert_allclose(attentions, numbers["att"], rtol=0, atol=record["suggested_atol"])


@pytest.mark.parametrize(("case", "exponents"), [("l01", 20), ("l03", 12), ("l08", 4)])
def test_growth_of_every_step_is_that_of_the_published_program(case, exponents):
    """The last exponents of l03 and l08 are too small, step by step, for more digits than these."""
    pytest.importorskip("autograd")
    (record,) = [record for record in MANIFEST["lyapunov"] if record["case"] == case]
    numbers = reference("lyapunov", case)
    parameters = parameters_of(record, numbers["W"])
    windows = numbers["A_window_start"], numbers["pe_window_start"]
    growth = published.lyapunov_steps(*windows, parameters, len(numbers["S_i_first50"]))
    np.testing.assert_allclose(
        growth[:, :exponents], numbers["S_i_first50"][:, :exponents], rtol=0, atol=1e-10, equal_nan=False
    )
