"""The saddle point with the kind in the network against networks sampled from the posterior, at growing width."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np

from ... import bpkr
from ...bpkr import sampling
from ..problems import random_heads, random_inputs
from ..report import Finding, Passed, Result
from .placement import Placement

_WIDTHS = (10, 40)
_EXAMPLES = 6
_SCHEDULE = sampling.Schedule(chains=4, warmup=300, draws=3000)
# the distance must fall as 1/N, so to a quarter; the error of the first distance is left for
_SHRINKS, _STANDARD_ERRORS = 0.5, 4.0


def check_posterior(placement: Placement, seed: int) -> Result:
    """That the distance of the theory's order parameters from those of sampled networks shrinks with the width."""
    claim = "the saddle point comes closer to sampled networks as the width grows"
    distances, errors = [], []
    for width in _WIDTHS:
        distance, error = _distance(placement, width, seed)
        distances.append(distance)
        errors.append(error)
    measured = ", ".join(
        f"{distance:.3g} +- {error:.2g} at width {width}"
        for width, distance, error in zip(_WIDTHS, distances, errors, strict=True)
    )
    if distances[1] < _SHRINKS * distances[0] + _STANDARD_ERRORS * max(errors):
        return Passed(claim, f"relative distance of U_{placement.place + 1}: {measured}")
    return Finding(
        claim,
        f"relative distance of U_{placement.place + 1}: {measured}",
        "the action or its solution is wrong in this layer, or sampled networks are others than those of the theory. "
        "Steps and forward maps, above, say which",
    )


def _distance(placement: Placement, width: int, seed: int) -> tuple[float, float]:
    """How far the saddle point's U is from the sampled mean, relative to its size, and the error of that."""
    architecture = placement.architecture
    wide = bpkr.Architecture(
        architecture.layers,
        width,
        architecture.prior_variances,
        temperature=architecture.temperature,
        outputs=architecture.outputs,
    )
    rng = np.random.default_rng(seed)
    inputs, heads = jnp.asarray(random_inputs(rng, _EXAMPLES)), random_heads(wide, rng)
    features = bpkr.path_features(inputs, heads(inputs), wide)
    labels = 2 * rng.normal(size=(_EXAMPLES, wide.outputs) if wide.outputs > 1 else _EXAMPLES)
    saddle = bpkr.solve(wide, bpkr.Data(features, labels))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sampling.MixingWarning)
        tree = sampling.sample_weights_by_gibbs(
            wide, bpkr.Data(features, labels), key=jax.random.key(seed), schedule=_SCHEDULE, progress=False
        )
    drawn = tree["posterior"][f"U_{placement.place + 1}"].values
    chains = drawn.mean(axis=1)
    mean, error = chains.mean(axis=0), chains.std(axis=0, ddof=1) / np.sqrt(len(chains))
    theory = np.asarray(saddle.order_parameters.matrices[placement.place])
    size = np.linalg.norm(mean)
    return float(np.linalg.norm(theory - mean) / size), float(np.linalg.norm(error) / size)
