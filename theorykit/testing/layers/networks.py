"""Networks of finite size with the kind in them: layer by layer, over paths, and their prior."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ... import bpkr
from ...bpkr.network.network import checked_whole_widths, network_of_whitened, weight_shapes
from ...bpkr.order_parameters.order_parameters import to_overlaps
from ...codegen import interpret
from ...compilation import jit
from ..factors import EITHER, name_factor
from ..problems import random_heads, random_inputs
from ..report import Finding, Passed, Result
from .placement import Placement, numbers_of

EXAMPLES = 2
_NETWORKS, _BATCH = 20_000, 2_000
# largest array of overlaps that is drawn, in numbers
_LARGEST = 2**25
_ROUNDING = 1e-9
# of the largest of some hundred deviations; where there is no mistake it is below 4.5
STANDARD_ERRORS = 6.0
# statistical errors of a ratio, relative
_RATIO_TOLERANCE = 0.03


@dataclass(frozen=True)
class Drawn:
    """Networks from the prior: weights of every layer, outputs (networks, examples, outputs) two ways, and overlaps."""

    weights: tuple[np.ndarray, ...]
    outputs: np.ndarray
    path_outputs: np.ndarray
    overlaps: tuple[np.ndarray, ...]


def check_networks(placement: Placement, seed: int) -> Iterator[Result]:
    """The network is its sum over paths, is what the formulas say, and its prior has the theory's moments."""
    architecture = placement.architecture
    rng = np.random.default_rng(seed)
    inputs, heads = jnp.asarray(random_inputs(rng, EXAMPLES)), random_heads(architecture, rng)
    features = bpkr.path_features(inputs, heads(inputs), architecture)
    drawn = _draw(architecture, heads, inputs, features, seed)
    yield _paths(placement, drawn)
    yield _weights(placement, drawn)
    limit = to_overlaps(bpkr.gp_limit(architecture))
    pairs = zip(drawn.overlaps, limit, strict=True)
    names = [f"U_{number}" for number in range(1, architecture.depth + 1)] + ["u"]
    yield _moments(
        placement,
        "the order parameters of sampled networks are those of the theory on average",
        {name: pair for name, pair in zip(names, pairs, strict=True)},
        "`LayerForm.path_weights` and `LayerForm.prior_mean` disagree",
    )
    outputs = drawn.outputs.reshape(len(drawn.outputs), -1)
    kernel = bpkr.kernel(bpkr.Problem(architecture, bpkr.Data(features)), bpkr.gp_limit(architecture))
    yield _moments(
        placement,
        "the outputs of sampled networks have the theory's variance",
        {"the covariance of outputs": (outputs[:, :, None] * outputs[:, None, :], kernel)},
        "the forward map, or how paths are read (`LayerForm.reading`), is not that of the kernel",
    )


def _draw(architecture: bpkr.Architecture, heads, inputs, features, seed: int) -> Drawn:
    def draw(white):
        network = network_of_whitened(architecture, white, heads)
        outputs = [network(inputs), bpkr.sum_over_paths(network, architecture, features)]
        shaped = [each.reshape(len(inputs), -1) for each in outputs]
        return network.weights, *shaped, tuple(to_overlaps(bpkr.empirical_order_parameters(network)))

    count = min(_NETWORKS, _LARGEST // architecture.overlap_sizes[0] ** 2)
    # drawn by NumPy, whose generator need not be compiled
    rng = np.random.default_rng([seed, 1])
    white = tuple(rng.normal(size=(count, *shape)) for shape in weight_shapes(architecture, inputs.shape[2]))
    drawn = jit(lambda white: jax.lax.map(draw, white, batch_size=min(_BATCH, count)))(white)
    return Drawn(*jax.tree.map(np.asarray, drawn))


def _paths(placement: Placement, drawn: Drawn) -> Result:
    claim = "the network is the sum over its paths"
    size = np.max(np.abs(drawn.outputs))
    error = np.max(np.abs(drawn.outputs - drawn.path_outputs)) / size
    if error < _ROUNDING:
        return Passed(claim, f"to {error:.1g} for {len(drawn.outputs):,} networks")
    network, paths = drawn.outputs.ravel(), drawn.path_outputs.ravel()
    return Finding(
        claim,
        f"outputs differ by up to {error:.3g} of the largest{_ratio_said(placement, network @ paths, paths @ paths)}",
        "what is read off the forward map, `LayerForm.reading` or `LayerForm.path_weights`, is not the forward map. "
        "It follows from your formula without your doing: a mistake of the package",
    )


def _ratio_said(placement: Placement, product: float, square: float) -> str:
    """The factor between two arrays that are proportional to each other, in words."""
    factor = product / square if square else float("nan")
    name = name_factor([factor], [numbers_of(placement)], _ROUNDING)
    return f"; the network is {name} times the sum over paths" if name else ""


def _weights(placement: Placement, drawn: Drawn) -> Result:
    architecture, form = placement.architecture, placement.form
    numbers = {
        name: np.asarray(value) if np.ndim(value) else float(value)
        for name, value in architecture.layer_numbers().items()
    }
    covariance = interpret(form.covariance, numbers)
    width, next_width = checked_whole_widths(architecture)[placement.place : placement.place + 2]
    blocks = drawn.weights[placement.place].reshape(-1, next_width, len(covariance), width)
    return check_covariance(
        "weights of networks are drawn with the covariance of `prior`",
        [Sampled(np.moveaxis(blocks, 2, 1), covariance, numbers_of(placement))],
        "the networks of the package are drawn wrongly: a mistake of the package",
    )


@dataclass(frozen=True)
class Sampled:
    """Weights (draws, blocks, rows, columns), the stated covariance of their blocks, and what a factor may be of."""

    weights: np.ndarray
    stated: np.ndarray
    quantities: Mapping[str, float]

    @property
    def products(self) -> np.ndarray:
        """Products of blocks in each draw, whose mean is their covariance."""
        return np.einsum("daij,dbij->dab", self.weights, self.weights) / math.prod(self.weights.shape[2:])

    @property
    def covariance(self) -> np.ndarray:
        """That of the draws."""
        return np.mean(self.products, axis=0)

    @property
    def factor(self) -> float:
        """By how much the draws' covariance exceeds the stated one, if they are multiples; zero if they are not."""
        found, stated = self.covariance, self.stated
        factor = float(np.sum(found * stated) / np.sum(stated**2))
        is_multiple = np.max(np.abs(found - factor * stated)) < 2 * _RATIO_TOLERANCE * np.max(np.abs(found))
        return factor if is_multiple else 0.0


def check_covariance(claim: str, samples: Sequence[Sampled], otherwise: str) -> Result:
    """Weights against the covariance of their blocks; of several sizes and variances, by which a factor is named."""
    deviations = [largest_deviation(each.products, each.stated)[0] for each in samples]
    deviation, worst = max(deviations), samples[int(np.argmax(deviations))]
    if deviation < STANDARD_ERRORS:
        return Passed(claim, f"to {deviation:.1f} standard errors, {len(worst.weights):,} draws")
    said = (
        f"a covariance of {_written(worst.covariance)} where `prior` is {_written(worst.stated)}, {deviation:.0f} "
        "standard errors"
    )
    return Finding(claim, said, _covariance_meaning(samples) or otherwise)


def _covariance_meaning(samples: Sequence[Sampled]) -> str:
    found, stated = samples[0].covariance, samples[0].stated
    factors = [each.factor for each in samples]
    if all(factors):
        inverse = [1 / factor for factor in factors]
        name = name_factor(inverse, [each.quantities for each in samples], _RATIO_TOLERANCE) or f"{inverse[0]:.3g}"
        if EITHER in name:
            return f"`prior` is {name} times the variance that is drawn: a factor"
        if "width" in name:
            return (
                f"`prior` is {name} times the variance that is drawn: the weights are drawn with the width in their "
                "variance. Here `forward` divides by sqrt(layer.width), and weights have variance layer.variance"
            )
        if "layer.variance" in name or name in ("sqrt(2)", "2", "1 / 2"):
            return (
                f"`prior` is {name} times the variance that is drawn: a standard deviation for a variance, or the "
                "reverse"
            )
        return f"`prior` is {name} times the variance that is drawn: a factor"
    diagonal, stated_diagonal = np.diag(np.diag(found)), np.diag(np.diag(stated))
    tolerance = 2 * _RATIO_TOLERANCE * np.max(np.abs(found))
    if np.max(np.abs(found - diagonal)) < tolerance and np.max(np.abs(diagonal - stated_diagonal)) < tolerance:
        return "blocks are correlated in `prior`, and drawn independently"
    if np.max(np.abs(stated - stated_diagonal)) == 0 and np.max(np.abs(diagonal - stated_diagonal)) < tolerance:
        return "blocks are independent in `prior`, and drawn with correlations"
    if np.max(np.abs(np.sort(np.linalg.eigvalsh(found)) - np.linalg.eigvalsh(stated))) < tolerance:
        return "the blocks stand in another order, or are rotated into each other"
    inverse = np.linalg.solve(stated, np.eye(len(stated)))
    if np.max(np.abs(found - inverse)) < tolerance:
        return "`prior` is the inverse of the covariance that is drawn: a precision matrix"
    if np.max(np.abs(found - stated @ stated.T)) < tolerance:
        return (
            "`prior` is a factor of the covariance that is drawn: the weights are multiplied by `prior`, not its root"
        )
    return ""


def _written(matrix: np.ndarray) -> str:
    return np.array2string(np.asarray(matrix), precision=3, suppress_small=True, separator=", ").replace("\n", "")


def _moments(placement: Placement, claim: str, pairs: Mapping[str, tuple], meaning: str) -> Result:
    """Means of samples (samples, ...) against what they should be, by name."""
    found = {name: largest_deviation(samples, expected) for name, (samples, expected) in pairs.items()}
    worst = max(found, key=lambda name: found[name][0])
    deviation, entry = found[worst]
    samples, expected = pairs[worst]
    if deviation < STANDARD_ERRORS:
        return Passed(claim, f"{worst} to {deviation:.1f} standard errors, {len(samples):,} networks")
    mean, theory = np.mean(samples, axis=0), np.asarray(expected)
    factor = float(np.sum(mean * theory) / np.sum(theory**2))
    name = name_factor([factor], [numbers_of(placement)], _RATIO_TOLERANCE)
    proportional = np.max(np.abs(mean - factor * theory)) < 2 * _RATIO_TOLERANCE * np.max(np.abs(mean))
    throughout = f"; sampled is {name} times theory throughout" if name and proportional else ""
    return Finding(
        claim,
        f"{worst}{list(entry)} is {mean[entry]:.4g} on average over {len(samples):,} networks, {theory[entry]:.4g} in "
        f"theory: {deviation:.0f} standard errors{throughout}",
        f"{meaning}. Both follow from your formulas without your doing: a mistake of the package",
    )


def largest_deviation(samples: np.ndarray, expected: ArrayLike) -> tuple[float, tuple[int, ...]]:
    """How far the mean of `samples` (samples, ...) is from `expected`, in standard errors, and at which entry."""
    mean, expected = np.mean(samples, axis=0), np.asarray(expected)
    scale = np.max(np.abs(expected)) + np.max(np.abs(mean))
    # entries that are fixed, as across a skip connection, have no error but rounding
    error = np.std(samples, axis=0, ddof=1) / np.sqrt(len(samples)) + 1e-13 * scale
    deviations = np.abs(mean - expected) / error
    entry = np.unravel_index(int(np.argmax(deviations)), deviations.shape)
    return float(deviations[entry]), tuple(int(each) for each in entry)
