"""Small networks and data that the samplers are tried on, and agreement in units of standard errors."""

import warnings

import jax
import numpy as np

from theorykit import bpkr
from theorykit.bpkr import Attention, Dense, Skip, sampling

EXAMPLES, TEST_EXAMPLES, INPUT_FEATURES = 8, 3, 3
NETWORKS = {
    "attention": ((2,), 3, 1),
    "singular": ((2, 2), 2, 1),
    "skip": ((Skip(2, 0.7),), 3, 1),
    "dense, two outputs": ((Attention(2), Dense()), 3, 2),
}


def problem(name="attention", temperature=0.3, **changes):
    """An architecture, features, labels and test features."""
    layers, width, outputs = NETWORKS[name]
    architecture = bpkr.Architecture(layers, changes.get("width", width), temperature=temperature, outputs=outputs)
    rng = np.random.default_rng(5)
    shape = (EXAMPLES + TEST_EXAMPLES, architecture.paths, INPUT_FEATURES)
    features = rng.normal(size=shape) / np.sqrt(architecture.paths)
    labels = 1.5 * rng.normal(size=(EXAMPLES, outputs))
    return architecture, features[:EXAMPLES], labels[:, 0] if outputs == 1 else labels, features[EXAMPLES:]


def quietly(sampler, architecture, *arrays, seed=0, **options):
    """Draws for data of `arrays`, without a progress bar, and without complaints of too few draws."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sampling.MixingWarning)
        data, key = bpkr.Data(*arrays), jax.random.key(seed)
        return sampling.sample(architecture, data, sampler=sampler, key=key, progress=False, **options)
