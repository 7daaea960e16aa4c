"""The theory at given queries and keys: all widths and temperatures, the infinite-width limit, the choice of T."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.typing import ArrayLike
from jaxtyping import PRNGKeyArray

from theorykit import bpkr
from theorykit.bpkr.sweeps import best_temperatures, order_parameters_of, sweep

from ..tasks.one_shot import Episodes
from .settings import OneShot
from .sources import IN_DISTRIBUTION, Sources

READOUT = "mean"
_AT_ONCE = 200  # examples whose attention is in memory
_TOLERANCE = 1e-6  # ten times below the tolerance of the published solver


def examples_of_seed(heads: bpkr.Heads, sources: Sources, settings: OneShot, seed: int) -> bpkr.Data:
    """Draw training examples with `seed`, and then test examples of each distribution in turn, as path features."""
    architecture = bpkr.Architecture(heads.counts, 1, temperature=1.0)
    keys = jax.random.split(jax.random.key(seed), 1 + len(sources.tests))
    training = path_examples(architecture, heads, sources.training, settings.training_examples, key=keys[0])
    tests = [
        path_examples(architecture, heads, source, settings.test_examples, key=key)
        for source, key in zip(sources.tests.values(), keys[1:], strict=True)
    ]
    return bpkr.Data(*training, *(jnp.concatenate(parts) for parts in zip(*tests, strict=True)))


def accuracies(mean: ArrayLike, data: bpkr.Data, distributions: Sequence[str]) -> xr.DataArray:
    """Compute the fraction of test predictions with the correct sign, by distribution. It is NaN without tests."""
    by_distribution = [np.asarray(values).reshape(len(distributions), -1) for values in (mean, data.test_labels)]
    shares = np.mean(np.sign(by_distribution[0]) == by_distribution[1], axis=1)
    return xr.DataArray(shares, dims="distribution", coords={"distribution": list(distributions)})


def path_examples(
    architecture: bpkr.Architecture, heads: bpkr.Heads, source: Episodes, examples: int, *, key: PRNGKeyArray
):
    """Compute path features (examples, paths, features) and labels (examples,) of sequences from `source`."""
    counts = [min(_AT_ONCE, examples - start) for start in range(0, examples, _AT_ONCE)]
    parts = []
    for number, count in enumerate(counts):
        drawn = source(count, key=jax.random.fold_in(key, number))
        features = bpkr.path_features(drawn.inputs, heads(drawn.inputs), architecture, READOUT)
        parts.append((features, drawn.labels))
    return tuple(jnp.concatenate(part) for part in zip(*parts, strict=True))


def theory_of_seed(
    heads: bpkr.Heads,
    sources: Sources,
    settings: OneShot,
    seed: int,
    folder: Path,
    *,
    n_jobs: int,
    progress: bool,
) -> xr.Dataset:
    """Solve every width and temperature, and the Gaussian-process limit, for the examples of one seed.

    The result has the variables of `sweep` and `accuracy` by `distribution`, over (width, temperature). For the limit
    it has `gp_accuracy` and `gp_log_evidence`, the log density of the training labels, over temperature.
    """
    data, distributions = examples_of_seed(heads, sources, settings, seed), list(sources.tests)
    architecture = bpkr.Architecture(heads.counts, 1, temperature=1.0)
    solved = sweep(
        architecture,
        bpkr.Data(data.features, data.labels, data.test_features),
        width=settings.widths,
        temperature=settings.temperatures,
        folder=folder,
        n_jobs=n_jobs,
        progress=progress,
        tolerance=_TOLERANCE,
    )
    accuracy = xr.apply_ufunc(
        partial(accuracies, data=data, distributions=distributions),
        solved["mean"],
        input_core_dims=[["test_example"]],
        output_core_dims=[["distribution"]],
        vectorize=True,
    ).assign_coords(distribution=distributions)
    limits = [_gp_limit(heads, data, distributions, temperature) for temperature in settings.temperatures]
    limit = xr.concat(limits, dim=xr.DataArray(list(settings.temperatures), dims="temperature", name="temperature"))
    return xr.merge([solved.drop_vars(["mean", "variance"]), accuracy.rename("accuracy"), limit]).drop_attrs()


def _gp_limit(heads: bpkr.Heads, data: bpkr.Data, distributions: Sequence[str], temperature: float) -> xr.Dataset:
    # The entropy vanishes in the limit, so the energy alone gives the evidence.
    architecture = bpkr.Architecture(heads.counts, 1, temperature=temperature)
    limit = bpkr.gp_limit(architecture)
    energy = bpkr.evaluate(bpkr.Problem(architecture, data), limit).energy
    prediction = bpkr.predict(bpkr.Problem(architecture, data), limit)
    log_evidence = -(float(energy) + len(data.labels) * np.log(2 * np.pi)) / 2
    accuracy = accuracies(prediction.mean, data, distributions)
    return xr.Dataset({"gp_accuracy": accuracy, "gp_log_evidence": log_evidence})


def choose_temperatures(theory: xr.Dataset) -> xr.Dataset:
    """Choose the temperature at every width, and in the limit, by two rules, along an axis `rule`.

    - `accuracy`: highest accuracy in distribution, averaged over seeds, as in the paper. This rule uses the test set.
    - `evidence`: highest log evidence (lowest free energy), averaged over seeds. This rule uses only training labels.
    """
    in_distribution = theory["accuracy"].sel(distribution=IN_DISTRIBUTION)
    scores = {"test_accuracy": in_distribution, "test_error": 1 - in_distribution}
    by_accuracy = best_temperatures(xr.Dataset(scores))
    # Exclude a point if it failed at any seed.
    by_evidence = theory["log_evidence"].mean("seed", skipna=False).idxmax("temperature")
    limit = theory["gp_accuracy"].sel(distribution=IN_DISTRIBUTION).mean("seed").idxmax("temperature")
    rules = xr.DataArray(["accuracy", "evidence"], dims="rule", name="rule")
    of_limit = [limit, theory["gp_log_evidence"].mean("seed").idxmax("temperature")]
    return xr.Dataset(
        {
            "chosen_temperature": xr.concat([by_accuracy.drop_attrs(), by_evidence], dim=rules),
            "gp_chosen_temperature": xr.concat(of_limit, dim=rules),
        }
    )


def kernel_components(
    heads: bpkr.Heads, sources: Sources, settings: OneShot, theory: xr.Dataset, widths: Sequence[int]
) -> xr.Dataset:
    """Align principal kernel components with the labels, for the first seed, at `widths` and in the limit."""
    seed = int(theory["seed"][0])
    data = examples_of_seed(heads, sources, settings, seed)
    chosen = theory["chosen_temperature"].sel(rule="accuracy")
    columns = {}
    for width in widths:
        architecture = bpkr.Architecture(heads.counts, width, temperature=float(chosen.sel(width=width)))
        solution = theory.sel(seed=seed, width=width, temperature=float(chosen.sel(width=width)))
        columns[width] = (architecture, order_parameters_of(architecture, solution))
    limit = bpkr.Architecture(heads.counts, 1, temperature=1.0)
    columns[np.inf] = (limit, bpkr.gp_limit(limit))
    alignments = [
        bpkr.kernel_task_alignment(
            bpkr.kernel(bpkr.Problem(architecture, bpkr.Data(data.features)), order_parameters), data.labels
        )
        for architecture, order_parameters in columns.values()
    ]
    return xr.Dataset(
        {
            "alignment": (("kernel_width", "component"), np.stack([one.cosines for one in alignments])),
            "eigenvalue": (("kernel_width", "component"), np.stack([one.eigenvalues for one in alignments])),
        },
        coords={"kernel_width": list(map(float, columns)), "component": np.arange(1, len(data.labels) + 1)},
    )
