"""Make the problems of the benchmarks from a seed: hidden Markov chains, and random features of one-shot size."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp

from theorykit import bpkr

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from papers.tasks import hidden_markov

ONE_SHOT_FEATURES = 192


def hidden_markov_chains(examples: int = 100, seed: int = 0):
    """Return path features (examples, 4, 231) and labels of the paper's first task."""
    task = hidden_markov.HiddenMarkovTask()
    data_key, heads_key = jax.random.split(jax.random.key(seed))
    sample = hidden_markov.sample_examples(task, examples, key=data_key)
    attention = bpkr.attention(sample.inputs, key_query=hidden_markov.good_and_random_heads(task, key=heads_key))
    any_numbers = bpkr.Architecture((2, 2), 1.0, temperature=1.0)
    return bpkr.path_features(sample.inputs, attention, any_numbers, "last"), sample.labels


def random_features(examples: int = 600, paths: int = 16, features: int = ONE_SHOT_FEATURES, seed: int = 0):
    """Return Gaussian path features with expected squared norm one, and random labels +-1; one-shot size by default."""
    features_key, labels_key = jax.random.split(jax.random.key(seed))
    shape = (examples, paths, features)
    values = jax.random.normal(features_key, shape, dtype=jnp.float64) / jnp.sqrt(paths * features)
    return values, jax.random.rademacher(labels_key, (examples,), dtype=jnp.float64)
