"""U_1 in three versions: from the theory, from sampled weights, and from the weights of the trained network.

Block Gibbs samples the weights and is exact at any width. `check` uses a sampler without weights.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr
from jax.typing import ArrayLike
from jaxtyping import Bool

from theorykit import bpkr
from theorykit.bpkr.sampling import Schedule, deviations, sample
from theorykit.bpkr.sampling.sample import entry_estimates, of_posterior_mean
from theorykit.bpkr.sweeps import order_parameters_of
from theorykit.bpkr.sweeps.datasets import axes, path_names

from .settings import OneShot
from .sources import Sources
from .theory import accuracies, examples_of_seed


def order_parameters(
    network: bpkr.Network,
    sources: Sources,
    settings: OneShot,
    theory: xr.Dataset,
    folder: Path,
    *,
    n_jobs: int,
    progress: bool,
) -> xr.Dataset:
    """Compute U_1 and accuracies along an axis `origin`, "theory", "sampled" and "trained", and their agreement.

    Theory and sampling use the smallest width, at the `temperature` chosen by accuracy. The trained network has another
    width and no temperature.

    - `U_1` (seed, origin, path, path), and `U_1_error`, the sampling error.
    - `mixed`, `diagnosis`, the largest split `r_hat` and the smallest `ess` of the sampler, over all draws.
    - `accuracy` (seed, origin, distribution): accuracy of the mean output, or of the trained network, on the same
      examples.
    - `correlation` (seed, of, origin): Pearson's correlation between the entries above the diagonal.
    - `sign_agreement`: fraction of these entries with the same sign; independent signs give one half.
    - `block_sign_agreement`: the same fraction among pairs of paths that share the head of the first layer.
    - `block_strength` (seed, origin): mean magnitude of the entries of these pairs, relative to the other entries above
      the diagonal.
    - `accuracy_error`, `correlation_error` and so on: Monte Carlo errors, zero without sampling.
    - `correlation_of_width` (seed, width), `sign_agreement_of_width`: agreement of the theory at every width with the
      trained network.
    """
    architecture = compared_architecture(network, theory)
    width, temperature = int(architecture.widths[0]), float(architecture.temperature)
    chosen = theory["chosen_temperature"].sel(rule="accuracy", drop=True)
    kept = folder / f"width={width},temperature={temperature!r}"
    seeds = theory["seed"].values.tolist()
    found = []
    for seed in seeds:
        data = examples_of_seed(network.heads, sources, settings, seed)
        solution = order_parameters_of(architecture, theory.sel(seed=seed, width=width, temperature=temperature))
        draws = sample(
            architecture,
            data,
            sampler="gibbs",
            key=jax.random.key(seed),
            schedule=Schedule(settings.chains, settings.warmup, settings.draws),
            folder=kept / f"seed={seed}",
            n_jobs=n_jobs,
            progress=progress,
        )
        found.append(_of_seed(network, architecture, data, list(sources.tests), solution, draws))
    trained = bpkr.empirical_order_parameters(network).matrices[0]
    return (
        xr.merge(
            [
                xr.concat(found, dim=xr.DataArray(seeds, dims="seed", name="seed")),
                _agreement_of_width(theory["U_1"].sel(temperature=chosen).drop_vars("temperature"), trained),
            ]
        )
        .assign(temperature=temperature)
        .assign_attrs(width=width)
    )


def compared_architecture(network: bpkr.Network, theory: xr.Dataset) -> bpkr.Architecture:
    """Build the network's layers at the smallest width of the theory, at the temperature chosen there by accuracy."""
    width = int(theory["width"].min())
    chosen = theory["chosen_temperature"].sel(rule="accuracy", width=width)
    return bpkr.Architecture(network.heads.counts, width, temperature=float(chosen))


def check(
    network: bpkr.Network,
    sources: Sources,
    settings: OneShot,
    theory: xr.Dataset,
    between: xr.Dataset,
    folder: Path,
    *,
    n_jobs: int,
    progress: bool,
) -> xr.Dataset:
    """Compare the sampled U_1 in `between`, from `order_parameters`, with a second sampler, for the first seed.

    The No-U-Turn sampler draws from the exact posterior of the order parameters alone.

    - `U_1` and `U_1_error` (path, path): results of this sampler, with `mixed`, `diagnosis`, `r_hat` and `ess`.
    - `U_1_deviation`: `between` minus this sampler, in standard errors of the difference.
    """
    architecture, seed = compared_architecture(network, theory), int(theory["seed"][0])
    data = examples_of_seed(network.heads, sources, settings, seed)
    tree = sample(
        architecture,
        bpkr.Data(data.features, data.labels),
        # The random numbers must be independent of the weight sampler's.
        key=jax.random.fold_in(jax.random.key(seed), 1),
        schedule=Schedule(settings.chains, settings.check_warmup, settings.check_draws),
        folder=folder,
        n_jobs=n_jobs,
        progress=progress,
    )
    found = entry_estimates(tree)[["U_1", "U_1_error"]]
    of_weights = between.sel(seed=seed, origin="sampled")[["U_1", "U_1_error"]].reset_coords(drop=True)
    both = xr.concat([of_weights, found], dim="approach").assign_coords(approach=["weights", "exact"])
    deviation = deviations(both)["U_1_deviation"].sel(approach="weights", drop=True)
    return found.assign(U_1_deviation=deviation, **_diagnostics(tree)).assign_attrs(seed=seed)


def _diagnostics(tree: xr.DataTree) -> Mapping[str, Any]:
    summary = tree["summary"].to_dataset()
    r_hat = summary.sel(statistic="r_hat").max().to_array().max()
    ess = summary.sel(statistic=["ess_bulk", "ess_tail"]).min().to_array().min()
    return {**{name: tree.attrs[name] for name in ("mixed", "diagnosis")}, "r_hat": float(r_hat), "ess": float(ess)}


def _of_seed(
    network: bpkr.Network,
    architecture: bpkr.Architecture,
    data: bpkr.Data,
    distributions: Sequence[str],
    found: bpkr.OrderParameters,
    draws: xr.DataTree,
) -> xr.Dataset:
    """Compare theory, sampled weights and the trained network on the examples of one seed.

    `found` is the saddle point, `draws` are the sampled weights.
    """
    sampled, posterior = entry_estimates(draws), draws["posterior"].to_dataset()
    matrices = {
        "theory": np.asarray(found.matrices[0]),
        "sampled": sampled["U_1"].values,
        "trained": np.asarray(bpkr.empirical_order_parameters(network).matrices[0]),
    }
    between_paths = xr.Dataset(
        {
            "U_1": (("origin", *axes(1)), np.stack(list(matrices.values()))),
            "U_1_error": (axes(1), sampled["U_1_error"].values),
            **_diagnostics(draws),
        },
        coords=dict.fromkeys(axes(1), path_names(architecture, 1)),
    )
    outputs = {
        "theory": np.asarray(bpkr.predict(bpkr.Problem(architecture, data), found).mean),
        "sampled": posterior["sampled_output"].mean(("chain", "draw")).values,
        "trained": np.asarray(network.path_outputs(data.test_features).sum(axis=1)),
    }
    shared = shared_heads(architecture)
    agreement = _with_errors(partial(_agreement, shared=shared), matrices, posterior["U_1"].values)
    of_outputs = partial(_accuracy, data=data, distributions=distributions)
    return xr.merge([between_paths, agreement, _with_errors(of_outputs, outputs, posterior["sampled_output"].values)])


def _with_errors(
    measure: Callable[[Mapping[str, np.ndarray]], xr.Dataset], by_origin: Mapping[str, np.ndarray], draws: np.ndarray
) -> xr.Dataset:
    """Apply `measure` to values by origin, and add Monte Carlo errors from the sampled weights `draws`."""

    def with_sampled(mean: np.ndarray) -> xr.Dataset:
        return measure({**by_origin, "sampled": mean})

    def flat(mean: np.ndarray) -> np.ndarray:
        return np.concatenate([values.values.ravel() for values in with_sampled(mean).data_vars.values()])

    found, (_, errors) = with_sampled(by_origin["sampled"]), of_posterior_mean(draws, flat)
    ends = np.cumsum([values.size for values in found.data_vars.values()])
    parts = zip(found.data_vars.items(), np.split(errors, ends[:-1]), strict=True)
    return found.assign(
        {f"{name}_error": values.copy(data=part.reshape(values.shape)) for (name, values), part in parts}
    )


def _accuracy(outputs: Mapping[str, np.ndarray], data: bpkr.Data, distributions: Sequence[str]) -> xr.Dataset:
    """Compute the accuracy of every origin's mean output."""
    shares = xr.concat([accuracies(mean, data, distributions) for mean in outputs.values()], dim="origin")
    return shares.rename("accuracy").assign_coords(origin=list(outputs)).to_dataset()


def _agreement(matrices: Mapping[str, ArrayLike], shared: Bool[np.ndarray, "paths paths"]) -> xr.Dataset:
    """Compare every origin with every other."""
    measures = {
        "correlation": correlation,
        "sign_agreement": sign_agreement,
        "block_sign_agreement": partial(sign_agreement, among=shared),
    }
    between = {
        name: (("of", "origin"), [[measure(a, b) for b in matrices.values()] for a in matrices.values()])
        for name, measure in measures.items()
    }
    strengths = [block_strength(matrix, shared) for matrix in matrices.values()]
    return xr.Dataset(
        {**between, "block_strength": ("origin", strengths)}, coords={"origin": list(matrices), "of": list(matrices)}
    )


def _agreement_of_width(theory: xr.DataArray, trained: ArrayLike) -> xr.Dataset:
    """Compare the trained network with the theory at every seed and width."""
    measures = {"correlation_of_width": correlation, "sign_agreement_of_width": sign_agreement}
    return xr.Dataset(
        {
            name: xr.apply_ufunc(partial(measure, other=trained), theory, input_core_dims=[axes(1)], vectorize=True)
            for name, measure in measures.items()
        }
    )


def shared_heads(architecture: bpkr.Architecture) -> Bool[np.ndarray, "paths paths"]:
    """Find the pairs of paths that share a head of the first layer."""
    first = np.array(architecture.path_branches())[:, 0]
    return first[:, None] == first


def correlation(matrix, other) -> float:
    """Compute Pearson's correlation between the entries above the diagonals of two symmetric matrices."""
    return float(np.corrcoef(_above(matrix), _above(other))[0, 1])


def sign_agreement(matrix, other, among: Bool[np.ndarray, "paths paths"] | bool = True) -> float:
    """Compute the share of entries above the diagonal, restricted to `among`, that have the same sign."""
    return float(np.mean((np.sign(_above(matrix)) == np.sign(_above(other)))[_above(among, len(matrix))]))


def block_strength(matrix, among: Bool[np.ndarray, "paths paths"]) -> float:
    """Compute the mean magnitude of entries above the diagonal in `among`, relative to the others."""
    magnitudes, inside = np.abs(_above(matrix)), _above(among)
    return float(np.mean(magnitudes[inside]) / np.mean(magnitudes[~inside]))


def _above(matrix, size: int | None = None) -> np.ndarray:
    matrix = np.asarray(matrix)
    size = len(matrix) if size is None else size
    return np.broadcast_to(matrix, (size, size))[np.triu_indices(size, k=1)]
