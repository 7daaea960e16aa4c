"""`theorykit sweep --scheduler` with a scheduler and workers that it reaches by TCP."""

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import xarray as xr

from tests.clusters import environment, pair, run_by_one_core, wait_for
from theorykit import store

from .terminal import CONFIG

SWEEP = CONFIG.replace("widths = [20, 15, 10]\n", "").replace("temperature = 0.2\n", "") + (
    "\n[sweep]\nwidths = [10, 20, 40, 80]\ntemperatures = [0.05, 0.1, 0.2, 0.5, 1]\n"
)
COMMAND = ("-c", "from theorykit import cli; cli.main()", "sweep", "mine.toml")
PATIENCE = 60


def swept(folder: Path, *options: str) -> xr.Dataset:
    """What the command writes, but for the times."""
    finished = run_by_one_core(folder, *COMMAND, *options)
    assert finished.returncode == 0, finished.stderr
    return store.read(folder / "mine-sweep.nc").to_dataset().drop_vars("seconds")


@pytest.fixture
def alone(folder):
    """The sweep by one process; `folder` is as it was before."""
    (folder / "mine.toml").write_text(SWEEP)
    found = swept(folder)
    shutil.rmtree(folder / "mine-sweep")
    for written in folder.glob("mine-sweep.*"):
        written.unlink()
    return found


@pytest.mark.slow
def test_a_sweep_by_a_scheduler_and_workers_is_that_of_one_process(alone, folder, tmp_path_factory):
    with pair(tmp_path_factory.mktemp("cluster")) as (_, address):
        xr.testing.assert_identical(swept(folder, "--scheduler", address), alone)


@pytest.mark.slow
def test_where_the_scheduler_is_killed_the_command_ends_and_its_folder_goes_on(alone, folder, tmp_path_factory):
    logs = tmp_path_factory.mktemp("cluster")
    command, log = [sys.executable, *COMMAND], logs / "command.log"
    with (
        pair(logs) as (process, address),
        log.open("w") as output,
        subprocess.Popen([*command, "--scheduler", address], cwd=folder, env=environment(), stderr=output) as begun,
    ):
        wait_for(lambda: any((folder / "mine-sweep").rglob("*.nc")), log)
        process.send_signal(signal.SIGKILL)
        assert begun.wait(PATIENCE) == 1
    (said,) = re.findall("^theorykit: .*", log.read_text(), re.MULTILINE)
    assert f"the dask scheduler at {address} was lost" in said
    assert "Traceback" not in log.read_text()
    assert not (folder / "mine-sweep.nc").exists()
    xr.testing.assert_identical(swept(folder), alone)
