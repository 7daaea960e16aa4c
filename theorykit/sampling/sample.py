"""Three samplers of one posterior, from one architecture and one data set.

- `sample_order_parameters`: NUTS on the order parameters, whose exact law at finite width needs no weights.
- `sample_weights`: NUTS on all weights, as the paper does.
- `sample_weights_by_gibbs`: exact block Gibbs on all weights.

The latter two know nothing of order parameters: they run the finite network.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.typing import ArrayLike
from jaxtyping import Array, PRNGKeyArray

from .. import bpkr
from ..bpkr.attention import AbstractHeads
from ..bpkr.checks import check_same_input_features, checked_data, checked_features
from ..bpkr.derive import derive
from ..bpkr.energies import energy_by_kernel, energy_of
from ..bpkr.evaluate import flat_features
from ..bpkr.finite_width_law import law_of
from ..bpkr.network import checked_whole_widths, network_of_whitened, weight_shapes
from ..sweeps.folder import fingerprint
from .chains import AbstractSampler, Schedule, run_chains
from .gibbs import Gibbs
from .nuts import no_u_turn
from .order_parameters import OrderParameterPosterior
from .results import labelled_draws
from .weights import WeightPosterior, split_weights


def sample_order_parameters(
    architecture: bpkr.Architecture,
    features: ArrayLike,
    labels: ArrayLike,
    *,
    key: PRNGKeyArray,
    test_features: ArrayLike | None = None,
    chains: int = 4,
    warmup: int = 500,
    draws: int = 1000,
    target_accept: float = 0.65,
    folder: Path | None = None,
    progress: bool = True,
) -> xr.DataTree:
    """Draws from the exact posterior of the order parameters at the architecture's widths, however small.

    `features` (examples, paths, features) as `path_features` returns them, `labels` (examples,), or (examples, outputs)
    where there are several; `test_features` has the layout of `features`. A layer of fewer units than partial paths
    makes the order parameters singular, which is no difficulty.

    The tree is that of `labelled_draws`, with U_l, u and, for test examples, `mean` and `variance` of the output given
    the order parameters: the posterior mean of `mean` is the network's, exactly. With a `folder`, a run that was
    stopped, or wants more draws, goes on from there. Warns with `MixingWarning` if the chains did not mix.
    """
    given = _Data.checked(architecture, features, labels, test_features)
    law = law_of(given.architecture)
    if law.is_singular and float(architecture.temperature) == 0:
        raise ValueError(
            f"temperature=0 with widths={architecture.widths}: a layer with fewer units than partial paths makes the "
            "kernel singular; use a positive temperature"
        )
    energy = (energy_by_kernel if law.is_singular else energy_of)(given.architecture, given.features, given.labels)
    posterior = OrderParameterPosterior(law, energy, given.by_symbol())
    sampler = no_u_turn(posterior, warmup=warmup, dense_mass=True, target_accept=target_accept)
    options = {"sampler": "NUTS on the order parameters", "target_accept": repr(target_accept)}
    return _run(sampler, given, Schedule(chains, warmup, draws), options, key, folder, progress)


def sample_weights(
    architecture: bpkr.Architecture,
    features: ArrayLike,
    labels: ArrayLike,
    *,
    key: PRNGKeyArray,
    test_features: ArrayLike | None = None,
    chains: int = 4,
    warmup: int = 500,
    draws: int = 500,
    target_accept: float = 0.8,
    max_tree_depth: int = 10,
    keep_weights: bool = False,
    folder: Path | None = None,
    progress: bool = True,
) -> xr.DataTree:
    """Draws of all weights but queries and keys from the posterior of Eq. (8), by NUTS, as in the paper.

    Arguments and result as of `sample_order_parameters`; U_l and u are those of the weights, Eq. (13), and for test
    examples there is the network's output, `sampled_output`; with `keep_weights`, `network_of` makes networks of draws.
    Slow: the posterior of the weights is far from isotropic at a low temperature, and draws take up to 2^max_tree_depth
    gradients.
    """
    given = _Data.checked(architecture, features, labels, test_features)
    posterior = _weight_posterior(given, keep_weights)
    sampler = no_u_turn(
        posterior, warmup=warmup, dense_mass=False, target_accept=target_accept, max_tree_depth=max_tree_depth
    )
    options = {
        "sampler": "NUTS on the weights",
        "target_accept": repr(target_accept),
        "max_tree_depth": repr(max_tree_depth),
        "keep_weights": repr(keep_weights),
    }
    return _run(sampler, given, Schedule(chains, warmup, draws), options, key, folder, progress)


def sample_weights_by_gibbs(
    architecture: bpkr.Architecture,
    features: ArrayLike,
    labels: ArrayLike,
    *,
    key: PRNGKeyArray,
    test_features: ArrayLike | None = None,
    chains: int = 4,
    warmup: int = 1000,
    draws: int = 4000,
    keep_weights: bool = False,
    folder: Path | None = None,
    progress: bool = True,
) -> xr.DataTree:
    """The same by exact block Gibbs: every block of weights in turn is drawn from its Gaussian conditional.

    No step size, no rejections; a draw is one sweep over all blocks. It mixes fast at temperatures that are not small
    beside the kernel, and slowly where the labels are nearly interpolated.
    """
    given = _Data.checked(architecture, features, labels, test_features)
    sampler = Gibbs(_weight_posterior(given, keep_weights))
    options = {"sampler": "block Gibbs on the weights", "keep_weights": repr(keep_weights)}
    return _run(sampler, given, Schedule(chains, warmup, draws), options, key, folder, progress)


def network_of(
    architecture: bpkr.Architecture,
    tree: xr.DataTree,
    heads: AbstractHeads,
    *,
    chain: int,
    draw: int,
    readout: bpkr.Readout = "last",
) -> bpkr.Network:
    """The network of one draw of `sample_weights` or `sample_weights_by_gibbs`, which was told `keep_weights`.

    `heads` and `readout` must be those of the features that the weights were sampled with: the draws do not know them.
    """
    posterior = tree["posterior"].to_dataset()
    if "weights" not in posterior:
        raise ValueError("the draws have no weights: sample the weights, with keep_weights=True")
    white = posterior["weights"].sel(chain=chain, draw=draw).values
    others = sum(math.prod(shape) for shape in weight_shapes(architecture, 0))
    shapes = weight_shapes(architecture, (white.size - others) // int(architecture.widths[0]))
    return network_of_whitened(architecture, split_weights(jnp.asarray(white), shapes), heads, readout=readout)


class _Data:
    """An architecture and data that fit it, as arrays."""

    def __init__(self, architecture, features, labels, test_features):
        self.given = architecture
        # numbers as arrays: one compilation serves them all
        self.architecture = jax.tree.map(lambda number: jnp.asarray(number, dtype=jnp.float64), architecture)
        self.features, self.labels, self.test_features = features, labels, test_features

    @classmethod
    def checked(cls, architecture, features, labels, test_features) -> "_Data":
        features, labels = checked_data(architecture, features, labels)
        if test_features is not None:
            test_features = checked_features(architecture, test_features, "test_features")
            check_same_input_features(features, test_features, "test_features")
        return cls(architecture, features, labels, test_features)

    def by_symbol(self) -> Mapping[str, Array]:
        """The data of the predictor by symbol; empty if nothing is to be predicted."""
        if self.test_features is None:
            return {}
        symbols = derive(self.architecture).symbols
        return {
            symbols.features.name: flat_features(self.architecture, self.features),
            symbols.labels.name: self.labels.reshape(-1, 1),
            symbols.test_features.name: flat_features(self.architecture, self.test_features),
        }

    def settings(self) -> Mapping[str, str]:
        """What determines the posterior, as text."""
        arrays = {"features": self.features, "labels": self.labels, "test_features": self.test_features}
        return {
            "architecture": repr(self.given),
            **{name: "none" if array is None else fingerprint(array) for name, array in arrays.items()},
        }


def check_weights_have_a_posterior(architecture: bpkr.Architecture) -> None:
    """Raise `ValueError` unless there are networks of these widths, and a density of their weights."""
    checked_whole_widths(architecture)
    if float(architecture.temperature) == 0:
        raise ValueError(
            "temperature=0 makes the posterior of the weights live on the networks that interpolate the labels, where "
            "it has no density; sample the order parameters, or use a positive temperature"
        )


def _weight_posterior(given: _Data, keep_weights: bool) -> WeightPosterior:
    architecture = given.given
    check_weights_have_a_posterior(architecture)
    return WeightPosterior(
        given.architecture,
        given.features,
        given.labels.reshape(len(given.labels), -1),
        given.features[:0] if given.test_features is None else given.test_features,
        weight_shapes(architecture, given.features.shape[2]),
        keep_weights,
    )


def _run(sampler: AbstractSampler, given: _Data, schedule: Schedule, options, key, folder, progress) -> xr.DataTree:
    raw = np.asarray(jax.random.key_data(key))
    # more draws of the same chains are the same run
    settings = {**given.settings(), **options, "chains": repr(schedule.chains), "warmup": repr(schedule.warmup)}
    settings["key"] = " ".join(map(str, raw.ravel()))
    drawn = run_chains(sampler, schedule, key=key, settings=settings, folder=folder, progress=progress)
    return labelled_draws(given.given, drawn, settings)
