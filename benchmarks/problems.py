"""Data of the benchmarks, and their harness: timing, fresh processes, options and results."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import theorykit
from theorykit import bpkr

theorykit.enable_float64()

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
sys.path[1:1] = [str(ROOT), str(ROOT / "examples")]


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


def timed(call: Callable) -> tuple[Any, tuple[float, float]]:
    """Return the result of a call, and its wall-clock and processor seconds."""
    begun, busy = time.perf_counter(), time.process_time()
    found = jax.block_until_ready(call())
    return found, (time.perf_counter() - begun, time.process_time() - busy)


def seconds(call: Callable, repeats: int) -> float:
    """Return the median wall-clock time of a call."""
    return statistics.median(timed(call)[1][0] for _ in range(repeats))


def fresh(program: str, cache: str, **environment: str) -> dict:
    """Run a program in a fresh process, and return the JSON that it prints.

    `cache` is the folder of compiled code, or "off".
    """
    known = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "THEORYKIT_"))}
    known |= {"THEORYKIT_CACHE": cache, **environment}
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, env=known, check=True, stdout=subprocess.PIPE)
    return json.loads(ended.stdout)


def in_process(function: Callable, *arguments: Any) -> Any:
    """Call a function in a fresh process."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(function, *arguments).result()


def medians(runs: list[dict]) -> dict:
    """Return median seconds of parts, each a pair of wall-clock and processor time."""
    names = ("seconds", "processor_seconds")
    return {
        part: {name: statistics.median(run[part][i] for run in runs) for i, name in enumerate(names)}
        for part in runs[0]
    }


def parser_of(document: str, name: str) -> argparse.ArgumentParser:
    """Return a parser of `--json`, by default results/`name`.json."""
    parser = argparse.ArgumentParser(description=document.splitlines()[0])
    parser.add_argument("--json", type=Path, default=RESULTS / f"{name}.json")
    return parser


def run(document: str, name: str, cases: Mapping[str, Callable], **options: Mapping) -> None:
    """Run the cases that `--only` selects, and keep the results of others.

    A case is called with the parsed options and returns its result for the JSON file.
    """
    parser = parser_of(document, name)
    parser.add_argument("--only", nargs="+", choices=list(cases), default=list(cases))
    for option, about in options.items():
        parser.add_argument(f"--{option}", **about)
    chosen = parser.parse_args()
    for case in chosen.only:
        result = cases[case](chosen)
        print(case, json.dumps(result), flush=True)
        found = json.loads(chosen.json.read_text()) if chosen.json.exists() else {}
        chosen.json.write_text(json.dumps(found | {case: result}, indent=1) + "\n")
