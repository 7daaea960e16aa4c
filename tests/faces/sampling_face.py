"""The parameters of sampling."""

import warnings

import numpy as np
import xarray as xr

from tests.bpkr.sampling.problems import problem
from theorykit import bpkr
from theorykit.bpkr import sampling

from .engine import Face
from .sweeps_face import ARCHITECTURE, DATA
from .values import KEY, of, whole_number

KEPT = sampling.Schedule(chains=2, warmup=1, draws=3, keep_weights=True)


warnings.simplefilter("ignore", sampling.MixingWarning)
DRAWS = sampling.sample_weights_by_gibbs(ARCHITECTURE, DATA.example(), key=KEY.example(), schedule=KEPT, progress=False)
OF_ONE = {"U_1": ("approach", np.ones(2)), "U_1_error": ("approach", np.ones(2))}
COMPARED = xr.Dataset(OF_ONE, coords={"approach": ["saddle", "exact"]})
FACE = Face(
    sampling,
    {
        "problem": of(ARCHITECTURE, layers=(2,), order_parameters=bpkr.gp_limit(ARCHITECTURE)),
        "architecture": of(
            ARCHITECTURE,
            "tree",
            layers=(2,),
            of_another_temperature=problem(temperature=0.4)[0],
            of_another_width=problem(width=4)[0],
            of_another_depth=problem("dense, two outputs")[0],
        ),
        "data": DATA,
        "schedule": of(sampling.Schedule(chains=2, warmup=1, draws=3), three_numbers=(2, 1, 3)),
        "sample_order_parameters.schedule": of(sampling.Schedule(chains=2, warmup=1, draws=3), of_weights=KEPT),
        "no_u_turn": of(sampling.NoUTurn(max_tree_depth=2), rate_alone=0.8),
        "progress": False,
        "approaches": of(("saddle",), twice=("saddle", "saddle"), another=("exakt",)),
        "options": of(
            {"saddle": {}},
            of_another_approach={"one_over_n": {}},
            no_keywords={"gibbs": 3},
            of_another_keyword={"gibbs": {"draws": 3}},
            of_the_folder={"gibbs": {"folder": "a"}},
        ),
        "tree": of(
            DRAWS,
            dataset=DRAWS["posterior"].to_dataset(),
            without_settings=xr.DataTree.from_dict({"posterior": DRAWS["posterior"].to_dataset()}),
        ),
        "heads": of(
            bpkr.heads(key_query=[np.ones((2, 3, 3))]), of_other_heads=bpkr.heads(key_query=[np.ones((3, 3, 3))])
        ),
        "chain": whole_number(1, least=0, most=1),
        "draw": whole_number(1, least=0, most=2),
        "readout": "last",
        "result": of(COMPARED, array=COMPARED["U_1"], without_approaches=xr.Dataset()),
        "reference": "exact",
    },
    given={
        "sample_order_parameters sample_weights sample_weights_by_gibbs": ("data", "progress"),
        "compare": ("data", "approaches", "progress"),
    },
    belonging={"network_of": "draws are of one architecture"},
    untried={"compare.progress": "a comparison of theory alone shows none"},
)
