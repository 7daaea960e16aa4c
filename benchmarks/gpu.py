"""The same solves on the CPU and on the GPU, in double precision, side by side.

    python benchmarks/gpu.py

Needs `pip install '.[cuda]'` and a device; without one it says so and times the CPU alone.
"""

import statistics
import sys
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import theorykit
from theorykit import bpkr

sys.path.insert(0, str(Path(__file__).parent))
import problems

CASES = {
    "hidden Markov, P = 100, 4 paths": ((2, 2), 100, 231, 0.01),
    "one-shot size, P = 600, 16 paths": ((4, 4), 600, 192, 0.1),
    "one-shot size, P = 600, 27 paths": ((3, 3, 3), 600, 192, 0.1),
    "P = 2000, 16 paths": ((4, 4), 2000, 192, 0.1),
}
WIDTHS = (10.0, 100.0)


@eqx.filter_jit
def solved(architecture, features, labels):
    return bpkr.solve(architecture, features, labels, tolerance=1e-8)


def on_device(device, heads, examples, features, temperature, width):
    """Median seconds of a solve there, after compilation, and the solution."""
    with jax.default_device(device):
        architecture = bpkr.Architecture(heads, width, temperature=temperature)
        architecture = jax.tree.map(lambda number: jnp.asarray(number, dtype=jnp.float64), architecture)
        data = problems.random_features(examples, architecture.paths, features)
        data = jax.tree.map(lambda array: jax.device_put(array, device), data)
        saddle = jax.block_until_ready(solved(architecture, *data))
        times = []
        for _ in range(3):
            start = time.perf_counter()
            saddle = jax.block_until_ready(solved(architecture, *data))
            times.append(time.perf_counter() - start)
    return statistics.median(times), saddle


def main() -> None:
    theorykit.enable_float64()
    cpu, gpus = jax.devices("cpu")[0], [device for device in jax.devices() if device.platform == "gpu"]
    if not gpus:
        print("no GPU: times of the CPU alone")
    print(f"{'':34} {'N':>6} {'CPU':>9} {'GPU':>9} {'ratio':>7}  largest difference of U_1")
    for name, (heads, examples, features, temperature) in CASES.items():
        for width in WIDTHS:
            case = (heads, examples, features, temperature, width)
            seconds, saddle = on_device(cpu, *case)
            line = f"{name:34} {width:6.0f} {seconds:8.3f}s"
            if gpus:
                there, other = on_device(gpus[0], *case)
                ours, theirs = (np.asarray(s.order_parameters.matrices[0]) for s in (saddle, other))
                line += f" {there:8.3f}s {seconds / there:7.1f}  {np.max(np.abs(ours - theirs)):.1e}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
