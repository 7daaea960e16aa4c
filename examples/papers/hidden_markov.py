"""Figs. 2 and 5 of Tiberi et al.: hidden Markov chains, from the network to accuracy over width.

`run_seed` is the whole pipeline: sample the task, extract path features, solve the saddle point at every width,
predict, and compare with the Gaussian-process limit.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import jax
import msgspec
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from theorykit import bpkr, store
from theorykit.bpkr.sweeps import order_parameters_of, sweep
from theorykit.checks import (
    check_fields,
    checked_arguments,
    checked_choice,
    checked_key,
    checked_number,
    checked_whole_number,
)
from theorykit.progress import Progress
from theorykit.store.runs import resume_tasks
from theorykit.workers import Workers, check_executor

from .tasks import hidden_markov as task

# The path subsets whose Gaussian-process limits are compared, by path label.
GP_PATHS: Mapping[str, tuple[str, ...] | None] = {"all paths": None, "good": ("11",), "good + denoising": ("11", "21")}


# Smallest number of examples whose attention is computed at a time.
_SMALLEST_BLOCK = 100
# Increase this number whenever the same settings give different results for a seed.
_VERSION = 1


@dataclass(frozen=True)
class HiddenMarkov:
    """Classify hidden Markov chains at many widths (Figs. 2 b-e, 5 b-c of Tiberi et al.).

    Accuracies are means over `seeds` independent draws of data and random heads. Matrices and kernels come from the
    first draw.
    """

    widths: tuple[int, ...] = (10, 30, 50, 100, 300, 500, 1000)
    """Widths N of all layers."""
    seeds: int = 5
    """Number of independent repetitions."""
    training_examples: int = 100
    test_examples: int = 1000
    temperature: float = 0.01
    """Variance T of the labels' noise."""
    first_seed: int = 0

    def __post_init__(self):
        check_fields(self)
        for i, width in enumerate(self.widths):
            checked_whole_number(f"widths[{i}]", width, least=1)
        for name, least in {"training_examples": 1, "test_examples": 1, "first_seed": 0}.items():
            checked_whole_number(name, getattr(self, name), least=least)
        checked_number("temperature", self.temperature, above=0.0)
        if not self.widths or self.seeds < 1:
            raise ValueError(f"nothing to run: widths={self.widths}, seeds={self.seeds}")


@dataclass(frozen=True)
class Variant:
    """The network of one panel: the task's settings, and the second head in layers 1 and 2."""

    name: str
    settings: task.HiddenMarkovTask
    heads: tuple[int, int]
    second_head: str

    def __post_init__(self):
        check_fields(self)
        checked_choice("second_head", self.second_head, ("random", "uniform"))
        for i, count in enumerate(self.heads):
            checked_whole_number(f"heads[{i}]", count, least=1, most=2)

    def key_query(self, key: PRNGKeyArray) -> tuple[Float[np.ndarray, "heads features features"], ...]:
        """Draw the key-query products of both layers."""
        checked_key("key", key)
        good, counting = map(np.array, task.good_and_random_heads(self.settings, key=key))
        if self.second_head == "uniform":
            good[1] = task.uniform_head(self.settings)
        return good[: self.heads[0]], counting[: self.heads[1]]


_NOISY = task.HiddenMarkovTask(orthogonal_noise=5.0)

VARIANTS = (
    Variant("default", task.HiddenMarkovTask(), (2, 2), "random"),  # Fig. 2 b-d, Fig. 5 b
    Variant("noisy", _NOISY, (2, 1), "random"),  # Fig. 2 e
    Variant("noisy_uniform", _NOISY, (2, 1), "uniform"),  # Fig. 5 c
)


@checked_arguments
def run(
    settings: HiddenMarkov, partial_results: Path, *, executor: Workers = None, progress: bool = True
) -> xr.DataTree:
    """Run all variants, widths and seeds. Return a tree of labelled datasets, one node per variant.

    Each finished seed is kept in `partial_results`, and an interrupted run resumes from there. An `executor` runs seeds
    in parallel, as in `sweeps.sweep`. `progress` shows bars.
    """
    check_executor(executor)
    seeds = range(settings.first_seed, settings.first_seed + settings.seeds)
    tasks = [(variant, replace(settings, seeds=1, first_seed=seed)) for variant in VARIANTS for seed in seeds]
    places = [_place(partial_results, *task) for task in tasks]
    # Bars of several workers would overwrite each other.
    compute, results = partial(run_seed, progress=progress and executor is None), {}
    cost = f"{len(VARIANTS)} networks x {len(seeds)} seeds x {len(settings.widths)} widths"
    with Progress("hidden Markov chains", len(tasks), "run", shown=progress, cost=cost) as report:
        for number, result in resume_tasks(executor, compute, tasks, places):
            results[number] = result.drop_attrs()
            report.update()
    each = iter([results[number] for number in range(len(tasks))])
    nodes = {variant.name: _join(list(itertools.islice(each, len(seeds)))) for variant in VARIANTS}
    about = xr.Dataset(attrs={"settings": msgspec.json.encode(settings).decode()})
    return xr.DataTree.from_dict({"/": about, **nodes})


def _place(partial_results: Path, variant: Variant, of_seed: HiddenMarkov) -> tuple[Path, Mapping[str, str]]:
    """Return the file for the result of a variant and a seed, and its settings."""
    described = store.settings_of("hidden Markov chains", _VERSION, settings=of_seed, variant=variant)
    return partial_results / f"{variant.name}-{of_seed.first_seed}.nc", described


def _join(datasets: list[xr.Dataset]) -> xr.Dataset:
    """Join the seeds along an axis, with path kernels of the first seed only."""
    seeds = xr.concat([dataset.drop_vars("path_kernel") for dataset in datasets], dim="seed")
    return seeds.assign(path_kernel=datasets[0]["path_kernel"].drop_vars("seed"))


@checked_arguments
def run_seed(variant: Variant, settings: HiddenMarkov, *, progress: bool = True) -> xr.Dataset:
    """Run one variant with the first seed's data and random heads: every width, and the Gaussian-process limits."""
    architecture = bpkr.Architecture(layers=variant.heads, widths=1, temperature=settings.temperature)
    data = _sample(variant, settings, architecture)
    solved = sweep(
        architecture,
        data,
        widths=settings.widths,
        temperatures=(settings.temperature,),
        progress=progress,
    ).isel(temperature=0, drop=True)
    not_shown = [name for name in solved if str(name).startswith("test_")]
    solved = solved.assign(accuracy=solved["test_accuracy"])
    solved = solved.drop_vars([*not_shown, "mean", "variance", "class", "predicted_class"])
    by_width = [_describe(architecture, solved.sel(width=width), data) for width in settings.widths]
    return xr.merge(
        [
            solved.drop_attrs(),
            xr.concat(by_width, dim="width"),
            _gp_limits(architecture, data),
            _path_kernels(architecture, data),
        ]
    ).assign_coords(seed=settings.first_seed)


def _sample(variant: Variant, settings: HiddenMarkov, architecture: bpkr.Architecture) -> bpkr.Data:
    """Sample path features and labels, with examples sorted by class."""
    training_key, test_key, heads_key = jax.random.split(jax.random.key(settings.first_seed), 3)
    key_query = variant.key_query(heads_key)

    def features_of(inputs: Float[np.ndarray, "examples tokens features"]) -> Float[Array, "examples paths features"]:
        attention = bpkr.attention(inputs, key_query=key_query)
        return bpkr.path_features(inputs, attention, architecture, readout="last")

    def examples(count: int, key: PRNGKeyArray) -> tuple[np.ndarray, np.ndarray]:
        sample = task.sample_examples(variant.settings, count, key=key)
        # Sort and split on the host. With JAX, each operation would be compiled. Test examples go through the programs
        # of the training set, in blocks of its size. Their scores then fit in memory that is reused.
        inputs, labels = np.asarray(sample.inputs), np.asarray(sample.labels)
        block = max(settings.training_examples, _SMALLEST_BLOCK)
        features = np.concatenate([features_of(inputs[at : at + block]) for at in range(0, count, block)])
        by_class = np.argsort(-labels, kind="stable")
        return features[by_class], labels[by_class]

    return bpkr.Data(*examples(settings.training_examples, training_key), *examples(settings.test_examples, test_key))


def _describe(architecture: bpkr.Architecture, solution: xr.Dataset, training: bpkr.Data) -> xr.Dataset:
    """Measure a solution's distance from the Gaussian-process limit, and its kernel alignment with the labels."""
    point, limit = order_parameters_of(architecture, solution), bpkr.gp_limit(architecture)
    alignment = bpkr.kernel_task_alignment(
        bpkr.kernel(bpkr.Problem(architecture, bpkr.Data(training.features)), point), training.labels
    )
    differences = map(np.subtract, point.matrices, limit.matrices)
    return xr.Dataset(
        {
            "departure": max(float(np.max(np.abs(difference))) for difference in differences),
            "alignment": ("component", np.asarray(alignment.cosines)),
            "eigenvalue": ("component", np.asarray(alignment.eigenvalues)),
        },
        coords={"width": solution["width"], "component": np.arange(1, len(alignment.cosines) + 1)},
    )


def _gp_limits(architecture: bpkr.Architecture, data: bpkr.Data) -> xr.Dataset:
    """Compute accuracies at infinite width with subsets of paths, and the kernel alignment with all paths."""
    labels = architecture.path_labels()
    accuracies = {
        name: _gp_accuracy(architecture, data, np.array([labels.index(label) for label in chosen or labels]))
        for name, chosen in GP_PATHS.items()
    }
    kernel = bpkr.kernel(bpkr.Problem(architecture, bpkr.Data(data.features)), bpkr.gp_limit(architecture))
    alignment = bpkr.kernel_task_alignment(kernel, data.labels)
    return xr.Dataset(
        {
            "gp_accuracy": ("gp_paths", list(accuracies.values())),
            "gp_alignment": ("component", np.asarray(alignment.cosines)),
            "gp_eigenvalue": ("component", np.asarray(alignment.eigenvalues)),
        },
        coords={"gp_paths": list(accuracies)},
    )


def _gp_accuracy(architecture: bpkr.Architecture, data: bpkr.Data, chosen: Int[np.ndarray, " paths"]) -> float:
    # The Gaussian-process kernel is a plain sum over paths, so one layer with k heads represents any k paths.
    paths = bpkr.Architecture(
        layers=(len(chosen),), widths=architecture.widths[-1], temperature=architecture.temperature
    )
    features, test_features = (np.asarray(each)[:, chosen] for each in (data.features, data.test_features))
    prediction = bpkr.predict(
        bpkr.Problem(paths, bpkr.Data(features, data.labels)), bpkr.gp_limit(paths), test_features
    )
    return float(bpkr.sign_accuracy(prediction.mean, data.test_labels))


def _path_kernels(architecture: bpkr.Architecture, training: bpkr.Data) -> xr.Dataset:
    """Compute the kernel of every pair of paths, phi^pi_mu . phi^pi'_nu (Eq. 10), examples sorted by class."""
    labels = list(architecture.path_labels())
    return xr.Dataset(
        {
            "path_kernel": (
                ("path_1", "other_path_1", "example", "other_example"),
                np.asarray(bpkr.path_kernels(architecture, training.features)),
            ),
            "label": ("example", np.asarray(training.labels)),
        },
        coords={"path_1": labels, "other_path_1": labels},
    )
