#!/bin/sh
# Start one dask worker per available core, bound to that core:  sh cpu_workers.sh tcp://10.0.0.1:8786
#
# XLA ignores OMP_NUM_THREADS and uses one thread per core of its process; only the binding limits it to one thread.
# Ends with the scheduler, or when interrupted.
set -eu
address=$1
# All machines can share derived actions, but compiled code needs a machine with the same instruction set.
export THEORYKIT_CACHE="${THEORYKIT_CACHE:-$HOME/.cache/theorykit}"
export JAX_COMPILATION_CACHE_DIR="${JAX_COMPILATION_CACHE_DIR:-$THEORYKIT_CACHE/jax/$(uname -n)}"
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0
export JAX_PLATFORMS=cpu OPENBLAS_NUM_THREADS=1

for core in $(python -c 'import os; print(*sorted(os.sched_getaffinity(0)))'); do
    taskset -c "$core" dask worker "$address" --nworkers 1 --nthreads 1 --name "$(uname -n)-core-$core" &
done
trap 'kill 0' INT TERM
wait
