"""U_1 three times over: of the theory, of sampled weights, and of the trained network's own weights."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import jax
import numpy as np
import xarray as xr
from jax.typing import ArrayLike
from jaxtyping import Bool

from ... import bpkr
from ...bpkr.sampling import Schedule, sample_weights_by_gibbs
from ...bpkr.sampling.results import entry_estimates
from ...bpkr.sweeps import order_parameters_of
from ...bpkr.sweeps.datasets import axes, path_coordinates
from ...workers import Workers
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
    executor: Workers,
    progress: bool,
) -> xr.Dataset:
    """U_1 and accuracies along an axis `origin`, "theory", "sampled" and "trained", and how far they agree.

    Theory and sampling are of the smallest width, at the temperature chosen by accuracy; the trained network has a
    width of its own, and no temperature.

    - `U_1` (seed, origin, path, path), and `U_1_error` of sampling; `mixed` and `diagnosis` of the sampler.
    - `accuracy` (seed, origin, distribution): of the mean output, and of the trained network, on the same examples.
    - `correlation` (seed, of, origin): Pearson's, between the entries above the diagonal. `sign_agreement`: how often
      their signs agree; of independent signs, half. `block_sign_agreement`: of pairs of paths that share the first
      layer's head alone.
    - `block_strength` (seed, origin): mean magnitude of those entries, over that of the others above the diagonal.
    - `correlation_of_width` (seed, width), `sign_agreement_of_width`: theory at every width with the trained network.
    """
    width = int(theory["width"].min())
    chosen = theory["chosen_temperature"].sel(rule="accuracy", drop=True)
    temperature = float(chosen.sel(width=width))
    architecture = bpkr.Architecture(network.heads.counts, width, temperature=temperature)
    kept = folder / f"width={width},temperature={temperature!r}"
    seeds = theory["seed"].values.tolist()
    found = []
    for seed in seeds:
        data = examples_of_seed(network.heads, sources, settings, seed)
        solution = order_parameters_of(architecture, theory.sel(seed=seed, width=width, temperature=temperature))
        draws = sample_weights_by_gibbs(
            architecture,
            data,
            key=jax.random.key(seed),
            schedule=Schedule(settings.chains, settings.warmup, settings.draws),
            folder=kept / f"seed={seed}",
            executor=executor,
            progress=progress,
        )
        found.append(_of_seed(network, architecture, data, list(sources.tests), solution, draws))
    trained = bpkr.empirical_order_parameters(network).matrices[0]
    return xr.merge(
        [
            xr.concat(found, dim=xr.DataArray(seeds, dims="seed", name="seed")),
            _agreement_of_width(theory["U_1"].sel(temperature=chosen).drop_vars("temperature"), trained),
        ]
    ).assign_attrs(width=width, temperature=temperature)


def _of_seed(
    network: bpkr.Network,
    architecture: bpkr.Architecture,
    data: bpkr.Data,
    distributions: Sequence[str],
    found: bpkr.OrderParameters,
    draws: xr.DataTree,
) -> xr.Dataset:
    """All of it for the examples of one seed: `found` is their saddle point, `draws` are the sampled weights."""
    sampled = entry_estimates(draws)
    prediction = bpkr.predict(architecture, found, data.features, data.labels, data.test_features)
    outputs = {
        "theory": prediction.mean,
        "sampled": draws["posterior"]["sampled_output"].mean(("chain", "draw")).values,
        "trained": bpkr.path_outputs(network, architecture, data.test_features).sum(axis=1),
    }
    matrices = {
        "theory": found.matrices[0],
        "sampled": sampled["U_1"].values,
        "trained": bpkr.empirical_order_parameters(network).matrices[0],
    }
    between_paths = xr.Dataset(
        {
            "U_1": (("origin", *axes(1)), np.stack([np.asarray(matrix) for matrix in matrices.values()])),
            "U_1_error": (axes(1), sampled["U_1_error"].values),
            **{name: draws.attrs[name] for name in ("mixed", "diagnosis")},
        },
        coords={axis: labels for axis, labels in path_coordinates(architecture).items() if axis in axes(1)},
    )
    shares = xr.concat([accuracies(mean, data, distributions) for mean in outputs.values()], dim="origin")
    agreement = _agreement(matrices, shared_heads(architecture))
    return xr.merge([between_paths, agreement, shares.rename("accuracy").assign_coords(origin=list(outputs))])


def _agreement(matrices: Mapping[str, ArrayLike], shared: Bool[np.ndarray, "paths paths"]) -> xr.Dataset:
    """Of every origin with every other."""
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
    """Of the trained network with the theory at every seed and width."""
    measures = {"correlation_of_width": correlation, "sign_agreement_of_width": sign_agreement}
    return xr.Dataset(
        {
            name: xr.apply_ufunc(partial(measure, other=trained), theory, input_core_dims=[axes(1)], vectorize=True)
            for name, measure in measures.items()
        }
    )


def shared_heads(architecture: bpkr.Architecture) -> Bool[np.ndarray, "paths paths"]:
    """Which pairs of paths go through the same head of the first layer."""
    first = np.array(architecture.path_branches())[:, 0]
    return first[:, None] == first


def correlation(matrix, other) -> float:
    """Pearson's correlation between the entries above the diagonals of two symmetric matrices."""
    return float(np.corrcoef(_above(matrix), _above(other))[0, 1])


def sign_agreement(matrix, other, among: Bool[np.ndarray, "paths paths"] | bool = True) -> float:
    """The share of entries above the diagonal, `among` which to look, whose signs are the same."""
    return float(np.mean((np.sign(_above(matrix)) == np.sign(_above(other)))[_above(among, len(matrix))]))


def block_strength(matrix, among: Bool[np.ndarray, "paths paths"]) -> float:
    """The mean magnitude of the entries above the diagonal that are `among` those, over that of the others."""
    magnitudes, inside = np.abs(_above(matrix)), _above(among)
    return float(np.mean(magnitudes[inside]) / np.mean(magnitudes[~inside]))


def _above(matrix, size: int | None = None) -> np.ndarray:
    matrix = np.asarray(matrix)
    size = len(matrix) if size is None else size
    return np.broadcast_to(matrix, (size, size))[np.triu_indices(size, k=1)]
