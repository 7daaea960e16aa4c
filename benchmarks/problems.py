"""What the benchmarks share: data, fresh processes, options and files of results."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import jax
import jax.numpy as jnp

from theorykit import bpkr

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))


def hidden_markov_chains(examples: int = 100):
    """Return path features (examples, 4, 231) and labels of the paper's first task."""
    from papers.tasks import HiddenMarkovTask

    task, (data_key, heads_key) = HiddenMarkovTask(), jax.random.split(jax.random.key(0))
    sample = task(examples, key=data_key)
    attention = bpkr.attention(sample.inputs, key_query=task.heads(key=heads_key))
    architecture = bpkr.Architecture((2, 2), 1.0, temperature=1.0)
    features = bpkr.path_features(sample.inputs, attention, architecture, "last")
    return features, sample.labels


def random_features(examples: int = 600, paths: int = 16, features: int = 192):
    """Return normal path features of expected squared norm one, and random labels."""
    features_key, labels_key = jax.random.split(jax.random.key(0))
    shape = (examples, paths, features)
    values = jax.random.normal(features_key, shape) / jnp.sqrt(paths * features)
    return values, jax.random.rademacher(labels_key, (examples,), dtype=float)


def seconds(call, repeats: int = 5) -> float:
    """Return the median wall-clock time of a call, compilation excluded."""
    jax.block_until_ready(call())
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def fresh(program: str, cache: str, **environment: str) -> dict:
    """Run a program in a fresh process, and return the JSON that it prints.

    `cache` is the folder of compiled code, or "off".
    """
    known = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "THEORYKIT_"))}
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(EXAMPLES)])
    known |= {"THEORYKIT_CACHE": cache, "PYTHONPATH": path, **environment}
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, env=known, check=True, stdout=subprocess.PIPE)
    return json.loads(ended.stdout)


def medians(runs: list[dict]) -> dict:
    """Return median seconds of parts, each a pair of wall-clock and processor time."""
    names = ("seconds", "processor_seconds")
    return {
        part: {name: statistics.median(run[part][i] for run in runs) for i, name in enumerate(names)}
        for part in runs[0]
    }


def parser_of(document: str, name: str, cases: Iterable[str] = ()) -> argparse.ArgumentParser:
    """Return a parser of `--json`, by default results/`name`.json, and of `--only` if there are cases."""
    parser = argparse.ArgumentParser(description=document.splitlines()[0])
    results = Path(__file__).parent / "results" / f"{name}.json"
    parser.add_argument("--json", type=Path, default=results)
    if cases:
        parser.add_argument("--only", nargs="+", choices=list(cases), default=list(cases))
    return parser


def record(path: Path, name: str, result: dict) -> None:
    """Write the result of a case, and keep those of other cases."""
    found = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(found | {name: result}, indent=1) + "\n")
