"""Everything that is data goes through pickle and copies and comes back the same: to processes, and to disk."""

import copy
import functools
import pickle
from dataclasses import fields

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from papers import one_shot, self_attention_dynamics
from papers.tasks.images import image_set
from papers.tasks.one_shot import Episodes, OneShotTask
from tests.bpkr.sampling.problems import problem
from tests.bpkr.training.test_gradient_descent import ARCHITECTURE as TRAINED
from tests.bpkr.training.test_gradient_descent import FEATURES
from tests.checkpoints.files import HEADS, case
from tests.dmft.diagrams.networks import GAMMA, published
from tests.leaves import leaves
from tests.marks import slow
from theorykit import bpkr, checkpoints, dmft, store
from theorykit.bpkr import training
from theorykit.dmft.diagrams import OrbitSettings

ARCHITECTURE, FEATURE_VALUES, LABELS, _ = problem("dense, two outputs")
PIXELS = np.arange(4 * 64, dtype=np.uint8).reshape(4, 8, 8)


@functools.cache
def used_action() -> bpkr.Action:
    """One of which everything that it remembers has been asked for."""
    action = bpkr.derive(bpkr.Architecture((2,), 3, temperature=0.3))
    remembered = [name for name in dir(type(action)) if not name.startswith("_")]
    for name in remembered:
        getattr(action, name)
    assert len(vars(action)) > len(fields(action)) + 5
    return action


def order_parameters() -> bpkr.OrderParameters:
    return bpkr.gp_limit(ARCHITECTURE)


DATA = {
    "Architecture": lambda: ARCHITECTURE,
    "Architecture of arrays": lambda: ARCHITECTURE.with_arrays(),
    "layers": lambda: (bpkr.Attention(2), bpkr.Dense(), bpkr.Skip(bpkr.Attention(1), 0.5)),
    "OrderParameters": order_parameters,
    "Saddle": lambda: bpkr.solve(problem()[0], bpkr.Data(*problem()[1:3])),
    "Prediction": lambda: bpkr.Prediction(jnp.arange(3.0), jnp.ones(3)),
    "FeatureStatistics": lambda: bpkr.Data.of_arrays(FEATURE_VALUES, LABELS).moments,
    "Newton": bpkr.Newton,
    "AcceleratedSweeps": lambda: bpkr.AcceleratedSweeps(memory=3),
    "MatrixFree": lambda: bpkr.MatrixFree(jax.random.key(0)),
    "heads": lambda: bpkr.heads(key_query=[np.ones((2, 3, 3))]),
    "CheckpointHeads": lambda: checkpoints.read_heads(case("vit").arrays, layer=0, heads=HEADS),
    "Network": lambda: training.initial_network(TRAINED, 3, FEATURES, key=jax.random.key(0)),
    "TrainingSettings": training.TrainingSettings,
    "bpkr.Data": lambda: bpkr.Data(FEATURE_VALUES, LABELS),
    "Weights": dmft.published_weights,
    "SelfAttention": published,
    "Parameters": lambda: dmft.Parameters(np.array([1.0, 2.0]), GAMMA, 0.02),
    "Window": lambda: dmft.Window(np.zeros((4, 3)), 1),
    "State": lambda: dmft.window_start(
        published(), dmft.Parameters(1.0, GAMMA, 0.02), dmft.pattern_prompt(dmft.published_weights())
    ),
    "OrbitSettings": OrbitSettings,
    "OneShot": lambda: one_shot.SMALL,
    "SelfAttentionDynamics": self_attention_dynamics.SelfAttentionDynamics,
    "Episodes": lambda: Episodes(OneShotTask(), image_set(PIXELS, np.array([0, 0, 1, 1]), ["a", "b"])),
}
COPIES = {"pickle": lambda data: pickle.loads(pickle.dumps(data)), "deepcopy": copy.deepcopy, "copy": copy.copy}


@functools.cache
def made(name):
    return DATA[name]()


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("name", DATA)
def test_data_come_back_the_same(name, how):
    data = made(name)
    again = COPIES[how](data)
    assert type(again) is type(data)
    assert store.describe(it=again) == store.describe(it=data)
    assert [path for path, _ in leaves(again)] == [path for path, _ in leaves(data)]
    assert eqx.tree_equal(*(eqx.filter(each, eqx.is_array) for each in (data, again)))


@pytest.mark.parametrize("how", ["pickle", *slow(("deepcopy", "copy"))])
@pytest.mark.parametrize("symbolic", [used_action, dmft.derive], ids=["Action", "MeanField"])
def test_symbolic_results_come_back_the_same(symbolic, how):
    it = symbolic()
    again = COPIES[how](it)
    assert again.derivation.steps == it.derivation.steps
    for name in ("total", "kernel", "overlap", "attention"):
        assert getattr(again, name, None) == getattr(it, name, None)
    if isinstance(it, bpkr.Action):
        assert again.saddle_point_equations == it.saddle_point_equations
        assert bpkr.compile_action(again).terms.source == bpkr.compile_action(it).terms.source
