"""U_1 three times over: of the theory, of sampled weights, and of the trained network's own weights."""

from functools import partial
from pathlib import Path

import jax
import numpy as np
import xarray as xr
from jaxtyping import Bool

from ... import bpkr
from ...sampling import sample_weights_by_gibbs
from ...sampling.results import entry_estimates
from ...sweeps.labelled import axes, path_coordinates
from .settings import OneShot
from .sources import Sources
from .theory import point, samples


def order_parameters(
    network: bpkr.Network, sources: Sources, settings: OneShot, theory: xr.Dataset, folder: Path
) -> xr.Dataset:
    """U_1 along an axis `origin`, "theory", "sampled" and "trained", and how far they agree.

    Theory and sampling are of the smallest width, at the temperature chosen by accuracy and the first seed; the trained
    network has a width of its own, and no temperature.

    - `U_1`, and `U_1_error` of sampling; `mixed` and `diagnosis` of the sampler.
    - `correlation` (of, origin): Pearson's, between the entries above the diagonal. `sign_agreement`: how often their
      signs agree; of independent signs, half. `block_sign_agreement`: of pairs of paths that share the first layer's
      head alone.
    - `block_strength` (origin): mean magnitude of those entries, over that of the others above the diagonal.
    - `correlation_of_width` (seed, width), `sign_agreement_of_width`: theory at every width with the trained network.
    """
    seed, width = int(theory["seed"][0]), int(theory["width"].min())
    chosen = theory["chosen_temperature"].sel(rule="accuracy")
    temperature = float(chosen.sel(width=width))
    architecture, found = point(network.heads, theory, seed=seed, width=width, temperature=temperature)
    data = samples(network.heads, sources, settings, seed)
    draws = sample_weights_by_gibbs(
        architecture,
        data.features,
        data.labels,
        key=jax.random.key(seed),
        chains=settings.chains,
        warmup=settings.warmup,
        draws=settings.draws,
        folder=folder / f"width={width},temperature={temperature!r}",
    )
    sampled = entry_estimates(draws)
    trained = bpkr.empirical_order_parameters(network).matrices[0]
    matrices = {"theory": found.matrices[0], "sampled": sampled["U_1"].values, "trained": trained}
    shared = shared_heads(architecture)
    measures = {
        "correlation": correlation,
        "sign_agreement": sign_agreement,
        "block_sign_agreement": partial(sign_agreement, among=shared),
    }
    between = {
        name: [[measure(a, b) for b in matrices.values()] for a in matrices.values()]
        for name, measure in measures.items()
    }
    at_best = theory["U_1"].sel(temperature=chosen).drop_vars(["temperature", "rule"])
    pairs = xr.apply_ufunc(
        lambda matrix: np.array([correlation(matrix, trained), sign_agreement(matrix, trained)]),
        at_best,
        input_core_dims=[list(axes(1))],
        output_core_dims=[["measure"]],
        vectorize=True,
    )
    return xr.Dataset(
        {
            "U_1": (("origin", *axes(1)), np.stack([np.asarray(matrix) for matrix in matrices.values()])),
            "U_1_error": (axes(1), sampled["U_1_error"].values),
            **{name: (("of", "origin"), np.array(values)) for name, values in between.items()},
            "block_strength": ("origin", [block_strength(matrix, shared) for matrix in matrices.values()]),
            "correlation_of_width": pairs.isel(measure=0),
            "sign_agreement_of_width": pairs.isel(measure=1),
            **{name: draws.attrs[name] for name in ("mixed", "diagnosis")},
        },
        coords={"origin": list(matrices), "of": list(matrices), **_paths(architecture)},
        attrs={"width": width, "temperature": temperature, "seed": seed},
    )


def _paths(architecture: bpkr.Architecture) -> dict[str, list[str]]:
    return {axis: labels for axis, labels in path_coordinates(architecture).items() if axis in axes(1)}


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
