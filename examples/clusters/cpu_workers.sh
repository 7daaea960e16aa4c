#!/bin/sh
# One dask worker for each core that this machine has for us, bound to it:  sh cpu_workers.sh tcp://10.0.0.1:8786
#
# XLA takes as many threads as its process has cores, whatever OMP_NUM_THREADS says: only the binding makes it one.
# Ends when the scheduler does, or with an interruption.
set -eu
address=$1
# derived actions are good for all machines, compiled code for those with the same instructions alone
export THEORYKIT_CACHE="${THEORYKIT_CACHE:-$HOME/.cache/theorykit}"
export JAX_COMPILATION_CACHE_DIR="${JAX_COMPILATION_CACHE_DIR:-$THEORYKIT_CACHE/jax/$(uname -n)}"
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0
export JAX_PLATFORMS=cpu OPENBLAS_NUM_THREADS=1

for core in $(python -c 'import os; print(*sorted(os.sched_getaffinity(0)))'); do
    taskset -c "$core" dask worker "$address" --nworkers 1 --nthreads 1 --name "$(uname -n)-core-$core" &
done
trap 'kill 0' INT TERM
wait
