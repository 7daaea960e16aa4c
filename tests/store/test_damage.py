"""Kept files that were cut, changed or are of others: each refused in one line that names the file, none misread."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
import xarray as xr

from papers.one_shot import SMALL
from papers.one_shot.sources import _characters
from tests.bpkr.sampling.problems import problem, quietly
from tests.bpkr.training.test_gradient_descent import ARCHITECTURE, FEATURES, Direction
from tests.marks import slow
from theorykit import bpkr, store
from theorykit.bpkr import sampling, sweeps
from theorykit.bpkr.training import TrainingSettings, initial_network, train
from theorykit.dmft.diagrams import ORBIT, in_blocks

FLIPS = 40
SCHEDULE = sampling.Schedule(chains=1, warmup=1, draws=2)


class Run(NamedTuple):
    """A run in a folder, and the file that it leaves there."""

    run: Callable[[Path], Any]
    file: str


def trained(folder: Path):
    network = initial_network(ARCHITECTURE, 3, FEATURES, key=jax.random.key(0))
    data = Direction(np.arange(1.0, FEATURES + 1))
    settings = TrainingSettings(steps=1, batch=2, validation_examples=2)
    options = {"key": jax.random.key(1), "settings": settings, "folder": folder, "progress": False}
    return train(network, data, data, **options)


def sampled(folder: Path):
    return quietly(sampling.sample_weights_by_gibbs, *problem()[:3], schedule=SCHEDULE, folder=folder)


def sweep_at(place, folder: Path):
    architecture, features, labels, _ = problem()
    options = {"widths": place[:1], "temperatures": place[1:], "folder": folder, "progress": False}
    return sweeps.sweep(architecture, bpkr.Data(features, labels), **options)


def swept(folder: Path):
    return sweep_at((20, 0.5), folder)


def diagrammed(folder: Path):
    def compute(block: np.ndarray) -> xr.Dataset:
        return xr.Dataset({"square": (ORBIT, block.astype(float) ** 2), "name": (ORBIT, block.astype(str))})

    return in_blocks(compute, 5, settings=store.settings_of("squares", 1, of=5), folder=folder)


def summed(folder: Path):
    features, labels = np.arange(24.0).reshape(4, 2, 3), np.arange(4.0)
    return bpkr.Data.of_arrays(features, labels, chunk=2, checkpoint=folder / "sums.npz").moments


def drawn(folder: Path):
    strokes = replace(SMALL.images, training=1, validation=1, test=1, drawings=2)
    return _characters(strokes, folder / "characters.npz")


RUNS = {
    "chains": Run(sampled, "chain-0.npz"),
    "training": Run(trained, "training.npz"),
    "point": Run(swept, "points/width=20,temperature=0.5.nc"),
    "block": Run(diagrammed, "000000-000004.nc"),
    "statistics": Run(summed, "sums.npz"),
    "characters": Run(drawn, "characters.npz"),
}


_LONG = ("training", "point", "characters")
_EVERY = [*(name for name in RUNS if name not in _LONG), *slow(_LONG)]


@pytest.fixture(scope="module", params=_EVERY)
def kept(request, tmp_path_factory):
    """A run, and the file that it left, whole."""
    folder = tmp_path_factory.mktemp(request.param)
    RUNS[request.param].run(folder)
    return RUNS[request.param], folder, folder / RUNS[request.param].file


def assert_refused(run: Run, folder: Path, path: Path) -> None:
    with pytest.raises(ValueError) as caught:
        run.run(folder)
    message = str(caught.value)
    assert str(path) in message and "remove" in message and "\n" not in message, message


def test_a_file_that_was_cut_or_changed_anywhere_is_refused_by_name(kept):
    run, folder, path = kept
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    tried = 0
    for content in (
        b"",
        b"something else",
        whole + b"\n",
        *(whole[:length] for length in rng.integers(1, len(whole), FLIPS)),
        *(flipped(whole, int(bit)) for bit in rng.integers(0, 8 * len(whole), FLIPS)),
    ):
        path.write_bytes(content)
        assert_refused(run, folder, path)
        assert path.read_bytes() == content, "nothing is replaced that was not read"
        tried += 1
    path.unlink()
    path.mkdir()
    assert_refused(run, folder, path)
    path.rmdir()
    path.write_bytes(whole)
    run.run(folder)
    print(f"{tried} damaged files")


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("name", _EVERY)
def test_a_file_in_place_of_the_folder_is_refused(name, tmp_path):
    (tmp_path / "run").write_bytes(b"mine")
    with pytest.raises(FileExistsError, match=r"run is a file, but .* remove the file") as caught:
        RUNS[name].run(tmp_path / "run")
    assert "\n" not in str(caught.value) and (tmp_path / "run").read_bytes() == b"mine"


def test_a_file_of_another_program_is_not_replaced(tmp_path):
    path = tmp_path / "part.nc"
    xr.Dataset({"mine": 1.0}, attrs={"settings": "a"}).to_netcdf(path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"part\.nc is not a part of a run"):
        store.resume(path, {"settings": "a"}, lambda: pytest.fail("computed"))
    assert path.read_bytes() == before


def test_the_point_of_another_place_is_refused(tmp_path):
    swept(tmp_path)
    here = tmp_path / "points" / "width=20,temperature=0.5.nc"
    for name, place in (("width=30,temperature=0.5.nc", (30, 0.5)), ("width=20,temperature=0.6.nc", (20, 0.6))):
        (here.parent / name).write_bytes(here.read_bytes())
        with pytest.raises(ValueError, match=r"has another width or temperature than its name; remove it"):
            sweep_at(place, tmp_path)


def test_runs_of_a_version_that_described_them_otherwise_are_refused(tmp_path):
    settings = store.settings_of("squares", 1, of=5)
    store.keep(xr.Dataset({"a": 1}), {**settings, "description": "0"}, tmp_path / "part.nc")
    with pytest.raises(FileExistsError, match="of another version of theorykit"):
        store.read_kept(tmp_path / "part.nc", settings)
    np.savez(tmp_path / "chain-0.npz", settings=np.array(json.dumps({"architecture": "Architecture()"})), steps=3)
    with pytest.raises(ValueError, match=r"chain-0\.npz is not a checkpoint of a run of chains from theorykit"):
        sampled(tmp_path)


def test_another_version_of_a_computation_is_another_run(tmp_path):
    one, two = store.settings_of("squares", 1, of=5), store.settings_of("squares", 2, of=5)
    store.write_arrays({"a": np.ones(2)}, one, tmp_path / "run.npz")
    with pytest.raises(FileExistsError, match="differs in version: 1 there, 2 now"):
        store.read_arrays(tmp_path / "run.npz", "squaring", two)
    store.keep(xr.Dataset({"a": 1}), one, tmp_path / "part.nc")
    with pytest.raises(FileExistsError, match="holds another squares, which differs in version: 1 there, 2 now"):
        store.read_kept(tmp_path / "part.nc", two)
    assert store.read_kept(tmp_path / "part.nc", one) is not None
