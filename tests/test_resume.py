"""Runs in folders and in processes: killed, damaged, shared or changed, they give the right numbers or an error."""

import errno
import itertools
import os
import shutil
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
import xarray as xr
from joblib.externals.loky import get_reusable_executor

import theorykit
from tests.marks import slow
from tests.processes import CONTEXT, PATIENCE, exit_code, start
from theorykit import bpkr, dmft, dynamics
from theorykit.bpkr import sampling, sweeps
from theorykit.runs import write

Result = xr.Dataset | xr.DataTree
ARCHITECTURE = bpkr.Architecture((2,), 3, temperature=0.3)
_DRAW = np.random.default_rng(5)
FEATURES, LABELS, TEST_FEATURES = _DRAW.normal(size=(7, 2, 3)), _DRAW.normal(size=7), _DRAW.normal(size=(4, 2, 3))
DATA = bpkr.Data(FEATURES, LABELS, TEST_FEATURES)
NUDGED = np.array(FEATURES)  # by the smallest possible change
NUDGED[6, 1, 2] = np.nextafter(NUDGED[6, 1, 2], np.inf)


def swept(folder: Path, *, problem: bpkr.Architecture = ARCHITECTURE, data: bpkr.Data = DATA, **options: Any) -> Result:
    grid = {"width": (5, 20), "temperature": (0.1, 1.0)}
    return sweeps.sweep(problem, data, **grid, **options, folder=folder, progress=False)


def sampled(
    folder: Path | None,
    *,
    sampler: str = "gibbs",
    data: bpkr.Data = DATA,
    seed: int = 0,
    draws: int = 80,
    n_jobs: int = 1,
    **numbers: Any,
) -> Result:
    schedule = sampling.Schedule(chains=2, warmup=40, draws=draws)
    architecture, key = replace(ARCHITECTURE, **numbers), jax.random.key(seed)
    options = {"folder": folder, "n_jobs": n_jobs, "progress": False}
    return sampling.sample(architecture, data, sampler=sampler, key=key, schedule=schedule, **options)


def mapped(folder: Path, *, epsilon: float = 0.02, transient: int = 60, lowest: float = -0.5) -> Result:
    network = dmft.SelfAttention.from_weights(dmft.Weights.published(), 4)

    def start_at(parameters):
        return network.resume(parameters, np.linspace(lowest, 0.5, 12).reshape(4, 3), 1)

    gammas = np.repeat([127.0, 139.7], 140)
    parameters = dmft.Parameters(np.tile(np.linspace(0.5, 1.0, 140), 2), gammas, epsilon)
    asked = {"transient": transient, "recorded": 40, "observe": lambda state, _: state.attention[0]}
    return dynamics.orbits(network, parameters, start_at, folder=folder, progress=False, **asked)


class Kind(NamedTuple):
    """A kind of run, the number of its first pieces that survive a kill, and changes that make it another run."""

    run: Callable[..., Result]
    survivors: int
    changes: tuple[Mapping[str, Any], ...]


NUDGED_DATA = {"data": replace(DATA, features=NUDGED)}
KINDS = {
    "sweep": Kind(
        swept, 2, (NUDGED_DATA, {"tolerance": 1e-6}, {"problem": replace(ARCHITECTURE, prior_variances=2.0)})
    ),
    "sampler": Kind(sampled, 1, (NUDGED_DATA, {"seed": 1}, {"prior_variances": 2.0}, {"temperature": 0.31})),
    "diagram": Kind(mapped, 1, ({"epsilon": 0.03}, {"transient": 64}, {"lowest": -0.4})),
}


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
    nodes = [result] if isinstance(result, xr.Dataset) else [node.dataset for node in result.subtree]
    found = {f"{i}/{name}": each.values for i, node in enumerate(nodes) for name, each in node.variables.items()}
    return {name: values for name, values in found.items() if not name.endswith("/seconds")}


def assert_same(found: Result, expected: Result) -> None:
    found, expected = numbers(found), numbers(expected)
    assert set(found) == set(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def pieces(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))


def stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in pieces(folder)}


def run_until_killed(name: str, folder: Path) -> None:
    """Run, and kill this process after the last surviving piece, before the next one gets its name."""
    theorykit.enable_float64()
    rename, number, lock = os.replace, itertools.count(1), threading.Lock()

    def replace_or_die(source, target, **options):
        with lock:  # Another thread must not stop the process before this piece has its name.
            if folder in Path(target).parents and next(number) > KINDS[name].survivors:
                os.kill(os.getpid(), signal.SIGKILL)
            rename(source, target, **options)

    os.replace = replace_or_die
    run(name, folder)


@pytest.mark.parametrize("name", ["sampler", "diagram", *slow(["sweep"])])
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


@pytest.mark.parametrize("sampler", ["gibbs", *slow(["exact", "nuts"])])
def test_chains_continue_exactly_when_more_draws_are_wanted(sampler, tmp_path):
    expected = run("sampler", None, sampler=sampler)
    run("sampler", tmp_path, sampler=sampler, draws=50)
    assert_same(run("sampler", tmp_path, sampler=sampler), expected)
    fewer = run("sampler", tmp_path, sampler=sampler, draws=60)["posterior"]["U_1"]
    np.testing.assert_array_equal(fewer, expected["posterior"]["U_1"][:, :60])


def damages(content: bytes) -> Iterator[bytes]:
    yield from (b"", b"something else", content[: len(content) // 2], content[:-1])
    for place in np.random.default_rng(0).integers(0, len(content), 20):
        changed = bytearray(content)
        changed[place] ^= 4
        yield bytes(changed)


@pytest.mark.parametrize("name", KINDS)
def test_a_damaged_piece_is_refused_by_name_or_computed_again(name, whole, tmp_path):
    expected, folder = whole(name)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    piece = pieces(tmp_path)[-1]
    content = piece.read_bytes()
    for damaged in damages(content):
        piece.write_bytes(damaged)
        try:
            found = run(name, tmp_path)
        except ValueError as refusal:
            assert piece.name in str(refusal)
        else:
            assert_same(found, expected)
    piece.write_bytes(content)
    assert_same(run(name, tmp_path), expected)


@pytest.mark.parametrize("name", KINDS)
def test_a_full_disk_is_reported_and_keeps_finished_pieces(name, whole, tmp_path, monkeypatch):
    flush, number = os.fsync, itertools.count(1)

    def full(file):
        if next(number) > KINDS[name].survivors:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=rf"No space left on device: '{tmp_path}"):
            run(name, tmp_path)
    finished = stamps(tmp_path)
    assert len(finished) == KINDS[name].survivors
    assert not [path for path in tmp_path.rglob(".*")]
    assert_same(run(name, tmp_path), whole(name)[0])
    assert {path: stamps(tmp_path)[path] for path in finished} == finished


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
    assert not [path for path in tmp_path.rglob(".*")]


@pytest.mark.parametrize("name", KINDS)
def test_another_run_is_refused_and_changes_nothing(name, whole):
    expected, folder = whole(name)
    before = stamps(folder)
    for change in KINDS[name].changes:
        with pytest.raises(FileExistsError, match="has another run, which differs in "):
            run(name, folder, **change)
        assert stamps(folder) == before
    assert_same(run(name, folder), expected)


@pytest.mark.parametrize("name", slow(["sweep", "sampler"]))
def test_two_jobs_give_the_numbers_of_one(name, whole, tmp_path, monkeypatch):
    expected, folder = whole(name)
    get_reusable_executor().shutdown()
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    found, expected = numbers(run(name, tmp_path, n_jobs=2)), numbers(expected)
    assert [path.name for path in pieces(tmp_path)] == [path.name for path in pieces(folder)]
    for key, values in expected.items():
        if values.dtype == float:
            np.testing.assert_allclose(found[key], values, rtol=1e-12, atol=1e-12, err_msg=key)


def test_a_file_is_replaced_only_on_demand_and_never_in_part(tmp_path):
    path = tmp_path / "a" / "mine.txt"
    write("mine", path)
    with pytest.raises(FileExistsError, match=r"mine\.txt exists"):
        write("other", path)
    write(b"other", path, overwrite=True)
    assert path.read_text() == "other" and os.listdir(path.parent) == ["mine.txt"]
