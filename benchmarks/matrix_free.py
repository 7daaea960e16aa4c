"""Estimate the energy of many examples without the kernel: time, memory and error against the dense form.

    python benchmarks/matrix_free.py [examples] [features of a path] [probes]

The features are random, with four paths and a decaying spectrum. Prints seconds and peak memory of one estimate of
energy and gradient in a separate process, and the error of the energy; the exact value comes from the D x D Gram matrix
in NumPy. The P x P form is timed too, for at most 12,000 examples: its kernel and its factor must both fit in memory.
"""

import json
import math
import resource
import subprocess
import sys
import time

import numpy as np

from theorykit.bpkr import Data, Problem

LAYERS, WIDTHS, TEMPERATURE = (2, 2), 100.0, 0.01
DENSE_LIMIT = 12_000


def data(examples: int, features: int) -> tuple[np.ndarray, np.ndarray]:
    """Return path features with a power-law spectrum, and labels that one path explains up to noise."""
    rng = np.random.default_rng(0)
    paths = math.prod(LAYERS)
    array = rng.standard_normal((examples, paths, features))
    array *= np.arange(1, features + 1) ** -0.75 * math.sqrt(features / paths / features)
    labels = array[:, 0] @ rng.standard_normal(features) + 0.1 * rng.standard_normal(examples)
    return array, labels


def exact(features: np.ndarray, labels: np.ndarray) -> float:
    """Return the energy at infinite width, U_1 = I, from the D x D Gram matrix."""
    flat = features.reshape(len(features), -1)
    gram = flat.T @ flat + TEMPERATURE * np.eye(flat.shape[1])
    factor = np.linalg.cholesky(gram)
    log_det = 2 * np.sum(np.log(np.diagonal(factor))) + (len(flat) - len(gram)) * math.log(TEMPERATURE)
    projected = np.linalg.solve(factor, flat.T @ labels)
    return log_det + (labels @ labels - projected @ projected) / TEMPERATURE


def measured(form: str, examples: int, features: int, probes: int) -> dict[str, float]:
    """Time a first and a second call; return their result, seconds and peak memory."""
    import jax

    import theorykit
    from theorykit import bpkr
    from theorykit.bpkr.evaluation.action_terms import action_terms
    from theorykit.bpkr.evaluation.bound_action import bind
    from theorykit.bpkr.matrix_free.solver import MatrixFree, estimate_energy

    theorykit.enable_float64()
    architecture = bpkr.Architecture(LAYERS, WIDTHS, temperature=TEMPERATURE)
    limit = bpkr.gp_limit(architecture)
    array, labels = data(examples, features)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def dense():
        value_and_slope = jax.value_and_grad(
            lambda point: action_terms(bind(architecture), point, array, labels).energy
        )
        return {"value": float(jax.block_until_ready(value_and_slope(limit))[0])}

    def matrix_free():
        options = MatrixFree(jax.random.key(0), probes=probes)
        estimate = estimate_energy(Problem(architecture, Data(array, labels)), limit, options)
        names = ("value", "standard_error", "bias")
        slopes, stats = estimate.slopes, {name: float(value) for name, value in estimate.stats.items()}
        relative = float(np.max(slopes.logdet_gradient_error) / np.max(slopes.logdet_gradient))
        return {**{name: float(getattr(estimate, name)) for name in names}, **stats, "logdet_gradient_error": relative}

    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        result = dense() if form == "dense" else matrix_free()
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {**result, "first": seconds[0], "second": seconds[1], "peak": peak / 1e6, "before": before / 1e6}


def in_own_process(form: str, *sizes: int) -> dict[str, float]:
    """Call `measured` in a fresh process, so that peak memory counts nothing else."""
    command = [sys.executable, __file__, "--measure", form, *map(str, sizes)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main(examples: int = 20_000, features: int = 512, probes: int = 32) -> None:
    columns = math.prod(LAYERS) * features
    sizes = 8e-9 * examples * columns, 8e-9 * examples**2
    print(f"P = {examples}, D = {columns}: features {sizes[0]:.2f} GB, kernel {sizes[1]:.2f} GB")
    value = exact(*data(examples, features))
    result = in_own_process("matrix_free", examples, features, probes)
    report("matrix-free", result)
    deviation = result["value"] - value
    print(
        f"    exact energy {value:.6g}, estimate off by {deviation:.3g}; stated: {result['standard_error']:.3g} "
        f"(standard error), {result['bias']:.2g} (bias); largest standard error of the gradient "
        f"{result['logdet_gradient_error']:.2g} of its largest entry"
    )
    print(
        f"    Lanczos order {result['order']:.0f}, {result['steps']:.0f} steps of conjugate gradients, condition of "
        f"the whitened kernel {result['condition']:.3g}"
    )
    if examples <= DENSE_LIMIT:
        report("dense", in_own_process("dense", examples, features, probes))
    else:
        print(f"dense        not run: the kernel, its factor and the gradient of each take {sizes[1]:.1f} GB")


def report(name: str, result: dict[str, float]) -> None:
    """Print one line of times and memory."""
    print(
        f"{name:12} {result['first']:6.1f} s for the first call, {result['second']:6.1f} s for the second; "
        f"peak {result['peak']:.2f} GB, {result['before']:.2f} of it before"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measured(sys.argv[2], *map(int, sys.argv[3:]))))
    else:
        main(*map(int, sys.argv[1:]))
