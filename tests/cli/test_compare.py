"""`theorykit compare`: table, figure and data, gone on with, and mistakes that are named."""

from typing import get_args, get_type_hints

import numpy as np
import pytest

from theorykit import store
from theorykit.bpkr import sampling
from theorykit.bpkr.sampling.comparison import APPROACHES
from theorykit.bpkr.sampling.settings import DEFAULT_SCHEDULES
from theorykit.cli.config import _SAMPLERS, CompareConfig

from .terminal import COMPARE, refused, run


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::theorykit.bpkr.sampling.MixingWarning")
def test_compare_writes_table_figure_and_data_and_goes_on_from_its_draws(small, monkeypatch, capsys):
    run(monkeypatch, "compare", "mine.toml")
    printed = capsys.readouterr().out
    assert printed.startswith("approach") and "accuracy" in printed and "wrote mine-comparison.png" in printed
    assert (small / "mine-comparison.png").stat().st_size > 10_000
    first = store.read(small / "mine-comparison.nc").to_dataset()
    assert first["approach"].values.tolist() == ["saddle", "exact", "gibbs"]
    assert first["U_1_deviation"].dims == ("approach", "path_1", "other_path_1")
    assert first["mean"].shape == (3, 6) and "draws" in first.attrs["settings"]
    (small / "solve.toml").write_text(COMPARE)
    run(monkeypatch, "solve", "solve.toml")
    single = store.read(small / "solve.nc").to_dataset()
    for name in ("U_1", "u", "mean", "variance"):
        np.testing.assert_allclose(first[name].sel(approach="saddle"), single[name], rtol=1e-7, atol=1e-9)

    assert "mine-comparison.nc exists" in refused(monkeypatch, "compare", "mine.toml")
    (small / "mine-comparison.nc").unlink()
    assert "mine-comparison.png exists" in refused(monkeypatch, "compare", "mine.toml")
    for sampler in ("exact", "gibbs"):
        assert (small / "mine-comparison" / sampler / "chain-0.npz").exists()
    (small / "mine.toml").write_text(COMPARE.replace("draws = 20", "draws = 19"))
    run(monkeypatch, "compare", "mine.toml", "--overwrite")
    again = store.read(small / "mine-comparison.nc").to_dataset()
    assert abs(again["U_1"] - first["U_1"]).sel(approach=["exact", "gibbs"]).max() > 0
    (small / "mine.toml").write_text(COMPARE + "seed = 1\n")
    assert "holds another run" in refused(monkeypatch, "compare", "mine.toml", "--overwrite")


@pytest.mark.slow
def test_compare_takes_theory_alone_and_needs_no_table(small, monkeypatch, capsys):
    text = COMPARE.replace('test_inputs = "x_test"\ntest_labels = "y_test"\n', "")
    options = 'approaches = ["one_over_n", "saddle"]\nfile = "theory.nc"\n'
    (small / "mine.toml").write_text(text[: text.index("[compare]")] + f"[compare]\n{options}")
    run(monkeypatch, "compare", "mine.toml")
    assert "accuracy" not in capsys.readouterr().out
    written = store.read(small / "theory.nc").to_dataset()
    assert written["approach"].values.tolist() == ["one_over_n", "saddle"] and "U_1_deviation" not in written
    assert (small / "theory.png").exists() and not (small / "theory").exists()
    taken = {}
    monkeypatch.setattr(sampling, "compare", lambda *args, **options: taken.update(options) or written)
    (small / "mine.toml").write_text(text[: text.index("[compare]")])
    run(monkeypatch, "compare", "mine.toml")
    assert taken["approaches"] == ("saddle", "one_over_n", "exact", "gibbs", "infinite_width")
    solver = {"tolerance": 1e-9, "max_steps": 1000}
    own = {name: {"schedule": DEFAULT_SCHEDULES[name]} for name in ("exact", "gibbs")}
    assert taken["options"] == {**own, "saddle": solver}


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("draws = 20", "draw = 20", "did you mean `draws`?"),
        ("[compare]", "[compar]", "did you mean `compare`?"),
        ("draws = 20", "draws = 0", "draws"),
        ("chains = 2", "chains = 1.5", "chains"),
        ('"gibbs"', '"gibs"', 'got "gibs"; did you mean "gibbs"?'),
        ('"gibbs"', '"exact"', "each named once"),
        ('["saddle", "exact", "gibbs"]', "[]", "one or more"),
        ("draws = 20", 'file = "mine"', "end in .nc"),
    ],
)
def test_a_mistaken_comparison_is_named(small, monkeypatch, old, new, named):
    (small / "mine.toml").write_text(COMPARE.replace(old, new, 1))
    assert named in refused(monkeypatch, "compare", "mine.toml")
    assert not list(small.glob("*.nc")) and not (small / "mine-comparison").exists()


def test_the_approaches_of_a_configuration_are_those_of_the_library():
    """The configuration names them itself, since importing the samplers takes long."""
    named, _ = get_args(get_type_hints(CompareConfig)["approaches"])
    assert set(get_args(named)) == set(APPROACHES)
    assert set(_SAMPLERS) == set(DEFAULT_SCHEDULES)
