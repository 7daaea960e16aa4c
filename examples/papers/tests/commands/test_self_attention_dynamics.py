"""Tests of `python examples/papers self-attention-dynamics`: output, files, and early refusals."""

import matplotlib.pyplot as plt
import msgspec
import pytest

from papers import self_attention_dynamics as experiment
from theorykit import store
from theorykit.plots.style import save

from ..plots.test_self_attention_dynamics import tree
from .terminal import refused, run

COMMAND = ("self-attention-dynamics",)
WRITTEN = ("self-attention-dynamics.nc", "trajectories.png", "diagram.png", "zoom.png", "phases.png")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def settings_seen(monkeypatch):
    """Record the settings of the experiment, which returns a fixed result."""
    seen = []

    def pretended(settings, partial, **_options):
        seen.append(settings)
        partial.mkdir(parents=True)
        return tree()

    monkeypatch.setattr(experiment, "run", pretended)
    return seen


@pytest.mark.slow
def test_table_figures_and_one_file_are_written_once(folder, settings_seen, monkeypatch, capsys):
    run(monkeypatch, *COMMAND)
    printed = capsys.readouterr().out
    assert "zoom, 9 values of beta from 1.2 to 1.3" in printed
    output = folder / "self-attention-dynamics"
    assert {path.name for path in output.iterdir()} == set(WRITTEN)
    assert all(f"wrote self-attention-dynamics/{name}" in printed for name in WRITTEN)
    for name in WRITTEN:
        assert f"{name} exists" in refused(monkeypatch, *COMMAND)
        (output / name).unlink()
    assert settings_seen == [experiment.SelfAttentionDynamics()]


@pytest.mark.slow
def test_settings_reach_the_experiment(folder, settings_seen, monkeypatch):
    (folder / "here").mkdir()
    of_another_run = save(plt.figure(), folder / "here" / "zoom.png").read_bytes()
    run(monkeypatch, *COMMAND, "--output", "here", "--overwrite", "--seed", "3", "--zoom.highest", "1.3")
    default, changed = (msgspec.to_builtins(each) for each in (experiment.SelfAttentionDynamics(), settings_seen[0]))
    assert changed == {**default, "seed": 3, "zoom": {**default["zoom"], "highest": 1.3}}
    assert (folder / "here" / "zoom.png").read_bytes() != of_another_run
    assert (folder / "here" / "zoom.png").stat().st_size > 10_000


def test_a_mistaken_setting_is_named(folder, settings_seen, monkeypatch):
    assert "fair coins" in refused(monkeypatch, *COMMAND, "--betas", "0")
    assert not settings_seen
    assert not list(folder.iterdir())


@pytest.mark.slow
def test_the_whole_way_at_a_small_size(folder, monkeypatch, capsys):
    sizes = ("--betas", "0.5", "--transient", "500", "--recorded", "400", "--shown", "40", "--exponents", "2")
    diagrams = [
        f"--{name}.{field}={value}"
        for name in ("diagram", "zoom")
        for field, value in (("values", 2), ("recorded", 20), ("transient", 20))
    ]
    run(monkeypatch, *COMMAND, *sizes, *diagrams)
    assert "diagram, 2 values of beta from 0 to 3" in capsys.readouterr().out
    result = store.read(folder / "self-attention-dynamics" / WRITTEN[0])
    assert result["trajectories/period"].item() == 4
    assert not (folder / "self-attention-dynamics" / "partial").exists()


@pytest.mark.slow
def test_missing_figures_are_drawn(folder, monkeypatch, capsys):
    def computed(settings, partial, **_options):
        made = tree()
        made.attrs["settings"] = msgspec.json.encode(settings).decode()
        return made

    monkeypatch.setattr(experiment, "run", computed)
    run(monkeypatch, *COMMAND)
    output = folder / "self-attention-dynamics"
    (output / "zoom.png").unlink()
    monkeypatch.setattr(experiment, "run", lambda *_, **_options: pytest.fail("computed again"))
    run(monkeypatch, *COMMAND)
    assert {path.name for path in output.iterdir()} == set(WRITTEN)
    assert "with these settings" in capsys.readouterr().out
    (output / "zoom.png").unlink()
    assert "exists" in refused(monkeypatch, *COMMAND, "--seed", "3")
