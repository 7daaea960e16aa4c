"""A small problem, of one compilation, that tests of sweeps share."""

from pathlib import Path

import numpy as np

from theorykit import bpkr
from theorykit.bpkr import sweeps

ARCHITECTURE = bpkr.Architecture(layers=(2,), widths=1, prior_variances=(1.1, 0.8, 1.3), temperature=1.0)
GRID = {"width": (20, 80), "temperature": (0.1, 0.5)}


def random_data(seed: int) -> bpkr.Data:
    """Signs of one path's first feature, from 12 examples of 2 paths."""
    draw = np.random.default_rng(seed)
    features, test_features = draw.normal(size=(12, 2, 20)) / 4, draw.normal(size=(9, 2, 20)) / 4
    return bpkr.Data(features, np.sign(features[:, 0, 0]), test_features, np.sign(test_features[:, 0, 0]))


def swept(data: bpkr.Data, folder: Path | None = None, **settings):
    """The sweep of `data` over GRID, or another grid in `settings`."""
    return sweeps.sweep(ARCHITECTURE, data, **{**GRID, "folder": folder, "progress": False, **settings})
