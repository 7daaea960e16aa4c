"""Runs in folders: if they are killed, damaged, shared or changed, they return the right numbers or an error."""

import errno
import itertools
import os
import re
import resource
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
import xarray as xr

import theorykit
from tests.marks import slow
from tests.processes import CONTEXT, PATIENCE, exit_code, start
from theorykit import bpkr, cli, dmft, dynamics, store
from theorykit.bpkr import sampling, sweeps

Result = xr.Dataset | xr.DataTree
ARCHITECTURE = bpkr.Architecture((2,), 3, temperature=0.3)
_DRAW = np.random.default_rng(5)
FEATURES, LABELS, TEST_FEATURES = _DRAW.normal(size=(7, 2, 3)), _DRAW.normal(size=7), _DRAW.normal(size=(4, 2, 3))
DATA = bpkr.Data(FEATURES, LABELS, TEST_FEATURES)
# The smallest possible change of one feature.
NUDGED = np.array(FEATURES)
NUDGED[6, 1, 2] = np.nextafter(NUDGED[6, 1, 2], np.inf)
SAMPLERS = ("gibbs", "exact", "nuts")
FLIPS = 2


def swept(folder: Path, *, problem: bpkr.Architecture = ARCHITECTURE, data: bpkr.Data = DATA, **options: Any) -> Result:
    grid = {"width": (5, 20), "temperature": (0.1, 1.0)}
    return sweeps.sweep(problem, data, **grid, **options, folder=folder, progress=False)


def sampled(
    folder: Path | None,
    *,
    sampler: str = SAMPLERS[0],
    data: bpkr.Data = DATA,
    seed: int = 0,
    draws: int = 80,
    **numbers: Any,
) -> Result:
    schedule = sampling.Schedule(chains=2, warmup=40, draws=draws)
    architecture, key = replace(ARCHITECTURE, **numbers), jax.random.key(seed)
    return sampling.sample(
        architecture, data, sampler=sampler, key=key, schedule=schedule, folder=folder, progress=False
    )


def mapped(folder: Path, *, epsilon: float = 0.02, transient: int = 60, lowest: float = -0.5) -> Result:
    network = dmft.self_attention_limit(dmft.published_weights(), 4)

    def start_at(parameters):
        return dmft.state_from_window(network, parameters, np.linspace(lowest, 0.5, 12).reshape(4, 3), 1)

    # Eight blocks.
    gammas = np.repeat([127.0, 139.7], 140)
    parameters = dmft.Parameters(np.tile(np.linspace(0.5, 1.0, 140), 2), gammas, epsilon)
    asked = {"transient": transient, "recorded": 40, "observe": lambda state, _: state.latest}
    return dynamics.orbits(network, parameters, start_at, folder=folder, progress=False, **asked)


def commanded(folder: Path, *, features: np.ndarray = FEATURES, tolerance: float = 1e-9) -> Result:
    folder.mkdir(exist_ok=True)
    np.savez(folder / "data.npz", phi=features, y=LABELS, phi_test=TEST_FEATURES)
    tables = [
        "[architecture]\nlayers = [2]",
        '[data]\nfile = "data.npz"\nfeatures = "phi"\nlabels = "y"\ntest_features = "phi_test"',
        f"[solver]\ntolerance = {tolerance}",
        "[sweep]\nwidths = [5, 20]\ntemperatures = [0.1, 1.0]",
    ]
    (folder / "mine.toml").write_text("\n".join(tables))
    arguments, before = sys.argv, os.getcwd()
    try:
        os.chdir(folder)
        sys.argv = ["theorykit", "sweep", "mine.toml", "--overwrite"]
        cli.main()
    finally:
        sys.argv = arguments
        os.chdir(before)
    return store.read(folder / "mine-sweep.nc")


class Kind(NamedTuple):
    """A kind of run, the number of its first pieces that survive a kill, and changes that make it another run."""

    run: Callable[..., Result]
    survivors: int
    changes: tuple[Mapping[str, Any], ...]


NUDGED_DATA = {"data": replace(DATA, features=NUDGED)}
OTHER_PRIOR = replace(ARCHITECTURE, prior_variances=2.0)
KINDS = {
    "sweep": Kind(swept, 2, (NUDGED_DATA, {"tolerance": 1e-6}, {"problem": OTHER_PRIOR})),
    "sampler": Kind(sampled, 1, (NUDGED_DATA, {"seed": 1}, {"prior_variances": 2.0}, {"temperature": 0.31})),
    "diagram": Kind(mapped, 1, ({"epsilon": 0.03}, {"transient": 64}, {"lowest": -0.4})),
    "command": Kind(commanded, 2, ({"features": NUDGED}, {"tolerance": 1e-6})),
}
QUICK = ["sweep", "sampler", "diagram", *slow(["command"])]


def run(name: str, folder: Path, **changes: Any) -> Result:
    # All processes compile with the same options, so numbers are equal bit for bit.
    jax.config.update("jax_disable_most_optimizations", True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sampling.MixingWarning)
        return KINDS[name].run(folder, **changes)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Callable[[str], tuple[Result, Path]]:
    """Return a function that returns the result of a kind of run without interruption, and its folder."""
    found = {}
    jax.clear_caches()

    def result(name: str) -> tuple[Result, Path]:
        if name not in found:
            folder = tmp_path_factory.mktemp(name)
            found[name] = run(name, folder), folder
        return found[name]

    return result


def numbers(result: Result) -> dict[str, np.ndarray]:
    """Return all values except times."""
    nodes = [result] if isinstance(result, xr.Dataset) else [node.dataset for node in result.subtree]
    found = {f"{i}/{name}": each.values for i, node in enumerate(nodes) for name, each in node.variables.items()}
    return {name: values for name, values in found.items() if not name.endswith("/seconds")}


def assert_same(found: Result, expected: Result) -> None:
    found, expected = numbers(found), numbers(expected)
    assert set(found) == set(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def pieces(folder: Path) -> list[Path]:
    """Return the files that a run keeps, without inputs and results of the command."""
    others = ("data.npz", "mine.toml", "mine-sweep.nc", "mine-sweep.png")
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in others)
    return sorted(path for path in files if not path.name.startswith("."))


def stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in pieces(folder)}


def run_until_killed(name: str, folder: Path) -> None:
    """Run, and kill this process after the last surviving piece, before the next one gets its name."""
    theorykit.enable_float64()
    rename, number = os.replace, itertools.count(1)

    def replace_or_die(source, target, **options):
        if folder in Path(target).parents and next(number) > KINDS[name].survivors:
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target, **options)

    os.replace = replace_or_die
    run(name, folder)


@pytest.mark.parametrize("name", ["sampler", "diagram", *slow(["sweep", "command"])])
def test_a_killed_run_resumes_bit_for_bit_from_its_finished_pieces(name, whole, tmp_path):
    assert exit_code(start(run_until_killed, name, tmp_path)) == -signal.SIGKILL
    finished = stamps(tmp_path)
    assert len(finished) == KINDS[name].survivors
    assert_same(run(name, tmp_path), whole(name)[0])
    there = stamps(tmp_path)
    assert len(there) == len(pieces(whole(name)[1])) > len(finished)
    assert {path: there[path] for path in finished} == finished, "finished pieces are not computed again"
    assert_same(run(name, tmp_path), whole(name)[0])
    assert stamps(tmp_path) == there


@pytest.mark.parametrize("sampler", [SAMPLERS[0], *slow(SAMPLERS[1:])])
def test_chains_continue_exactly_when_more_draws_are_wanted(sampler, tmp_path):
    expected = run("sampler", None, sampler=sampler)
    run("sampler", tmp_path, sampler=sampler, draws=50)
    assert_same(run("sampler", tmp_path, sampler=sampler), expected)
    fewer = run("sampler", tmp_path, sampler=sampler, draws=60)["posterior"]["U_1"]
    np.testing.assert_array_equal(fewer, expected["posterior"]["U_1"][:, :60])


def damages(content: bytes, result: Result) -> Iterator[bytes]:
    """Yield truncated files, a file of another program, and files with one flipped bit."""
    yield from (b"", b"something else", content[: len(content) // 2], content[:-1])
    floats = (values for values in numbers(result).values() if values.dtype == float and values.size)
    found = (content.find(values.ravel()[-1].tobytes()) for values in floats)
    # Flip bits of numbers in the result, if the file has them uncompressed, and bits anywhere.
    places = [place + 5 for place in found if place >= 0][:FLIPS]
    for place in (*places, *np.random.default_rng(0).integers(0, len(content), FLIPS)):
        changed = bytearray(content)
        changed[place] ^= 4
        yield bytes(changed)


@pytest.mark.parametrize("name", QUICK)
def test_a_damaged_piece_is_refused_by_name_or_computed_again(name, whole, tmp_path):
    expected, folder = whole(name)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    piece = pieces(tmp_path)[-1]
    content = piece.read_bytes()
    for damaged in damages(content, expected):
        piece.write_bytes(damaged)
        try:
            found = run(name, tmp_path)
        except (ValueError, OSError, SystemExit) as refusal:
            assert piece.name in str(refusal)
        else:
            assert_same(found, expected)
    piece.write_bytes(content)
    assert_same(run(name, tmp_path), expected)


@pytest.mark.parametrize("name", QUICK)
def test_a_full_disk_is_reported_and_keeps_finished_pieces(name, whole, tmp_path, monkeypatch):
    rename, number = os.replace, itertools.count(1)

    def full(source, target, **options):
        if tmp_path in Path(target).parents and next(number) > KINDS[name].survivors:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rename(source, target, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises((OSError, SystemExit), match="No space left on device"):
            run(name, tmp_path)
    finished = stamps(tmp_path)
    assert len(finished) == KINDS[name].survivors
    assert not [path for path in tmp_path.rglob(".*")]
    assert_same(run(name, tmp_path), whole(name)[0])
    assert {path: stamps(tmp_path)[path] for path in finished} == finished


def run_with_short_files(name: str, folder: Path, limit: int) -> None:
    """Run in a process whose files may have `limit` bytes, and exit with 3 if the error names a file."""
    theorykit.enable_float64()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        run(name, folder)
    except (OSError, SystemExit) as error:
        os._exit(3 if str(folder.name) in str(error) else 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sweep", "sampler", "diagram"])
def test_a_piece_that_is_cut_while_it_is_written_is_not_kept(name, whole, tmp_path):
    assert exit_code(start(run_with_short_files, name, tmp_path, 1000)) == 3
    assert not pieces(tmp_path)
    assert_same(run(name, tmp_path), whole(name)[0])


def run_together(name: str, warm: Path, shared: Path, barrier: Any) -> None:
    theorykit.enable_float64()
    run(name, warm)
    barrier.wait(PATIENCE)
    run(name, shared)


@pytest.mark.parametrize("name", ["sampler", *slow(("sweep", "diagram"))])
def test_two_processes_share_a_folder(name, whole, tmp_path):
    expected, barrier = whole(name)[0], CONTEXT.Barrier(2)
    other = start(run_together, name, tmp_path / "warm", tmp_path / "shared", barrier)
    barrier.wait(PATIENCE)
    found = run(name, tmp_path / "shared")
    assert exit_code(other) == 0
    assert_same(found, expected)
    assert_same(run(name, tmp_path / "shared"), expected)
    assert not [path for path in tmp_path.rglob(".*")]


@pytest.mark.parametrize("name", QUICK)
def test_another_run_is_refused_and_changes_nothing(name, whole):
    expected, folder = whole(name)
    before = stamps(folder)
    for change in KINDS[name].changes:
        with pytest.raises((FileExistsError, SystemExit), match=r"another|differs"):
            run(name, folder, **change)
        assert stamps(folder) == before
    assert_same(run(name, folder), expected)


@pytest.mark.parametrize("name", ["sweep", "sampler", "diagram"])
def test_a_result_is_read_as_it_was_written(name, whole, tmp_path):
    result, path = whole(name)[0], tmp_path / "a" / "result.nc"
    with pytest.raises(FileNotFoundError, match=r"result\.nc"):
        store.read(path)
    store.write(result, path)
    read = store.read(path)
    xr.testing.assert_identical(read.to_dataset() if isinstance(result, xr.Dataset) else read, result)
    content = path.read_bytes()
    for damaged in damages(content, result):
        path.write_bytes(damaged)
        try:
            assert_same(store.read(path), result)
        except ValueError as refusal:
            assert path.name in str(refusal)


def test_a_file_is_replaced_only_on_demand_and_never_in_part(tmp_path, monkeypatch):
    result, path = xr.Dataset({"accuracy": ("width", np.array([0.9, 0.8]))}, {"width": [10, 100]}), tmp_path / "a.nc"
    store.write(result, path)
    with pytest.raises(FileExistsError, match=r"a\.nc exists"):
        store.write(2 * result, path)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(OSError, match=re.escape(str(path))):
        patch.setattr(os, "replace", full)
        store.write(2 * result, path, overwrite=True)
    assert os.listdir(tmp_path) == ["a.nc"]
    xr.testing.assert_identical(store.read(path).to_dataset(), result)
    store.write(2 * result, path, overwrite=True)
    xr.testing.assert_identical(store.read(path).to_dataset(), 2 * result)
    (tmp_path / "mine.nc").write_text("mine")
    with pytest.raises(FileExistsError, match=r"mine\.nc exists"):
        store.write(result, tmp_path / "mine.nc")
    assert (tmp_path / "mine.nc").read_text() == "mine"
