"""Check finite networks with the layer: their outputs, their sum over paths, their prior, and their posterior."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ... import bpkr
from ...bpkr import sampling
from ...bpkr.network.network import checked_whole_widths, network_of_whitened, weight_shapes
from ...bpkr.order_parameters.order_parameters import to_overlaps
from ...codegen import interpret
from ...compilation import jit
from ..hypotheses import EITHER, name_factor
from ..problems import plain, random_heads, random_inputs
from ..report import Finding
from .placement import Placement

_EXAMPLES, _POSTERIOR_EXAMPLES = 2, 6
# Number of networks. The error of a mean over them is 0.7 % of a standard deviation.
_NETWORKS = 20_000
# Number of networks per batch.
_BATCH = 2_000
# Largest number of entries in an array of overlaps.
_LARGEST = 2**25
_ROUNDING = 1e-9
# Largest allowed deviation, in standard errors. Without a mistake, the largest of a few hundred is below 4.5.
_STANDARD_ERRORS = 6.0
# Largest relative statistical error of a ratio.
_RATIO_TOLERANCE = 0.03
_POSTERIOR_WIDTHS = (10, 40)
_SCHEDULE = sampling.Schedule(chains=4, warmup=300, draws=3000)
# Largest allowed ratio of the distances at both widths. The distance falls like 1/N, so the ratio should be a quarter.
# The margin allows for the error of the first distance.
_SHRINKS = 0.5
# Allowed statistical error of a distance, in standard errors.
_POSTERIOR_ERRORS = 4.0
_PACKAGE = "both follow from your formulas: a bug of the package"


def check_networks(placement: Placement, seed: int) -> Iterator[Finding]:
    """Compare the network with its sum over paths and the formulas, and its prior with the moments of the theory."""
    architecture, rng = placement.architecture, np.random.default_rng(seed)
    inputs, heads = jnp.asarray(random_inputs(rng, _EXAMPLES)), random_heads(architecture, rng)
    features = bpkr.path_features(inputs, heads(inputs), architecture)

    def draw(white):
        network = network_of_whitened(architecture, white, heads)
        outputs = [network(inputs), network.path_outputs(features).sum(axis=1)]
        shaped = [each.reshape(len(inputs), -1) for each in outputs]
        return network.weights, *shaped, tuple(to_overlaps(bpkr.empirical_order_parameters(network)))

    count = min(_NETWORKS, _LARGEST // architecture.overlap_sizes[0] ** 2)
    # Use NumPy's generator, which needs no compilation.
    drawn = np.random.default_rng([seed, 1])
    white = tuple(drawn.normal(size=(count, *shape)) for shape in weight_shapes(architecture, inputs.shape[2]))
    several = jit(lambda white: jax.lax.map(draw, white, batch_size=min(_BATCH, count)))(white)
    weights, outputs, path_outputs, overlaps = jax.tree.map(np.asarray, several)
    claim, error = "the network is the sum over its paths", np.max(np.abs(outputs - path_outputs))
    error = error / np.max(np.abs(outputs))
    if error < _ROUNDING:
        yield Finding(claim, f"to {error:.1g} for {len(outputs):,} networks")
    else:
        square = np.sum(path_outputs**2)
        factor = np.sum(outputs * path_outputs) / square if square else float("nan")
        name = name_factor([factor], [placement.quantities], _ROUNDING)
        said = f"outputs differ by up to {error:.3g} of the largest"
        said += f"; the network is {name} times the sum over paths" if name else ""
        meaning = "`LayerForm.reading` or `LayerForm.path_weights` is not the forward map"
        yield Finding(claim, said, f"{meaning}; {_PACKAGE}")
    covariance = interpret(placement.form.covariance, plain(architecture.layer_numbers()))
    width, next_width = checked_whole_widths(architecture)[placement.place : placement.place + 2]
    blocks = weights[placement.place].reshape(-1, next_width, len(covariance), width)
    yield check_covariance(
        "weights of networks are drawn with the covariance of `prior`",
        [Sampled(np.moveaxis(blocks, 2, 1), covariance, placement.quantities)],
        "the package draws its networks incorrectly: a bug of the package",
    )
    names = [f"U_{number}" for number in range(1, architecture.depth + 1)] + ["u"]
    limit = bpkr.gp_limit(architecture)
    yield _check_moments(
        placement,
        "on average the order parameters of sampled networks agree with the theory",
        dict(zip(names, zip(overlaps, to_overlaps(limit), strict=True), strict=True)),
        "`LayerForm.path_weights` and `LayerForm.prior_mean` disagree",
    )
    outputs = outputs.reshape(len(outputs), -1)
    kernel = bpkr.kernel(bpkr.Problem(architecture, bpkr.Data(features)), limit)
    yield _check_moments(
        placement,
        "the outputs of sampled networks have the theory's variance",
        {"the covariance of outputs": (outputs[:, :, None] * outputs[:, None, :], kernel)},
        "the forward map, or how paths are read (`LayerForm.reading`), does not agree with the kernel",
    )


class Sampled(NamedTuple):
    """Weights (draws, blocks, rows, columns), the stated covariance of blocks, and possible ingredients of a factor."""

    weights: np.ndarray
    stated: np.ndarray
    quantities: Mapping[str, float]


def check_covariance(claim: str, samples: Sequence[Sampled], otherwise: str) -> Finding:
    """Compare weights with the covariance of their blocks. Different sizes and variances identify factors."""
    # In each draw, the mean of products of two blocks estimates their covariance.
    products = [
        np.einsum("daij,dbij->dab", each.weights, each.weights) / math.prod(each.weights.shape[2:]) for each in samples
    ]
    deviations = [_largest_deviation(own, each.stated)[0] for own, each in zip(products, samples, strict=True)]
    worst, deviation = int(np.argmax(deviations)), max(deviations)
    if deviation < _STANDARD_ERRORS:
        return Finding(claim, f"to {deviation:.1f} standard errors, {len(products[worst]):,} draws")
    covariances = [np.mean(each, axis=0) for each in products]
    found, stated = (
        np.array2string(np.asarray(each), precision=3, suppress_small=True, separator=", ").replace("\n", "")
        for each in (covariances[worst], samples[worst].stated)
    )
    said = f"a covariance of {found}, but `prior` is {stated}, {deviation:.0f} standard errors"
    return Finding(claim, said, _covariance_meaning(covariances, samples) or otherwise)


def _covariance_meaning(covariances: Sequence[np.ndarray], samples: Sequence[Sampled]) -> str:
    def are_close(one: np.ndarray, other: np.ndarray) -> bool:
        return bool(np.max(np.abs(one - other)) < 2 * _RATIO_TOLERANCE * np.max(np.abs(covariances[0])))

    factors = []
    for found, each in zip(covariances, samples, strict=True):
        factor = float(np.sum(found * each.stated) / np.sum(each.stated**2))
        is_multiple = np.max(np.abs(found - factor * each.stated)) < 2 * _RATIO_TOLERANCE * np.max(np.abs(found))
        factors.append(factor if is_multiple else 0.0)
    if all(factors):
        inverse = [1 / factor for factor in factors]
        name = name_factor(inverse, [each.quantities for each in samples], _RATIO_TOLERANCE) or f"{inverse[0]:.3g}"
        said = "a factor"
        if "width" in name and EITHER not in name:
            said = "the variance of the drawn weights contains the width, by which `forward` already divides"
        elif EITHER not in name and ("layer.variance" in name or name in ("sqrt(2)", "2", "1 / 2")):
            said = "a standard deviation in place of a variance, or the reverse"
        return f"`prior` is {name} times the variance of the drawn weights: {said}"
    found, stated = covariances[0], samples[0].stated
    diagonal, stated_diagonal = np.diag(np.diag(found)), np.diag(np.diag(stated))
    if are_close(found, diagonal) and are_close(diagonal, stated_diagonal):
        return "blocks are correlated in `prior`, and drawn independently"
    if np.all(stated == stated_diagonal) and are_close(diagonal, stated_diagonal):
        return "blocks are independent in `prior`, and drawn with correlations"
    # Permutations and rotations of blocks do not change the spectrum.
    if are_close(np.linalg.eigvalsh(found), np.linalg.eigvalsh(stated)):
        return "the blocks are in another order, or are rotated into each other"
    if are_close(found, np.linalg.inv(stated)):
        return "`prior` is the inverse of the drawn covariance: a precision matrix"
    if are_close(found, stated @ stated.T):
        return "weights are multiplied by `prior`, not by its square root"
    return ""


def _check_moments(placement: Placement, claim: str, pairs: Mapping[str, tuple], meaning: str) -> Finding:
    # Samples (samples, ...) and expected values of their means, by name.
    found = {name: _largest_deviation(samples, expected) for name, (samples, expected) in pairs.items()}
    worst = max(found, key=lambda name: found[name][0])
    (deviation, entry), (samples, expected) = found[worst], pairs[worst]
    if deviation < _STANDARD_ERRORS:
        return Finding(claim, f"{worst} to {deviation:.1f} standard errors, {len(samples):,} networks")
    mean, theory = np.mean(samples, axis=0), np.asarray(expected)
    factor = float(np.sum(mean * theory) / np.sum(theory**2))
    name = name_factor([factor], [placement.quantities], _RATIO_TOLERANCE)
    is_proportional = np.max(np.abs(mean - factor * theory)) < 2 * _RATIO_TOLERANCE * np.max(np.abs(mean))
    throughout = f"; sampled is {name} times theory throughout" if name and is_proportional else ""
    return Finding(
        claim,
        f"{worst}{list(entry)} is {mean[entry]:.4g} on average over {len(samples):,} networks, {theory[entry]:.4g} in "
        f"theory: {deviation:.0f} standard errors{throughout}",
        f"{meaning}; {_PACKAGE}",
    )


def _largest_deviation(samples: np.ndarray, expected: ArrayLike) -> tuple[float, tuple[int, ...]]:
    """Return the largest deviation of a mean over `samples` (samples, ...), in standard errors, and its entry."""
    mean, expected = np.mean(samples, axis=0), np.asarray(expected)
    scale = np.max(np.abs(expected)) + np.max(np.abs(mean))
    # Entries that do not fluctuate, as across a skip connection, have only rounding errors.
    error = np.std(samples, axis=0, ddof=1) / np.sqrt(len(samples)) + 1e-13 * scale
    deviations = np.abs(mean - expected) / error
    entry = np.unravel_index(int(np.argmax(deviations)), deviations.shape)
    return float(deviations[entry]), tuple(int(each) for each in entry)


def check_posterior(placement: Placement, seed: int) -> Finding:
    """Check that the distance between order parameters of the theory and of sampled networks falls with the width."""
    claim, at = "the saddle point comes closer to sampled networks as the width grows", placement.place
    distances, errors, measured = [], [], []
    for width in _POSTERIOR_WIDTHS:
        wide = replace(placement.architecture, widths=width)
        rng = np.random.default_rng(seed)
        inputs, heads = jnp.asarray(random_inputs(rng, _POSTERIOR_EXAMPLES)), random_heads(wide, rng)
        features = bpkr.path_features(inputs, heads(inputs), wide)
        shape = (_POSTERIOR_EXAMPLES, wide.outputs) if wide.outputs > 1 else _POSTERIOR_EXAMPLES
        data = bpkr.Data(features, 2 * rng.normal(size=shape))
        theory = np.asarray(bpkr.solve(wide, data).order_parameters.matrices[at])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", sampling.MixingWarning)
            key = jax.random.key(seed)
            tree = sampling.sample(wide, data, sampler="gibbs", key=key, schedule=_SCHEDULE, progress=False)
        chains = tree["posterior"][f"U_{at + 1}"].values.mean(axis=1)
        mean, error = chains.mean(axis=0), chains.std(axis=0, ddof=1) / np.sqrt(len(chains))
        distances.append(float(np.linalg.norm(theory - mean) / np.linalg.norm(mean)))
        errors.append(float(np.linalg.norm(error) / np.linalg.norm(mean)))
        measured.append(f"{distances[-1]:.3g} +- {errors[-1]:.2g} at width {width}")
    said = f"relative distance of U_{at + 1}: {', '.join(measured)}"
    falls = distances[1] < _SHRINKS * distances[0] + _POSTERIOR_ERRORS * max(errors)
    meaning = "the action or its solution is wrong in this layer, or sampled networks are not those of the theory"
    return Finding(claim, said, "" if falls else meaning)
