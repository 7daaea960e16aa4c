"""Clusters of dask by TCP: the scripts of examples/clusters run, and give the numbers of one process."""

import importlib
import os
import re
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import jax
import jax.numpy as jnp
import pytest
import xarray as xr

from theorykit.workers import open_executor, run_tasks

from .clusters import CLUSTERS, ROOT, cores, environment, pair, run_by_one_core

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="workers cannot be bound to cores")


@pytest.mark.slow
def test_the_script_for_a_cluster_that_is_there_goes_on_from_its_folder(tmp_path):
    with pair(tmp_path) as (_, address):
        for _ in range(2):
            finished = run_by_one_core(tmp_path, str(CLUSTERS / "plain.py"), address, "out")
            assert finished.returncode == 0, finished.stderr
    assert "temperature" in finished.stdout
    assert_solved(tmp_path / "out" / "saddles.nc")


def assert_solved(path: Path) -> None:
    with xr.open_dataset(path, engine="h5netcdf") as found:
        assert found["converged"].values.all() and found["log_evidence"].shape == (4, 3)


def thirds(values: jax.Array) -> tuple[float, int, int]:
    """In the precision of the worker, and the cores and threads that it has."""
    return float(jnp.sum(values) / 3), len(os.sched_getaffinity(0)), len(jax.devices())


@pytest.mark.slow
def test_workers_that_were_told_to_compute_in_single_precision_do_not_and_have_a_core_each(tmp_path):
    values = jnp.array([1.0, 1e-12])
    with pair(tmp_path, JAX_ENABLE_X64="0") as (_, address), open_executor(None, address) as client:
        assert client.run(lambda: os.environ["JAX_ENABLE_X64"]) == dict.fromkeys(client.nthreads(), "0")
        assert sorted(client.run(lambda: tuple(os.sched_getaffinity(0))).values()) == [(core,) for core in cores(2)]
        for _, found in run_tasks(client, thirds, [(values,)] * 4):
            assert found == (float(jnp.sum(values) / 3), 1, 1)


class Silent(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextmanager
def web_server() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Silent) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@contextmanager
def full_queue() -> Iterator[int]:
    """A port of which the system drops the packets that ask for a connection: as many wait as may."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(server.getsockname())
        yield server.getsockname()[1]
        for one in waiting:
            one.close()


@contextmanager
def other_protocol() -> Iterator[int]:
    """A program that speaks first, and not as dask does."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet():
            connection, _ = server.accept()
            connection.sendall(b"SSH-2.0-OpenSSH_9.2 and more of the kind\r\n")

        Thread(target=greet, daemon=True).start()
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("serving", "said"),
    [
        (web_server, "no valid answer"),
        (full_queue, "Timed out|no valid answer"),
        (other_protocol, "another program"),
    ],
    ids=["web server", "full queue", "other protocol"],
)
def test_an_address_where_no_scheduler_answers_is_named(serving, said, monkeypatch):
    monkeypatch.setattr("theorykit.workers._PATIENCE", 0.2)
    named = rf"no dask scheduler answers at \S+:\d+: .*({said})"
    with serving() as port, pytest.raises(ValueError, match=named):
        open_executor(None, f"tcp://127.0.0.1:{port}").__enter__()


def write_program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.slow
def test_a_worker_sees_one_gpu(tmp_path):
    write_program(tmp_path / "nvidia-smi", "echo 0; echo 1")
    write_program(tmp_path / "dask", 'echo "$CUDA_VISIBLE_DEVICES $XLA_PYTHON_CLIENT_PREALLOCATE $*"')
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    command = ["sh", str(CLUSTERS / "gpu_workers.sh"), "tcp://10.0.0.1:8786"]
    printed = subprocess.run(
        command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True
    ).stdout
    for gpu, line in enumerate(sorted(printed.splitlines())):
        assert line.startswith(f"{gpu} false worker tcp://10.0.0.1:8786 --nworkers 1 --nthreads 1 ")
    assert gpu == 1


@pytest.fixture
def slurm(monkeypatch):
    """The script for SLURM, as a module."""
    pytest.importorskip("dask_jobqueue")
    monkeypatch.syspath_prepend(str(CLUSTERS))
    yield importlib.import_module("slurm")
    for name in ("slurm", "plain"):
        sys.modules.pop(name, None)


@pytest.mark.slow
def test_a_job_of_slurm_has_one_worker_of_one_thread(slurm):
    asked = {"queue": "short", "memory": "6GiB", "walltime": "02:30:00"}
    with slurm.cluster_of_cores(cores=3, **asked) as cluster:
        of_cores, address = cluster.job_script(), cluster.scheduler_address
    with slurm.cluster_of_gpus(cores=8, **asked) as cluster:
        of_gpus = cluster.job_script()
    for script, count in ((of_cores, 3), (of_gpus, 8)):
        directives = re.findall(r"^#SBATCH (.*)$", script, re.MULTILINE)
        assert {"-p short", "-n 1", f"--cpus-per-task={count}", "--mem=6G", "-t 02:30:00"} <= set(directives)
        assert "export THEORYKIT_CACHE=" in script and "OMP_NUM_THREADS=1" not in script
        (command,) = re.findall(r"^.* -m distributed\.cli\.dask_worker .*$", script, re.MULTILINE)
        assert "--nthreads 1 " in command and "--nworkers" not in command and script.rstrip().endswith(command)
    assert address in of_cores and "export JAX_PLATFORMS=cpu" in of_cores and "gpu" not in of_cores
    assert "#SBATCH --gpus=1\n" in of_gpus and "export XLA_PYTHON_CLIENT_PREALLOCATE=false" in of_gpus
    assert "JAX_PLATFORMS" not in of_gpus


@pytest.mark.slow
def test_the_script_for_slurm_runs_to_its_end_where_jobs_are_processes_of_this_machine(slurm, tmp_path):
    write_program(tmp_path / "sbatch", 'cp "$1" job.sh; sh job.sh > job.log 2>&1 & echo "Submitted batch job $!"')
    write_program(tmp_path / "scancel", 'kill "$@"')
    path = os.pathsep.join([str(tmp_path), environment()["PATH"]])
    modules = os.pathsep.join([str(ROOT), *sys.path])
    command = [sys.executable, str(CLUSTERS / "slurm.py"), "out", "--queue", "short", "--jobs", "1"]
    options = {"env": environment(PATH=path, PYTHONPATH=modules), "cwd": tmp_path, "timeout": 500}
    finished = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert finished.returncode == 0, finished.stderr
    assert_solved(tmp_path / "out" / "saddles.nc")
