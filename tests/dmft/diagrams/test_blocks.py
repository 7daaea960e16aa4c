"""Orbits in blocks: every orbit once and in order, in blocks that suit the device."""

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
