"""Measure the cost of independent draws from the posterior, for each sampler.

    python benchmarks/sampling.py [--only CASE ...] [--quick]

- `rates`: effective samples (bulk) of U_1[11, 11] per second of drawing, without warm-up
  and compilation, on the hidden Markov chains at N = 10; ratio to NUTS on the weights.
- `temperatures`: the same at T = 0.01, 0.1 and 1. `deviation` is the difference of
  U_1[11, 11] from `exact`, in standard errors of the difference.
- `scaling`: seconds per draw for several widths, examples and depths.

Run nothing else at the same time. Cases that are not run again keep their results in
results/sampling.json. With --quick the numbers mean nothing.
"""

import math
import warnings

import jax
import numpy as np
from problems import hidden_markov_chains, parser_of, random_features, record

import theorykit
from theorykit import bpkr
from theorykit.bpkr.sampling import MixingWarning, Schedule, sample

SCHEDULES = {  # chains, warm-up, draws
    "exact": (2, 500, 2000),
    "gibbs": (2, 1000, 4000),
    "nuts": (1, 300, 300),
}
SHORT = {"exact": (1, 200, 200), "gibbs": (1, 30, 30), "nuts": (1, 30, 30)}
QUICK = (2, 10, 10)


def row(sampler: str, architecture, data, schedule, **about) -> dict:
    """Run a sampler once; return its cost and quality."""
    options = {"key": jax.random.key(0), "schedule": Schedule(*schedule)}
    with warnings.catch_warnings():
        # Results are recorded even if the chains have not mixed.
        warnings.simplefilter("ignore", MixingWarning)
        problem = bpkr.Problem(architecture, bpkr.Data(*data))
        tree = sample(problem, sampler=sampler, progress=False, **options)
    taken, first = tree.attrs["seconds"], tree["summary"]["U_1"][:, 0, 0]
    names = ("mean", "mcse_mean", "ess_bulk", "r_hat")
    numbers = {name: float(first.sel(statistic=name)) for name in names}
    numbers = {name: each if math.isfinite(each) else None for name, each in numbers.items()}
    about |= {"chains": schedule[0], "draws": schedule[2], "workers": 1}
    found = {"sampler": sampler, **about, **numbers, "seconds": taken}
    found["seconds_per_draw"] = taken / (schedule[0] * schedule[2])
    found["ess_per_second"] = numbers["ess_bulk"] and numbers["ess_bulk"] / taken
    return found | {"mixed": bool(tree.attrs["mixed"])}


def rates(quick: bool, temperatures=(0.01,)) -> list[dict]:
    found, data = [], hidden_markov_chains()
    for temperature in temperatures:
        architecture = bpkr.Architecture((2, 2), 10, temperature=temperature)
        rows = {
            name: row(name, architecture, data, QUICK if quick else each, N=10, T=temperature)
            for name, each in SCHEDULES.items()
        }
        exact, nuts = rows["exact"], rows["nuts"]
        for each in rows.values():
            each["ratio_to_nuts"] = each["ess_per_second"] / nuts["ess_per_second"]
            errors = np.array([each["mcse_mean"], exact["mcse_mean"]], dtype=float)
            each["deviation"] = (each["mean"] - exact["mean"]) / np.hypot(*errors)
            found.append(each)
    return found


def temperatures(quick: bool) -> list[dict]:
    return rates(quick, (0.01, 0.1, 1.0))


def scaling(quick: bool) -> list[dict]:
    """Samplers of weights hardly adapt in a warm-up of 30 steps."""
    cases = [("width", each, (2, 2), each, hidden_markov_chains()) for each in (10, 30, 100)]
    cases += [("examples", each, (2, 2), 10, hidden_markov_chains(each)) for each in (25, 50)]
    cases += [("depth", each, (2,) * each, 10, random_features(50, 2**each)) for each in (1, 2, 3)]
    rows = []
    for axis, value, heads, width, data in cases[:1] if quick else cases:
        architecture = bpkr.Architecture(heads, width, temperature=0.01)
        for name, each in SHORT.items():
            schedule = QUICK if quick else each
            rows.append(row(name, architecture, data, schedule, axis=axis, value=value))
    return rows


CASES = {"rates": rates, "temperatures": temperatures, "scaling": scaling}


def main() -> None:
    parser = parser_of(__doc__, "sampling", CASES)
    parser.add_argument("--quick", action="store_true", help="take few draws")
    options = parser.parse_args()
    theorykit.enable_float64()
    for name in options.only:
        rows = CASES[name](options.quick)
        for each in rows:
            print(name, each, flush=True)
        record(options.json, name, {"rows": rows, "jax": jax.__version__})


if __name__ == "__main__":
    main()
