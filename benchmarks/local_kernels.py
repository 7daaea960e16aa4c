"""Solve local kernel renormalisation with `bpkr.solve` and with the published program; compare times and solutions.

    pip install -e '.[benchmarks]'
    python benchmarks/local_kernels.py [--limit 300] [--gibibytes 16] [--output FOLDER]

The network is one convolutional layer with erf units. The data are P Gaussian images of n patches with labels from a
linear teacher, and there are P channels or P/20. The published program (deepbays 0.1.11, by the authors of
arXiv:2307.11807) searches for zeros of the action's gradient with respect to all n^2 entries of Q. It uses a root
finder without a Jacobian. It runs in a separate process, which is ended after `--limit` seconds or at `--gibibytes` of
memory. Both programs are timed from images to order parameters. For `bpkr.solve` the time excludes compilation; the
first call is recorded too. Writes local_kernels.json into FOLDER (benchmarks/results by default) after each case. Cases
that are in the file are not run again.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import resource
import sys
import time
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np

EXAMPLES = (60, 200, 500, 1000, 2000)
PATCHES = (4, 16, 64)
# Channels per example. With few channels the order parameters are far from the start of the root finder.
CHANNELS = (1.0, 0.05)
SIDE = 4  # side length of a patch
TEMPERATURE = 0.1
REPEATS = 3
# Largest size of the kernels of pairs of patches, in bytes. The solver has about two more arrays of that size.
LARGEST_KERNELS = 5e9


def images_and_labels(examples: int, patches: int) -> tuple[np.ndarray, np.ndarray]:
    """Return Gaussian images (examples, side, side) and labels from a linear teacher, weak on most patches."""
    random = np.random.default_rng(examples + patches)
    side = SIDE * round(patches**0.5)
    images = random.normal(size=(examples, side, side))
    teacher = random.normal(size=(side, side))
    teacher[SIDE:] *= 0.2
    return images, np.sum(images * teacher, axis=(1, 2)) / np.linalg.norm(teacher)


def own(examples: int, patches: int, channels: float) -> dict:
    """Time `bpkr.solve`; return times and the order parameters in the published program's convention."""
    from generic import timed

    from theorykit import bpkr

    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    from papers.tasks.images import cut_into_patches

    images, labels = images_and_labels(examples, patches)
    architecture = bpkr.Architecture((), channels, temperature=TEMPERATURE, read_tokens=patches, embedding="erf")

    def run():
        features = bpkr.path_features(cut_into_patches(images, SIDE), [], architecture)
        return bpkr.solve(architecture, bpkr.Data(features, labels))

    found, first, median = timed(run, REPEATS)
    return {
        "first_seconds": first,
        "seconds": median,
        "converged": bool(found.converged),
        "evaluations": int(found.stats["evaluations"]),
        "order_parameters": np.asarray(found.order_parameters.readout).tolist(),
    }


def run_published(examples: int, patches: int, channels: float, gibibytes: float, evaluations, ending) -> None:
    """Run the published program in this process, and send its results or its error."""
    os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))
    resource.setrlimit(resource.RLIMIT_DATA, (int(gibibytes * 2**30),) * 2)
    # deepbays imports cupy for its GPU class, which is not used here.
    sys.modules |= {name: MagicMock() for name in ("cupy", "cupy.cuda")}
    import torch
    from deepbays.rkgp.theory_1HL_CONV import CONV_1HL

    class Counted(CONV_1HL):
        def computeActionGrad(self, Q):
            gradient = super().computeActionGrad(Q)
            evaluations.value += 1
            return gradient

    images, labels = images_and_labels(examples, patches)
    theory = Counted(Nc=channels, T=TEMPERATURE, mask=SIDE, stride=SIDE, act="erf")
    ending.send("ready")
    start = time.perf_counter()
    try:
        theory.preprocess(images.reshape(examples, -1), torch.tensor(labels))
        theory.optimize()
    except (MemoryError, RuntimeError) as error:
        ending.send({"error": "memory" if "alloc" in str(error) or not str(error) else str(error)[:200]})
        return
    ending.send(
        {
            "seconds": time.perf_counter() - start,
            "converged": bool(theory.converged),
            "largest_gradient": float(np.max(np.abs(theory.grad))),
            "order_parameters": np.asarray(theory.optQ).tolist(),
        }
    )


def published(examples: int, patches: int, channels: float, limit: float, gibibytes: float) -> dict:
    """Time the published program; return its results or why it ended, and its seconds and gradient evaluations."""
    context = multiprocessing.get_context("spawn")
    evaluations = context.Value("i", 0)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=run_published, args=(examples, patches, channels, gibibytes, evaluations, sender))
    process.start()
    sender.close()
    # Import time is not counted.
    receiver.recv()
    start = time.perf_counter()
    try:
        found = receiver.recv() if receiver.poll(limit) else {"error": "time"}
    except EOFError:
        process.join()
        found = {"error": f"exit code {process.exitcode}"}
    lasted = time.perf_counter() - start
    process.kill()
    process.join()
    return {"seconds": lasted, "evaluations": evaluations.value, **found}


def compared(examples: int, patches: int, channels: float, limit: float, gibibytes: float) -> dict:
    """Solve one case with both programs, and compare the order parameters."""
    ours = own(examples, patches, channels)
    theirs = published(examples, patches, channels, limit, gibibytes)
    case = {"examples": examples, "patches": patches, "channels": channels, "unknowns": patches**2}
    mine, other = np.array(ours.pop("order_parameters")), theirs.pop("order_parameters", None)
    if other is not None:
        theirs["difference"] = float(np.max(np.abs(np.array(other) - mine)))
        theirs["smallest_eigenvalue"] = float(np.linalg.eigvalsh((np.array(other) + np.transpose(other)) / 2)[0])
    return {**case, "own": ours, "published": theirs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=300.0)
    parser.add_argument("--gibibytes", type=float, default=16.0)
    parser.add_argument("--examples", type=int, nargs="+", default=EXAMPLES)
    parser.add_argument("--patches", type=int, nargs="+", default=PATCHES)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    import jax
    from table_of_local_kernels import HEAD, row

    import theorykit

    theorykit.enable_float64()
    arguments.output.mkdir(parents=True, exist_ok=True)
    path = arguments.output / "local_kernels.json"
    result = json.loads(path.read_text()) if path.exists() else {"cases": []}
    result |= {"jax": jax.__version__, "device": jax.devices()[0].device_kind, "cores": len(os.sched_getaffinity(0))}
    print(" | ".join(HEAD))
    result |= {"limit_seconds": arguments.limit, "limit_gibibytes": arguments.gibibytes}
    for ratio, patches, examples in itertools.product(CHANNELS, arguments.patches, arguments.examples):
        case = (examples, patches, ratio * examples)
        if patches * (patches + 1) / 2 * examples**2 * 8 > LARGEST_KERNELS:
            print(f"P = {examples:4}, {patches:2} patches: kernels larger than {LARGEST_KERNELS:.0e} bytes, not run")
        elif case not in [(done["examples"], done["patches"], done["channels"]) for done in result["cases"]]:
            result["cases"].append(compared(*case, arguments.limit, arguments.gibibytes))
            path.write_text(json.dumps(result, indent=1) + "\n")
            print(" | ".join(row(result["cases"][-1], arguments.gibibytes)), flush=True)


if __name__ == "__main__":
    main()
