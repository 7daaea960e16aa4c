"""Compare Gaussian equivalence and infinite width with the sampled posterior of all weights.

    python benchmarks/nonlinear_ansatz.py [--output FOLDER] [--widths 20 60 200]

A random teacher network gives the labels. There is a case for every width N, for P/N of 1/2, 1 and 2, for erf and relu,
and for three architectures. These have one token, two heads of attention over three tokens, or two patches with
separate readout weights. Each case compares mean output, U_1 and variance at the saddle point and at infinite width
with NUTS on the weights, with sampling errors. More cases have five examples and growing width. Cases that are in
FOLDER/nonlinear_ansatz.json are not run again.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import theorykit
from theorykit import bpkr
from theorykit.bpkr import nonlinear, sampling
from theorykit.plots.style import LIMITS, THEORY, save, use_style

FEATURES, TEMPERATURE, TESTS = 8, 0.1, 20
RATIOS, FUNCTIONS, NETWORKS = (0.5, 1.0, 2.0), ("erf", "relu"), ("one token", "two heads", "two patches")
FIXED, FIXED_WIDTHS = 5, (5, 10, 20, 40)
# Networks with at least this many hidden units have shorter chains.
LONG = 200
# Marker sizes in points, by width.
SIZES = {20: 2.5, 60: 4, 200: 6.5}


def architecture(network: str, function: str, width: int) -> bpkr.Architecture:
    """Return an architecture without layers, or with one layer of two heads."""
    options = {"temperature": TEMPERATURE, "embedding": function}
    if network == "two heads":
        return bpkr.Architecture((2,), width, **options)
    return bpkr.Architecture((), width, read_tokens=2 if network == "two patches" else 1, **options)


def problem(network: str, function: str, width: int, examples: int) -> tuple[bpkr.Architecture, bpkr.Data]:
    """Return data from a teacher with eight hidden units: unit variance, plus noise with variance T."""
    rng = np.random.default_rng([width, examples, NETWORKS.index(network)])
    arch, tokens = architecture(network, function, width), {"one token": 1, "two heads": 3, "two patches": 2}[network]
    heads = bpkr.heads(key_query=[rng.normal(size=(2, FEATURES, FEATURES)) / 2] if network == "two heads" else [])
    inputs = rng.normal(size=(examples + TESTS, tokens, FEATURES))
    teacher = bpkr.sample_network(
        architecture(network, "erf", 8), heads, input_features=FEATURES, key=jax.random.key(width)
    )
    labels = np.asarray(teacher(inputs))
    labels = labels / np.std(labels) + np.sqrt(TEMPERATURE) * rng.normal(size=len(labels))
    features = bpkr.path_features(inputs, heads(inputs), arch)
    return arch, bpkr.Data(features[:examples], labels[:examples], features[examples:])


def schedule_of(width: int, examples: int) -> sampling.Schedule:
    """Return a longer schedule if both theories are close to each other, a shorter one if a draw takes seconds."""
    if examples == FIXED:
        return sampling.Schedule(chains=4, warmup=300, draws=1500)
    if width < LONG:
        return sampling.Schedule(chains=4, warmup=300, draws=400)
    return sampling.Schedule(chains=2, warmup=200, draws=300)


def compare(network: str, function: str, width: int, examples: int) -> dict:
    """Return the distances of both theories from the sampled posterior, and its sampling error."""
    arch, data = problem(network, function, width, examples)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sampling.MixingWarning)
        schedule = schedule_of(width, examples)
        tree = sampling.sample_weights(arch, data, key=jax.random.key(1), schedule=schedule, progress=False)
    posterior, summary = tree["posterior"], tree["summary"]
    sampled = {
        "U": posterior["U_1" if arch.depth else "u"].mean(("chain", "draw")).values,
        "mean": posterior["sampled_output"].mean(("chain", "draw")).values,
        "variance": posterior["sampled_output"].var(("chain", "draw")).values,
    }
    error = float(np.sqrt(np.mean(summary["sampled_output"].sel(statistic="mcse_mean").values ** 2)))
    worst = float(max(np.nanmax(summary[name].sel(statistic="r_hat").values) for name in summary.data_vars))
    saddle, limit = bpkr.solve(arch, bpkr.Data(data.features, data.labels)), bpkr.gp_limit(arch)
    distances = {}
    for name, point in (("saddle", saddle.order_parameters), ("limit", limit)):
        prediction = bpkr.predict(bpkr.Problem(arch, bpkr.Data(data.features, data.labels)), point, data.test_features)
        found = {"U": point.first, "mean": prediction.mean, "variance": prediction.variance}
        distances |= {
            f"{name} {what}": distance(what, np.asarray(value), sampled[what]) for what, value in found.items()
        }
    if function == "relu":
        with_mean = nonlinear.MeanProblem(bpkr.Problem(arch, data))
        prediction = with_mean.predict(with_mean.solve())
        distances["with mean mean"] = distance("mean", np.asarray(prediction.mean), sampled["mean"])
        distances["with mean variance"] = distance("variance", np.asarray(prediction.variance), sampled["variance"])
    return {**distances, "error": error, "r_hat": worst, "seconds": time.perf_counter() - began}


def distance(what: str, value: np.ndarray, sampled: np.ndarray) -> float:
    """Return the root mean square difference of means, or the relative difference of U or of the variance."""
    value = value.reshape(sampled.shape)
    if what == "mean":
        return float(np.sqrt(np.mean((value - sampled) ** 2)))
    if what == "variance":
        return float(np.mean(value) / np.mean(sampled) - 1)
    return float(np.linalg.norm(value - sampled) / np.linalg.norm(sampled))


def cases(widths: list[int]) -> list[tuple[str, str, int, int]]:
    fixed = [("two heads", "erf", width, FIXED) for width in FIXED_WIDTHS]
    grown = [
        (network, function, width, round(ratio * width))
        for width in widths
        for ratio in RATIOS
        for function in FUNCTIONS
        for network in NETWORKS
    ]
    return [*fixed, *grown]


def draw(found: dict[str, dict], path: Path) -> None:
    """Plot the distance of the mean output from sampling, against P/N, and against N at fixed P."""
    with use_style():
        figure, axes = plt.subplots(1, 4, figsize=(9, 2.5), sharey=True, layout="constrained")
        for axis, network in zip(axes, NETWORKS, strict=False):
            for function, marker in (("erf", "o"), ("relu", "s")):
                for name, color in (("limit", LIMITS[0]), ("saddle", THEORY)):
                    keys = [key for key in found if key.startswith(f"{network}, {function}, ") and not is_fixed(key)]
                    places = [ratio_of(key) * (1.05 if function == "relu" else 0.95) for key in keys]
                    areas = [SIZES.get(width_of(key), 4) ** 2 for key in keys]
                    values = [found[key][f"{name} mean"] for key in keys]
                    axis.scatter(places, values, areas, color=color, marker=marker, linewidth=0, alpha=0.8)
            errors = [found[key]["error"] for key in found if key.startswith(network) and not is_fixed(key)]
            axis.axhspan(1e-4, float(np.median(errors)), color="0.9", zorder=0)
            axis.set(xscale="log", yscale="log", xlabel="$P/N$", title=network)
            axis.set_xticks(RATIOS, ["1/2", "1", "2"])
            axis.minorticks_off()
        keys = [key for key in found if is_fixed(key)]
        for name, color, label in (("limit", LIMITS[0], "infinitely wide"), ("saddle", THEORY, "saddle point")):
            widths = [width_of(key) for key in keys]
            axes[3].plot(widths, [found[key][f"{name} mean"] for key in keys], "o-", color=color, label=label)
        axes[3].axhspan(1e-4, float(np.median([found[key]["error"] for key in keys])), color="0.9", zorder=0)
        axes[3].set(xscale="log", xlabel="$N$", title=f"two heads, $P={FIXED}$", ylim=(2e-3, None))
        axes[3].set_xticks(FIXED_WIDTHS, map(str, FIXED_WIDTHS))
        axes[3].minorticks_off()
        axes[3].legend()
        axes[0].set_ylabel("distance of the mean output")
        save(figure, path)


def is_fixed(key: str) -> bool:
    return key.endswith(f"P={FIXED}")


def width_of(key: str) -> int:
    return int(key.split("N=")[1].split(",")[0])


def ratio_of(key: str) -> float:
    return int(key.split("P=")[1]) / width_of(key)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--widths", type=int, nargs="+", default=[20, 60, 200])
    arguments = parser.parse_args()
    theorykit.enable_float64()
    arguments.output.mkdir(parents=True, exist_ok=True)
    path = arguments.output / "nonlinear_ansatz.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    for network, function, width, examples in cases(arguments.widths):
        key = f"{network}, {function}, N={width}, P={examples}"
        if key not in found:
            found[key] = compare(network, function, width, examples)
            path.write_text(json.dumps(found, indent=1) + "\n")
        print(key, {name: round(value, 4) for name, value in found[key].items()}, flush=True)
    draw(found, path.with_suffix(".png"))


if __name__ == "__main__":
    main()
