"""What the parameters of the public callables of sampling are."""

import warnings
from functools import cache

import jax
import numpy as np
import xarray as xr

from tests.bpkr.sampling.problems import problem
from theorykit import bpkr
from theorykit.bpkr import sampling

from .engine import Face
from .sweeps_face import FIELDS, data, mistaken_data
from .values import Kind, flag, instance, number, path, text, whole_number

DATA = problem()
SCHEDULE = sampling.Schedule(chains=2, warmup=1, draws=3)
KEPT = sampling.Schedule(chains=2, warmup=1, draws=3, keep_weights=True)


@cache
def heads():
    return bpkr.heads(key_query=[np.ones((2, 3, 3))])


@cache
def draws(name="attention", **changes):
    warnings.simplefilter("ignore", sampling.MixingWarning)
    options = {"key": jax.random.key(0), "schedule": KEPT, "progress": False}
    architecture, features, labels, _ = problem(name, **changes)
    return sampling.sample_weights_by_gibbs(architecture, bpkr.Data(features, labels), **options)


def compared():
    error = {"U_1": ("approach", np.ones(2)), "U_1_error": ("approach", np.ones(2))}
    return xr.Dataset(error, coords={"approach": ["saddle", "exact"]})


def other_architectures():
    return {"the layers alone": (2,), "order parameters": bpkr.gp_limit(DATA[0])}


FACE = Face(
    sampling,
    {
        "architecture": instance(lambda: DATA[0], also=other_architectures),
        "data": instance(data, *FIELDS, also=mistaken_data),
        "schedule": instance(lambda: SCHEDULE, also=lambda: {"three numbers": (2, 1, 3)}),
        "sample_order_parameters.schedule": instance(lambda: SCHEDULE, also=lambda: {"of weights": KEPT}),
        "no_u_turn": instance(lambda: sampling.NoUTurn(max_tree_depth=2), also=lambda: {"a rate alone": 0.8}),
        "key": instance(lambda: jax.random.key(0), also=lambda: {"two keys": jax.random.split(jax.random.key(0))}),
        "chains": whole_number(1, least=1),
        "warmup": whole_number(1, least=0),
        "draws": whole_number(2, least=1),
        "target_accept": number(0.7, above=0.0, most=0.99),
        "max_tree_depth": whole_number(2, least=1),
        "mass_matrix": text("dense"),
        "keep_weights": flag(),
        "folder": path(lambda: None),
        "executor": Kind(lambda: None),
        "progress": flag(),
        "approaches": Kind(
            lambda: ("saddle",),
            also=lambda: {
                "one word": "saddle",
                "twice": ("saddle", "saddle"),
                "another": ("exakt",),
                "with a number": ("saddle", 1),
            },
        ),
        "options": Kind(
            lambda: {"saddle": {}},
            also=lambda: {
                "of another approach": {"one_over_n": {}},
                "no keywords": {"gibbs": 3},
                "of another keyword": {"gibbs": {"draws": 3}},
                "of the folder": {"gibbs": {"folder": "a"}},
            },
        ),
        "tree": instance(
            draws,
            also=lambda: {
                "a dataset": draws()["posterior"].to_dataset(),
                "of another temperature": draws(temperature=0.4),
                "of another width": draws(width=4),
                "of another depth": draws("dense, two outputs"),
                "without settings": xr.DataTree.from_dict({"posterior": draws()["posterior"].to_dataset()}),
            },
        ),
        "heads": Kind(heads, also=lambda: {"of other heads": bpkr.heads(key_query=[np.ones((3, 3, 3))])}),
        "chain": whole_number(1, least=0, most=1),
        "draw": whole_number(1, least=0, most=2),
        "readout": text("last"),
        "result": instance(compared, also=lambda: {"an array": compared()["U_1"], "without approaches": xr.Dataset()}),
        "reference": text("exact"),
    },
    given={
        **{name: ("progress",) for name in ("sample_order_parameters", "sample_weights", "sample_weights_by_gibbs")},
        "compare": ("approaches", "progress"),
    },
    belonging={"network_of": "draws are of one architecture"},
    untried={
        "compare.progress": "a comparison of theory alone shows none",
    },
)
