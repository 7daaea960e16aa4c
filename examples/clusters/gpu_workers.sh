#!/bin/sh
# Start one dask worker per GPU of this machine; each sees only its GPU:  sh gpu_workers.sh tcp://10.0.0.1:8786
set -eu
address=$1
export THEORYKIT_CACHE="${THEORYKIT_CACHE:-$HOME/.cache/theorykit}"
export JAX_COMPILATION_CACHE_DIR="${JAX_COMPILATION_CACHE_DIR:-$THEORYKIT_CACHE/jax/$(uname -n)}"
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0
# By default JAX reserves three quarters of the GPU memory at its first array.
export XLA_PYTHON_CLIENT_PREALLOCATE=false

for gpu in $(nvidia-smi --query-gpu=index --format=csv,noheader); do
    CUDA_VISIBLE_DEVICES=$gpu dask worker "$address" --nworkers 1 --nthreads 1 --name "$(uname -n)-gpu-$gpu" &
done
trap 'kill 0' INT TERM
wait
