"""Whatever became of files that a command keeps, its next run refuses them in a line that names them."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from theorykit import cli, store

DAMAGES = 3
CONFIG = """
[architecture]
layers = [2]
widths = 6
temperature = 0.2

[data]
file = "data.npz"
features = "phi"
labels = "y"
test_features = "phi_test"
test_labels = "y_test"

[sweep]
widths = [6.0]
temperatures = [0.2]

[compare]
approaches = ["saddle", "gibbs"]
chains = 1
draws = 4
warmup = 2
seed = 0
"""


class Kept(NamedTuple):
    """A command, and the results whose absence makes it go on from what it kept in `folder`."""

    arguments: tuple[str, ...]
    folder: str
    results: tuple[str, ...]


COMMANDS = {
    "sweep": Kept(("sweep", "mine.toml"), "mine-sweep", ("mine-sweep.nc", "mine-sweep.png")),
    "compare": Kept(("compare", "mine.toml"), "mine-comparison", ("mine-comparison.nc", "mine-comparison.png")),
}


def ended(arguments: tuple[str, ...], monkeypatch, main=cli.main) -> str:
    """How the command ends: with the line of its refusal, or "" where it finishes."""
    monkeypatch.setattr(sys, "argv", ["program", *arguments])
    try:
        main()
    except SystemExit as leaving:
        assert isinstance(leaving.code, str) and "\n" not in leaving.code, leaving.code
        return leaving.code
    return ""


def killed(command: Kept, monkeypatch, main=cli.main) -> None:
    """Run the command, and stop it where it writes its result."""

    def stop(*arguments, **keywords):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(store, "write", stop)
        # an interrupted command leaves at once, and would take this process with it
        patched.setattr(os, "_exit", sys.exit)
        patched.setattr(sys, "argv", ["program", *command.arguments])
        with pytest.raises(SystemExit) as leaving:
            main()
    assert leaving.value.code == 130


def damages(content: bytes, seed: int) -> Iterator[bytes]:
    rng = np.random.default_rng(seed)
    yield b""
    for place in rng.integers(0, len(content), DAMAGES):
        yield content[:place]
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(8))
        yield bytes(changed)


def assert_damaged_files_are_refused(kept: Kept, monkeypatch, main=cli.main) -> None:
    files = sorted(path for path in Path(kept.folder).rglob("*") if path.is_file())
    assert files
    for number, path in enumerate(files):
        whole = path.read_bytes()
        for damaged in damages(whole, number):
            path.write_bytes(damaged)
            line = ended(kept.arguments, monkeypatch, main)
            # settings that were changed are those of another run, which is told of the folder
            assert path.name in line or f"{kept.folder} holds another" in line, (path, line)
            assert path.read_bytes() == damaged, "nothing is replaced that was not read"
        path.unlink()
        path.mkdir()
        assert path.name in ended(kept.arguments, monkeypatch, main)
        path.rmdir()
        path.write_bytes(whole)
    assert not any(Path(result).exists() for result in kept.results)
    assert ended(kept.arguments, monkeypatch, main) == ""
    assert all(Path(result).exists() for result in kept.results)


@pytest.mark.quick("compare")
@pytest.mark.filterwarnings("ignore::theorykit.bpkr.sampling.MixingWarning")
@pytest.mark.parametrize("name", COMMANDS)
def test_damaged_files_of_a_run_are_refused_by_name_and_kept(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    arrays = {"phi": draw.normal(size=(6, 2, 3)), "y": np.ones(6), "y_test": np.ones(5)}
    np.savez("data.npz", phi_test=draw.normal(size=(5, 2, 3)), **arrays)
    Path("mine.toml").write_text(CONFIG)
    killed(COMMANDS[name], monkeypatch)
    assert_damaged_files_are_refused(COMMANDS[name], monkeypatch)
    assert "Traceback" not in capsys.readouterr().err
