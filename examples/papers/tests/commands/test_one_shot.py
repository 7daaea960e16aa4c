"""Tests of `python examples/papers one-shot` at a tiny size: output, files, resuming, and early refusals."""

from dataclasses import replace

import pytest

from papers.commands import one_shot as command
from papers.one_shot import PAPER, stages
from papers.one_shot import sources as sources_module

from ..experiments.test_one_shot import SETTINGS, forbidden
from .terminal import refused, run


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Make a user's folder, and shrink the preset to a tiny size."""
    monkeypatch.setitem(command._PRESETS, "small", SETTINGS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


COMMAND = ("one-shot", "--variants", "L2H32", "--training-seeds", "1", "--seeds", "1")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::theorykit.bpkr.sampling.MixingWarning")
def test_a_figure_a_table_and_one_file_are_written_and_kept(tiny, monkeypatch, capsys):
    run(monkeypatch, *COMMAND)
    printed = capsys.readouterr().out
    assert "L2H32: 6 paths, 1 trained network, 1 seed" in printed
    assert "wrote one-shot/one-shot.nc" in printed
    assert (tiny / "one-shot" / "figure-L2H32.png").stat().st_size > 10_000
    result = xr.load_datatree(tiny / "one-shot" / "one-shot.nc", engine="h5netcdf")
    assert result["L2H32/theory"].sizes["seed"] == 1
    assert "one-shot.nc exists" in refused(monkeypatch, *COMMAND)
    # Nothing is computed again.
    monkeypatch.setattr(stages, "theory_of_seed", forbidden)
    run(monkeypatch, *COMMAND, "--overwrite")


def test_an_unknown_variant_is_named(tiny, monkeypatch):
    message = refused(monkeypatch, "one-shot", "--variants", "L9H9")
    assert message == "python examples/papers: unknown variant 'L9H9'; there are L2H32"


def test_published_images_that_cannot_be_had_are_no_others(tiny, monkeypatch):
    def unreachable():
        raise ConnectionError("no way to images_background.zip")

    monkeypatch.setattr(sources_module, "omniglot", unreachable)
    monkeypatch.setitem(command._PRESETS, "paper", replace(PAPER, seeds=1))
    assert "no way to images_background.zip" in refused(monkeypatch, "one-shot", "--preset", "paper")
    assert not list((tiny / "one-shot").glob("*.nc"))
