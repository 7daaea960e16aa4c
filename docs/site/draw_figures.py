"""Draw `docs/model.png` by the code of the quickstart, and `docs/comparison.png` of the page on sampling."""

import doctest
import sys
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import xarray as xr

import theorykit
from theorykit import bpkr, plots
from theorykit.bpkr import sampling
from theorykit.plots.style import letter_panels, save, use_style

DOCS = Path(__file__).parent.parent
sys.path.insert(0, str(DOCS.parent / "examples"))


def quickstart_sweep() -> xr.Dataset:
    """Run the quickstart up to its sweep over widths."""
    names: dict = {}
    for example in doctest.DocTestParser().get_examples((DOCS / "quickstart.md").read_text()):
        exec(compile(example.source, "quickstart.md", "single"), names)
        if "found" in names:
            break
    return names["found"]


def comparison() -> xr.Dataset:
    """Compare theory and samplers on the hidden Markov chains at width 10."""
    from papers.tasks import HiddenMarkovTask

    task = HiddenMarkovTask()
    training_key, test_key, heads_key, key = jax.random.split(jax.random.key(0), 4)
    training, test = task(100, key=training_key), task(200, key=test_key)
    key_query = task.heads(key=heads_key)
    network = bpkr.Architecture((2, 2), widths=10, temperature=0.01)
    features = [
        bpkr.path_features(inputs, bpkr.attention(inputs, key_query=key_query), network, readout="last")
        for inputs in (training.inputs, test.inputs)
    ]
    schedules = {
        "exact": sampling.Schedule(chains=2, warmup=500, draws=2000),
        "gibbs": sampling.Schedule(chains=4, warmup=1000, draws=6000),
    }
    return sampling.compare(
        network,
        bpkr.Data(features[0], training.labels, features[1], test.labels),
        key=key,
        approaches=("saddle", "one_over_n", *schedules),
        options={name: {"schedule": schedule} for name, schedule in schedules.items()},
    )


def draw_comparison(result: xr.Dataset) -> plt.Figure:
    """Draw order parameters and differences from the exact posterior with one legend."""
    figure, (entries, differences) = plt.subplots(1, 2, figsize=(7, 4))
    plots.draw_comparison(result, entries)
    plots.draw_differences(result, differences)
    shown = {}
    for axes in (entries, differences):
        handles, names = axes.get_legend_handles_labels()
        shown |= dict(zip(names, handles, strict=True))
        axes.get_legend().remove()
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=3)
    entries.set_title("order parameters")
    differences.set_title("distance from the exact posterior")
    letter_panels(entries, differences)
    return figure


if __name__ == "__main__":
    theorykit.enable_float64()
    with use_style():
        figure, axes = plt.subplots(figsize=(6, 3.5))
        plots.draw_scores_over_width(quickstart_sweep(), axes)
        save(figure, DOCS / "model.png")
        save(draw_comparison(comparison()), DOCS / "comparison.png")
