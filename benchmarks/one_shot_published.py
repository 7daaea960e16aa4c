"""Solve the theory of one-shot images at the published sizes: two layers of four heads, on generated characters.

    python benchmarks/one_shot_published.py FOLDER [--seeds 5] [--output FOLDER]

Runs the paper preset of `python examples/papers one-shot` (600 training examples in three colours, 192 features, a
network of width 512 trained for 10,000 steps, ten widths, ten temperatures) without its download. All results are saved
in FOLDER, and a run that was stopped resumes from there. Writes one_shot_published.json, with accuracies over (seed,
width), into the output folder (benchmarks/results by default), and the figure of docs/validation.md into docs.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

import xarray as xr

import theorykit

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples"))

from papers.one_shot.settings import PAPER, Strokes
from papers.one_shot.sources import sources
from papers.one_shot.stages import load_or_train, theory_of_heads
from papers.plots.results import with_error

FIGURE = ROOT / "docs" / "figure-3-published.png"


def summary(theory: xr.Dataset) -> dict:
    """Return the accuracy (distribution, seed, width) at the best temperature, and the accuracy at infinite width."""
    chosen = theory["chosen_temperature"].sel(rule="accuracy", drop=True)
    accuracy = theory["accuracy"].sel(temperature=chosen).transpose("distribution", "seed", "width")
    of_limit = theory["gp_accuracy"].sel(temperature=theory["gp_chosen_temperature"].sel(rule="accuracy", drop=True))
    return {
        "width": theory["width"].values.tolist(),
        "distribution": theory["distribution"].values.tolist(),
        "accuracy": accuracy.values.tolist(),
        "gp_accuracy": of_limit.transpose("distribution", "seed").values.tolist(),
        "temperature": chosen.values.tolist(),
        "gp_temperature": float(theory["gp_chosen_temperature"].sel(rule="accuracy")),
        "points": int(theory["converged"].size),
        "converged": int(theory["converged"].sum()),
        "solve_seconds": float(theory["seconds"].sum()),
        "evaluations_per_point": float(theory["evaluations"].mean()),
    }


def table(theory: xr.Dataset) -> str:
    """Tabulate mean accuracy and standard error by width; brackets hold the mean gain over infinite width, by seed."""
    theory = theory.sel(rule="accuracy")
    accuracy = theory["accuracy"].sel(temperature=theory["chosen_temperature"])
    limit = theory["gp_accuracy"].sel(temperature=theory["gp_chosen_temperature"])
    rows = {str(int(width)): accuracy.sel(width=width) for width in theory["width"]} | {"limit": limit}
    names = theory["distribution"].values
    lines = ["     N  " + "  ".join(f"{name:>34}" for name in names)]
    for label, values in rows.items():
        pairs = ((values.sel(distribution=name), limit.sel(distribution=name)) for name in names)
        cells = (f"{with_error(value)} ({with_error(value - of_limit, '+')})" for value, of_limit in pairs)
        lines.append(f"{label:>6}  " + "  ".join(f"{cell:>34}" for cell in cells))
    return "\n".join(lines)


def draw(result: dict, path: Path) -> None:
    """Draw the gain of finite width over infinite width, in points of accuracy, paired by seed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np

    from theorykit.plots.style import LIMITS, THEORY, save, use_style

    labels = {"in distribution": "new characters", "digits": "digits"}
    with use_style():
        figure, axes = plt.subplots(figsize=(5, 3))
        axes.axhline(0, color="0.6", linewidth=0.8)
        for name, accuracy, limit, color, marker in zip(
            result["distribution"], result["accuracy"], result["gp_accuracy"], (THEORY, LIMITS[0]), "os", strict=True
        ):
            gains = 100 * (np.array(accuracy) - np.array(limit)[:, None])
            errors = gains.std(axis=0, ddof=1) / np.sqrt(len(gains))
            axes.errorbar(
                result["width"],
                gains.mean(axis=0),
                errors,
                fmt=f"{marker}-",
                color=color,
                markersize=4,
                label=labels[name],
            )
        axes.set(xscale="log", xlabel="width $N$", ylabel="accuracy gained over $N=\\infty$, points")
        axes.legend(title="bars: standard errors of paired differences")
        save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    theorykit.enable_float64()
    theorykit.enable_cache()
    settings = replace(PAPER, variants=PAPER.variants[:1], images=Strokes(), unseen=("digits",), seeds=arguments.seeds)
    variant = settings.variants[0]
    made = sources(settings, arguments.folder)
    folder = arguments.folder / variant.name
    trained = load_or_train(variant, settings, made, folder / "training")
    theory = theory_of_heads(trained.network.heads, settings, made, folder / "theory")
    result = {**summary(theory), "validation_accuracy": float(trained.history["validation_accuracy"][-1])}
    (arguments.output / "one_shot_published.json").write_text(json.dumps(result, indent=1) + "\n")
    draw(result, FIGURE)
    print(table(theory))
    minutes = result["solve_seconds"] / 60
    print(f"{result['converged']} of {result['points']} saddle points, {minutes:.0f} minutes of solving")


if __name__ == "__main__":
    main()
