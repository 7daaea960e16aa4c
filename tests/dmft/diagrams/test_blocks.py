"""Orbits in blocks: every orbit once, finished blocks kept, nothing computed twice."""

import threading

import numpy as np
import pytest
import xarray as xr

from theorykit import progress, store
from theorykit.dmft.diagrams import ORBIT, in_blocks

OF = {name: store.settings_of("squares", 1, of=name) for name in ("a", "b")}


def squares(calls: list):
    def compute(block: np.ndarray) -> xr.Dataset:
        calls.append(block)
        return xr.Dataset({"square": (ORBIT, block.astype(float) ** 2)})

    return compute


@pytest.mark.parametrize("orbits, size", [(1, 4), (7, 3), (12, 4), (5, 100)])
def test_every_orbit_is_there_once_and_in_order(orbits, size):
    calls: list[np.ndarray] = []
    found = in_blocks(squares(calls), orbits, settings=OF["a"], orbits_per_block=size)
    np.testing.assert_array_equal(found["square"], np.arange(orbits) ** 2.0)
    assert len({len(block) for block in calls}) == 1, "blocks of several sizes are compiled several times"


def test_an_accelerator_has_larger_blocks_but_goes_on_with_those_that_are_kept(tmp_path, monkeypatch):
    """And a processor with those of an accelerator."""
    devices, calls = ("cpu", "gpu"), {name: [] for name in ("cpu", "gpu", "again")}
    for device in devices:
        monkeypatch.setattr("jax.default_backend", lambda device=device: device)
        in_blocks(squares(calls[device]), 5000, settings=OF["a"], folder=tmp_path / device)
    assert [max(map(len, calls[device])) for device in devices] == [250, 2500]
    for device, other in (devices, devices[::-1]):
        monkeypatch.setattr("jax.default_backend", lambda other=other: other)
        removed = sorted((tmp_path / device).glob("*.nc"))[0]
        removed.unlink()
        found = in_blocks(squares(calls["again"]), 5000, settings=OF["a"], folder=tmp_path / device)
        np.testing.assert_array_equal(found["square"], np.arange(5000) ** 2.0)
    assert list(map(len, calls["again"])) == [250, 2500]


def test_finished_blocks_are_kept_and_a_stopped_run_goes_on(tmp_path):
    def fails_late(block: np.ndarray) -> xr.Dataset:
        if block[0] >= 6:
            raise RuntimeError("stopped")
        return squares([])(block)

    asked = {"settings": OF["a"], "folder": tmp_path, "orbits_per_block": 3}
    with pytest.raises(RuntimeError, match="stopped"):
        in_blocks(fails_late, 10, **asked)
    assert len(list(tmp_path.glob("*.nc"))) == 2
    calls: list[np.ndarray] = []
    found = in_blocks(squares(calls), 10, **asked)
    assert sorted(int(block[0]) for block in calls) == [6, 9]
    np.testing.assert_array_equal(found["square"], np.arange(10) ** 2.0)
    xr.testing.assert_identical(in_blocks(fails_late, 10, **asked), found)


def test_blocks_of_other_settings_are_refused_before_any_is_computed(tmp_path):
    in_blocks(squares([]), 4, settings=OF["a"], folder=tmp_path)
    calls: list[np.ndarray] = []
    with pytest.raises(FileExistsError, match="holds another squares, which differs in of: 'a' there, 'b' now"):
        in_blocks(squares(calls), 4, settings=OF["b"], folder=tmp_path)
    assert not calls


@pytest.mark.parametrize(
    "size, said", [(100, "orbit diagram: 5 orbits"), (2, "orbit diagram: 5 orbits in 3 blocks of at most 2")]
)
def test_the_cost_of_orbits_is_said_first(size, said, monkeypatch, capsys):
    monkeypatch.setattr(progress, "_DELAY", -1.0)
    refreshed = threading.Event()

    def waits(block: np.ndarray) -> xr.Dataset:
        assert refreshed.wait(60.0)
        return squares([])(block)

    def tell(line: str) -> None:
        print(line)
        refreshed.set()

    monkeypatch.setattr(progress, "tell", tell)
    in_blocks(waits, 5, settings=OF["a"], orbits_per_block=size)
    assert capsys.readouterr().out.splitlines()[0] == said
