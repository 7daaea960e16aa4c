"""The parameters of training."""

import jax
import numpy as np
import xarray as xr

from tests.bpkr.training.test_gradient_descent import ARCHITECTURE, DATA, FEATURES
from theorykit import bpkr
from theorykit.bpkr import training

from .engine import Face
from .values import of

NETWORK = training.initial_network(ARCHITECTURE, 3, FEATURES, key=jax.random.key(0))
LABELLED = training.label_network(NETWORK)
WITHOUT_QUERIES = bpkr.sample_network(
    bpkr.Architecture((2,), 6, temperature=0.1),
    bpkr.heads(key_query=[np.ones((2, 5, 5))]),
    input_features=5,
    key=jax.random.key(0),
)
FACE = Face(
    training,
    {
        "architecture": of(ARCHITECTURE, layers=(2, 2), network=NETWORK),
        "network": of(NETWORK, heads=NETWORK.heads),
        "label_network.network": of(NETWORK, "heads", without_queries=WITHOUT_QUERIES),
        "training validation": of(DATA, examples=DATA(3, key=jax.random.key(0)), array=np.ones((3, 4, FEATURES))),
        "settings": of(training.TrainingSettings(steps=1, batch=2, validation_examples=2), steps=3),
        "progress": False,
        "weights": of(
            LABELLED,
            *("embedding", "readout"),
            array=LABELLED["embedding"],
            without_its_readout=LABELLED.drop_attrs(),
            of_another_readout=LABELLED.assign_attrs(readout="middle"),
            with_nan=LABELLED.assign(embedding=LABELLED["embedding"] * np.nan),
            without_a_weight=LABELLED.drop_vars("embedding"),
            empty=xr.Dataset(),
        ),
    },
    made="Trained Examples",
    given={"train": ("settings", "progress")},
)
