"""Measure the cost of independent draws from the posterior, for each sampler.

    python benchmarks/sampling.py [--quick]

`rates`: effective samples (bulk) of U_1[11, 11] per second of drawing, without warm-up
and compilation, on the hidden Markov chains at N = 10. `ratio_to_nuts` compares them
with NUTS on the weights. `deviation` is the difference of U_1[11, 11] from `exact`, in
standard errors of the difference.

Run nothing else at the same time. With --quick the numbers mean nothing.
"""

import warnings

import jax
import numpy as np
from problems import hidden_markov_chains, run

from theorykit import bpkr
from theorykit.bpkr.sampling import MixingWarning, Schedule, sample

SCHEDULES = {  # chains, warm-up, draws
    "exact": (2, 500, 2000),
    "gibbs": (2, 1000, 4000),
    "nuts": (1, 300, 300),
}


def row(sampler: str, schedule: tuple[int, int, int]) -> dict:
    """Run a sampler once; return its cost and quality."""
    architecture = bpkr.Architecture((2, 2), 10, temperature=0.01)
    problem = bpkr.Problem(architecture, bpkr.Data(*hidden_markov_chains()))
    options = {"key": jax.random.key(0), "schedule": Schedule(*schedule), "progress": False}
    with warnings.catch_warnings():
        # Results are recorded even if the chains have not mixed.
        warnings.simplefilter("ignore", MixingWarning)
        tree = sample(problem, sampler=sampler, **options)
    taken, first = tree.attrs["seconds"], tree["summary"]["U_1"][:, 0, 0]
    names = ("mean", "mcse_mean", "ess_bulk")
    found = {name: float(first.sel(statistic=name)) for name in names}
    found |= {"sampler": sampler, "seconds": taken, "mixed": bool(tree.attrs["mixed"])}
    found["seconds_per_draw"] = taken / (schedule[0] * schedule[2])
    return found | {"ess_per_second": found["ess_bulk"] / taken}


def rates(options) -> dict:
    rows = {name: row(name, (2, 10, 10) if options.quick else schedule) for name, schedule in SCHEDULES.items()}
    exact, nuts = rows["exact"], rows["nuts"]
    for each in rows.values():
        each["ratio_to_nuts"] = each["ess_per_second"] / nuts["ess_per_second"]
        error = np.hypot(each["mcse_mean"], exact["mcse_mean"])
        each["deviation"] = (each["mean"] - exact["mean"]) / error
    return {"rows": list(rows.values()), "jax": jax.__version__}


if __name__ == "__main__":
    run(__doc__, "sampling", {"rates": rates}, quick={"action": "store_true"})
