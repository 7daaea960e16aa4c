"""Whatever a user does ends in one line that names it: no traceback, nothing computed, replaced or left behind."""

import copy
import json
import math
import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from theorykit import bpkr, cli
from theorykit.bpkr import sampling, sweeps

ROOT = Path(__file__).parent.parent.parent
SUBCOMMANDS = ("solve", "sweep", "compare")
RESULTS = {"sweep": "mine-sweep.nc", "compare": "mine-comparison.nc"}
CONFIG = {
    "architecture": {"layers": [2], "widths": 6, "temperature": 0.2, "prior_variances": 1.0, "outputs": 1},
    "data": {
        "file": "data.npz",
        "features": "phi",
        "labels": "y",
        "test_features": "phi_test",
        "test_labels": "y_test",
    },
    "solver": {"tolerance": 1e-9, "max_steps": 500},
    "output": {},
    "sweep": {"widths": [6.0], "temperatures": [0.2]},
    "compare": {"approaches": ["saddle", "exact"], "chains": 1, "draws": 4, "warmup": 4, "seed": 0},
}


class Computed(BaseException):
    """In the place of what takes time: the command was content with what it was given."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A user's folder with data and a configuration, for commands that stop before they compute."""
    draw = np.random.default_rng(0)
    arrays = {"phi": draw.normal(size=(6, 2, 3)), "y": np.ones(6)}
    np.savez(tmp_path / "data.npz", phi_test=draw.normal(size=(5, 2, 3)), y_test=np.ones(5), **arrays)
    (tmp_path / "mine.toml").write_text(written(CONFIG))
    monkeypatch.chdir(tmp_path)

    def computed(*args, **kwargs):
        raise Computed

    for place, name in ((bpkr, "solve"), (sampling, "compare"), (sweeps, "sweep"), (bpkr, "derive")):
        monkeypatch.setattr(place, name, computed)
    return tmp_path


def written(config: dict) -> str:
    tables = (
        f"[{name}]\n" + "\n".join(f"{key} = {toml(value)}" for key, value in table.items())
        for name, table in config.items()
    )
    return "\n".join(tables) + "\n"


def toml(value) -> str:
    if isinstance(value, bool | str):
        return json.dumps(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return str(value)


def outcome(monkeypatch, *arguments: str, main=cli.main, program="theorykit") -> str | None:
    """What the command says when it refuses, or None where it would have computed; a traceback fails the test."""
    monkeypatch.setattr(sys, "argv", ["program", *arguments])
    try:
        main()
    except Computed:
        return None
    except SystemExit as leaving:
        if leaving.code == 2:
            return "usage"
        assert isinstance(leaving.code, str) and leaving.code.startswith(f"{program}: "), leaving.code
        assert "\n" not in leaving.code and len(leaving.code) < 1500
        return leaving.code
    raise AssertionError("the command finished")


def snapshot(folder: Path) -> dict[str, bytes]:
    """The files, and the kind of what is none."""
    paths = folder.rglob("*")
    return {str(path): path.read_bytes() if path.is_file() else b"%o" % path.lstat().st_mode for path in paths}


BAD = [
    *(0, -1, 2.5, 10**20, -(10**20), 10**400, 1e308, 1e-320, math.nan, math.inf, -math.inf, True, False),
    *("", "a", "\u0000", "x" * 300, "..", "/", ".nc", "/dev/null", "\u0000.nc", "/proc/x.nc", "data.nc/x.nc"),
    *([], [[]], [0.0], [math.nan], ["a"], [10**20], [1, 1, 1], {}, [{"kind": "dense"}], date(2020, 1, 1)),
    *([{"kind": "attention", "heads": -1}], [{"kind": "dense", "skip": math.nan}]),
]


KEYS = [(table, key) for table, of_table in CONFIG.items() for key in of_table] + [
    *(("output", "file"), ("sweep", "file"), ("compare", "file"), ("data", "key_query"), ("data", "readout"))
]


@pytest.mark.slow
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_every_key_of_the_configuration_with_every_bad_value(every, folder, monkeypatch):
    """All subcommands in turn; the slow test tries all 864, the quick one a fifth of them."""
    refused, tried = 0, 0
    for number, (table, key) in enumerate(KEYS):
        for bad in BAD[number % every :: every]:
            tried += 1
            changed = copy.deepcopy(CONFIG)
            changed[table][key] = bad
            (folder / "mine.toml").write_text(written(changed))
            refused += outcome(monkeypatch, SUBCOMMANDS[tried % 3], "mine.toml") is not None
    # what is left is admissible, or for another command, or refused by what computes
    assert tried >= 864 // every - len(KEYS) and refused > 0.9 * tried, (tried, refused)
    assert sorted(path.name for path in folder.iterdir()) == ["data.npz", "mine.toml"]


NAMES = [
    *("", ".", "/", "nowhere.toml", "nowhere/mine.toml", "mine.toml/x", "x" * 300, "a\0b", "/dev/null", "data.npz"),
    "\udcff",
]


@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
@pytest.mark.parametrize("name", NAMES)
def test_a_configuration_that_is_none_is_named(subcommand, name, folder, monkeypatch):
    before = snapshot(folder)
    assert outcome(monkeypatch, subcommand, name) is not None
    assert snapshot(folder) == before


CONTENTS = {
    "empty": b"",
    "not UTF-8": "[data]\nfile = 'ü'".encode("latin-1"),
    "UTF-16": "[data]".encode("utf-16"),
    "nested": b"a = " + b"[" * 100_000,
    "zeros": bytes(100),
    "half": b"[architecture]\nlayers = [2",
    "JSON": b'{"architecture": {}}',
    "twice": b"[data]\n[data]\n",
    "a big number": b"[solver]\nmax_steps = " + b"9" * 5000,
    "noise": np.random.default_rng(0).bytes(1000),
}


@pytest.mark.parametrize("content", CONTENTS)
def test_a_file_that_is_no_configuration_is_named(content, folder, monkeypatch):
    (folder / "mine.toml").write_bytes(CONTENTS[content])
    said = outcome(monkeypatch, "solve", "mine.toml")
    assert "mine.toml" in said and ("theorykit init" in said) == (content in ("not UTF-8", "noise", "UTF-16"))


def test_a_configuration_cut_at_every_tenth_byte_or_with_a_bit_turned_over(folder, monkeypatch):
    content, draw = (folder / "mine.toml").read_bytes(), np.random.default_rng(0)
    broken = [content[:length] for length in range(0, len(content), 10)]
    for _ in range(150):
        changed = bytearray(content)
        changed[draw.integers(len(content))] ^= 1 << draw.integers(8)
        broken.append(bytes(changed))
    outcomes = []
    for each in broken:
        (folder / "mine.toml").write_bytes(each)
        outcomes.append(outcome(monkeypatch, "sweep", "mine.toml"))
    assert sum(told is not None for told in outcomes) > 100


@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_data_that_are_damaged_or_missing_are_named_before_anything_is_computed(subcommand, folder, monkeypatch):
    data = folder / "data.npz"
    data.write_bytes(data.read_bytes()[:-100])
    assert "data.npz" in outcome(monkeypatch, subcommand, "mine.toml")
    data.unlink()
    assert "no data file data.npz" in outcome(monkeypatch, subcommand, "mine.toml")
    data.mkdir()
    assert "data.npz is a folder" in outcome(monkeypatch, subcommand, "mine.toml")


FILES = (
    *("mine.toml", "data.npz", "data.nc", "link.nc", "hard.nc", "./below/../data.nc", "result.png", "result"),
    *("result.npz", "data.nc/", "a folder.nc", "mine.txt", "fifo.nc", "/proc/no/result.nc"),
)


@pytest.mark.parametrize("overwrite", [(), ("--overwrite",)])
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(("subcommand", "table"), [("solve", "output"), ("sweep", "sweep"), ("compare", "compare")])
def test_no_output_is_an_input_or_of_another_kind(subcommand, table, file, overwrite, folder, monkeypatch):
    xr.Dataset({"phi": ("a", [1.0])}).to_netcdf(folder / "data.nc", engine="h5netcdf")
    os.symlink("data.nc", "link.nc")
    os.link("data.nc", "hard.nc")
    os.mkfifo("fifo.nc")
    for name in ("below", "a folder.nc"):
        (folder / name).mkdir()
    changed = {**CONFIG, table: {**CONFIG[table], "file": file}, "data": {**CONFIG["data"], "file": "data.nc"}}
    (folder / "mine.toml").write_text(written(changed))
    before = snapshot(folder)
    message = outcome(monkeypatch, subcommand, "mine.toml", *overwrite)
    assert message is not None and "--overwrite" not in message
    assert snapshot(folder) == before


@pytest.mark.parametrize("subcommand", ["sweep", "compare"])
@pytest.mark.parametrize("ending", [".png", ""])
def test_figures_and_folders_are_looked_at_before(subcommand, ending, folder, monkeypatch):
    other = (folder / RESULTS[subcommand]).with_suffix(ending)
    other.write_text("mine")
    for flags in ((), ("--overwrite",)):
        assert other.name in outcome(monkeypatch, subcommand, "mine.toml", *flags)
    assert other.read_text() == "mine"


BAD_LAYERS = ["0", "-1", "²", "٣", "9" * 5000, "1e3", "skip:" * 3000 + "2", "skip:skip:2", "dense:", "", "0x2", "2 2"]
BAD_OUTPUTS = (
    *("a.txt", "", ".", "/", "mine.toml", "/dev/null", "x" * 300 + ".md", "/proc/no/a.md", "mine.toml/a.md"),
    *("folder.md", "a.tex", "a.py", "a.MD", "notes.md"),
)
REFUSED = [
    *(("derive", "--layers", layer) for layer in BAD_LAYERS),
    ("derive", "--layers", "2", "relu"),
    *(("derive", "--layers", "2", "--outputs", value) for value in ("0", "-1")),
    *(("derive", "--layers", "2", "--output", name) for name in BAD_OUTPUTS),
    *(("derive", "--layers", "2", "--format", "latex", "--output", name) for name in ("a.md", "a.py", "a")),
    ("derive", "--layers", "2", "--format", "python", "--finite-width"),
]
USAGE = [
    *((), ("nosuch",), ("solve",), ("solve", "a", "b"), ("derive",), ("--nosuch",)),
    ("derive", "--layers", "2", "--format", "pdf"),
]


def named(arguments) -> str:
    return " ".join(argument[:20] for argument in arguments) or "nothing"


@pytest.mark.parametrize("arguments", REFUSED, ids=named)
def test_a_mistaken_command_is_refused_in_one_line(arguments, folder, monkeypatch):
    (folder / "folder.md").mkdir()
    (folder / "file").write_text("mine")
    (folder / "notes.md").write_text("mine")
    before = snapshot(folder)
    assert outcome(monkeypatch, *arguments, "--overwrite") is not None
    assert snapshot(folder) == before


@pytest.mark.parametrize("arguments", USAGE, ids=named)
def test_a_command_that_is_none_shows_its_usage(arguments, folder, monkeypatch, capsys):
    assert outcome(monkeypatch, *arguments) == "usage"
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("command", [(), *((name,) for name in (*SUBCOMMANDS, "derive"))], ids=named)
def test_help_is_given(command, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["theorykit", *command, "--help"])
    with pytest.raises(SystemExit) as leaving:
        cli.main()
    assert not leaving.value.code
    assert "usage: theorykit" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("mistake", "line"),
    [
        (
            OSError(28, "No space left on device", "a.nc"),
            "a.nc: No space left on device; free disk space and run it again",
        ),
        (PermissionError(13, "Permission denied", "a.nc"), "a.nc: Permission denied; choose a folder or file"),
        (OSError(30, "Read-only file system", "a.nc"), "a.nc: Read-only file system; choose a folder or file"),
        (OSError(5, "Input/output error"), "Input/output error"),
        (FileExistsError("a.nc exists"), "a.nc exists"),
        (ValueError("two\nlines"), "two lines"),
        (MemoryError(), "there is not enough memory (for this computation)"),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory"), "there is not enough memory (RESOURCE_EXHAUSTED"),
    ],
)
def test_what_the_system_says_comes_with_a_remedy(mistake, line):
    with pytest.raises(SystemExit) as leaving, cli.tell_in_one_line():
        raise mistake
    assert leaving.value.code.startswith(f"theorykit: {line}")


@pytest.mark.parametrize(
    "mistake", [TypeError, AttributeError, KeyError, AssertionError, RuntimeError, ZeroDivisionError]
)
def test_mistakes_of_the_program_keep_their_traceback(mistake):
    with pytest.raises(mistake), cli.tell_in_one_line():
        raise mistake("of the program")


def test_an_interruption_has_a_code_of_its_own(capsys):
    with pytest.raises(SystemExit) as leaving, cli.tell_in_one_line():
        raise KeyboardInterrupt
    assert leaving.value.code == 130
    assert capsys.readouterr().err.count("\n") == 1


INTERRUPTED = """
import hashlib, os, signal, threading, time
from theorykit import cli
signal.signal(signal.SIGINT, signal.default_int_handler)
cli._GRACE = 0.01

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

class Collected:
    def __del__(self):
        interrupt()
        time.sleep(0)

def compiled(delays, rounds):
    for delay in delays:
        threading.Timer(delay, interrupt).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", rounds)

def dropped():
    Collected()
    while True:
        time.sleep(0.01)

with cli.tell_in_one_line(), cli._answering_interrupts("theorykit"):
    {work}
"""


@pytest.mark.parametrize(
    ("work", "lines"),
    [("compiled([0.1], 10**6)", 2), ("compiled([0.1, 0.3], 10**9)", 2), ("dropped()", 1)],
    ids=["once", "twice", "while garbage is collected"],
)
def test_an_interruption_is_answered_while_compiled_code_runs(work, lines):
    """Python's own handler waits until such code returns; a second interruption ends the program at once."""
    command = [sys.executable, "-c", INTERRUPTED.replace("{work}", work)]
    options = {"capture_output": True, "text": True, "env": {**os.environ, "PYTHONPATH": str(ROOT)}, "timeout": 300}
    finished = subprocess.run(command, **options)
    *answers, last = finished.stderr.splitlines()
    assert len(answers) >= lines - 1 and finished.returncode == 130
    assert all(answer.startswith("theorykit: interrupted; stopping after") for answer in answers)
    assert last == f"theorykit: {cli._RESUMED}"


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_interrupted_full_and_closed_outputs_as_the_shell_sees_them(tmp_path, unbuffered):
    """Ctrl-C while it derives; a full disk behind standard output; a reader that has enough."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-m", "theorykit", "derive", "--layers", "2"]
    code = (
        "import os, signal, sys; from theorykit import bpkr, cli; "
        "signal.signal(signal.SIGINT, signal.default_int_handler); sys.argv[1:] = ['derive', '--layers', '2']; "
        "bpkr.derive = lambda architecture: os.kill(os.getpid(), signal.SIGINT); cli.main()"
    )
    started = {"env": environment, "cwd": tmp_path, "stderr": subprocess.PIPE, "text": True}
    interrupted = subprocess.Popen([sys.executable, "-c", code], **started)
    with open("/dev/full", "w") as no_room:
        full = subprocess.Popen(command, stdout=no_room, **started)
    closed = subprocess.Popen(command, stdout=subprocess.PIPE, **started)
    closed.stdout.close()
    errors = {process: process.stderr.read() for process in (interrupted, full, closed)}
    assert [process.wait() for process in errors] == [130, 1, 1]
    assert errors[interrupted].startswith("theorykit: interrupted") and errors[interrupted].count("\n") == 1
    assert "No space left on device" in errors[full] and errors[full].count("\n") == 1
    assert errors[closed] == ""
