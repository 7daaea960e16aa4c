"""Run a sweep on workers that SLURM starts, with `dask_jobqueue.SLURMCluster`: one worker per job.

    python slurm.py FOLDER --queue NAME [--jobs 16] [--cores 1] [--memory 4GiB] [--walltime 01:00:00]
    python slurm.py FOLDER --queue NAME --gpu [--jobs 4] [--cores 8]       # one GPU per worker
    python slurm.py FOLDER --queue NAME --show                             # prints the job script, submits nothing

Run it on a login node, or in a separate job that lasts longer; the scheduler is in this process. Only this process
needs access to FOLDER. If it dies, the same command resumes from FOLDER. Needs `pip install -e '.[cluster]'` in a
clone.
"""

import argparse
import os
import sys
from pathlib import Path

from dask_jobqueue import SLURMCluster
from distributed import Client
from plain import solve_grid

import theorykit

# Shell commands in every job, before its worker starts.
_SHARED = (
    'export THEORYKIT_CACHE="${THEORYKIT_CACHE:-$HOME/.cache/theorykit}"',
    'export JAX_COMPILATION_CACHE_DIR="${JAX_COMPILATION_CACHE_DIR:-$THEORYKIT_CACHE/jax/$(uname -n)}"',
    "export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0",
)


def cluster_of_cores(*, cores: int, **options: str) -> SLURMCluster:
    """Make workers with one Python thread; XLA uses one thread per core in the affinity of the job, that is `cores`."""
    prologue = [*_SHARED, "export JAX_PLATFORMS=cpu", f"export OPENBLAS_NUM_THREADS={cores}"]
    return SLURMCluster(cores=1, processes=1, job_cpu=cores, job_script_prologue=prologue, **options)


def cluster_of_gpus(*, cores: int, **options: str) -> SLURMCluster:
    """Make workers with one GPU each; SLURM sets CUDA_VISIBLE_DEVICES."""
    prologue = [*_SHARED, "export XLA_PYTHON_CLIENT_PREALLOCATE=false"]
    directives = {"job_extra_directives": ["--gpus=1"], "job_script_prologue": prologue}
    return SLURMCluster(cores=1, processes=1, job_cpu=cores, **directives, **options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--queue", required=True, help="partition of the jobs")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--cores", type=int, default=1, help="cores per job")
    parser.add_argument("--memory", default="4GiB", help="memory per job")
    parser.add_argument("--walltime", default="01:00:00", help="time limit per job")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--show", action="store_true")
    arguments = parser.parse_args()
    make = cluster_of_gpus if arguments.gpu else cluster_of_cores
    options = {name: getattr(arguments, name) for name in ("queue", "cores", "memory", "walltime")}
    with make(**options) as cluster:
        if arguments.show:
            print(cluster.job_script())
            return
        theorykit.enable_float64()
        arguments.folder.mkdir(parents=True, exist_ok=True)
        # Unlike `scale`, this also replaces jobs that have ended.
        cluster.adapt(minimum_jobs=arguments.jobs, maximum_jobs=arguments.jobs)
        with Client(cluster) as client:
            client.wait_for_workers(1)
            print("cores of each worker:", client.run(_cores), file=sys.stderr)
            solve_grid(client, arguments.folder)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


if __name__ == "__main__":
    main()
