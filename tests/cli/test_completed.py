"""A command that was killed between its result and its figures is completed by the same command, and by no other."""

import pytest

from theorykit.bpkr import sampling, sweeps

from .terminal import refused, run

TABLES = {
    "sweep": ("[sweep]\nwidths = [10, 20]\ntemperatures = [0.5]\n", "mine-sweep"),
    "compare": ('[compare]\napproaches = ["saddle"]\n', "mine-comparison"),
}


@pytest.mark.slow
@pytest.mark.parametrize("command", TABLES)
def test_a_missing_figure_is_drawn_from_the_result_that_is_there(small, command, monkeypatch, capsys):
    text, stem = TABLES[command]
    configuration = small / "mine.toml"
    plain = configuration.read_text().split("[sweep]")[0].split("[compare]")[0]
    configuration.write_text(plain + text)
    run(monkeypatch, command, "mine.toml")
    result, figure = small / f"{stem}.nc", small / f"{stem}.png"
    table, written = capsys.readouterr().out.split("wrote ")[0], result.read_bytes()
    assert f"{stem}.nc exists" in refused(monkeypatch, command, "mine.toml")
    figure.unlink()
    computing = {"sweep": (sweeps, "sweep"), "compare": (sampling, "compare")}[command]
    monkeypatch.setattr(*computing, lambda *args, **kwargs: pytest.fail("computed again"))
    run(monkeypatch, command, "mine.toml")
    assert table.strip() in capsys.readouterr().out
    assert figure.stat().st_size > 5000 and result.read_bytes() == written

    figure.unlink()
    configuration.write_text(configuration.read_text().replace("temperature = 0.5", "temperature = 0.6") + "\n")
    configuration.write_text(configuration.read_text().replace("widths = [10, 20]", "widths = [10, 30]"))
    if command == "sweep":
        assert f"{stem}.nc exists" in refused(monkeypatch, command, "mine.toml")
        assert not figure.exists(), "a result of other settings is not drawn"
