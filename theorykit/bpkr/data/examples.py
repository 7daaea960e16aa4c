"""Check that the kernel of examples has a Cholesky factor, and that numbers are in the range of double precision."""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...checks import Requirement, array_module, is_traced, on_host, require, single_precision_note
from ...threads import threads_for
from ..features.implicit import ImplicitFeatures, PathFeatures
from ..specification import layer_functions
from ..specification.architecture import Architecture, check_fits

# Largest powers of ten for which squares and products do not overflow: of order parameters, labels, misfit and
# temperature.
_ORDER_PARAMETERS = 200.0
_LABELS = 75.0
_MISFIT = 150.0
_TEMPERATURE = 300.0
_EPS = np.finfo(np.float64).eps


def computable(
    architecture: Architecture, known: PathFeatures, labels: Float[Array, "examples *outputs"]
) -> tuple[PathFeatures, Array]:
    """Require that the kernel of the `known` features has a Cholesky factor, and return features and labels."""
    # `require` also traces known features if the labels are traced.
    features, labels = require((known, labels), _are_moderate(architecture, labels))
    if is_traced(architecture) or isinstance(features, ImplicitFeatures):
        return features, labels
    if not is_traced(known):
        _check_independent(architecture, np.asarray(known))
    elif architecture.temperature == 0:
        # Make the check of `_check_independent` for traced features.
        examples, paths, input_features = features.shape
        message = "temperature=0 needs an invertible kernel, but the examples are linearly dependent"
        is_independent = examples <= paths * input_features
        if is_independent:
            weighted = jnp.einsum("pki,kj->pji", features, np.linalg.cholesky(prior_of_paths(architecture)))
            singular = _singular_values(jax.lax.stop_gradient(weighted).reshape(examples, paths * input_features))
            is_independent = singular[-1] ** 2 > examples * _EPS * singular[0] ** 2
        return require((features, labels), [Requirement(message, is_independent)])
    return features, labels


def _are_moderate(architecture: Architecture, labels: Float[Array, "examples *outputs"]) -> Iterator[Requirement]:
    """Require that products of prior variances, labels and temperatures stay within double precision."""
    variances = [on_host(variance) for variance in architecture.prior_variances]
    numbers = array_module(variances)
    # Powers of ten of the order parameters, from the readout down.
    exponents = numbers.cumsum(numbers.stack([numbers.log10(variance) for variance in reversed(variances)]))
    too_large = "{} whose square exceeds the range of double precision; rescale the {}".format

    def of_variances(shown: str = "") -> str:
        return too_large(f"prior_variances{shown} make order parameters", "variances, or the features")

    yield Requirement(
        of_variances(),
        abs(exponents) <= _ORDER_PARAMETERS,
        lambda: of_variances(f" ({', '.join(f'{float(each):.3g}' for each in variances)})"),
    )
    temperature, labels = on_host(architecture.temperature), on_host(labels)
    beyond = "exceeds the range of double precision"
    yield Requirement(
        f"temperature {beyond}",
        temperature <= 10**_TEMPERATURE,
        lambda: f"temperature={float(temperature):.3g} {beyond}",
    )
    numbers, tiny = array_module(temperature, labels), np.finfo(np.float64).tiny
    largest = numbers.max(numbers.abs(labels))
    of_labels = numbers.log10(numbers.maximum(largest, tiny))
    # At T = 0, use the misfit at a temperature of one.
    misfit = 2 * of_labels - numbers.where(temperature > 0, numbers.log10(numbers.maximum(temperature, tiny)), 0.0)
    message, are_moderate = too_large("labels and temperature make a misfit", "labels"), of_labels <= _LABELS
    yield Requirement(
        message,
        (largest == 0) | (are_moderate & (misfit <= _MISFIT)),
        lambda: too_large(
            f"labels of magnitude {largest:.3g} at temperature={float(temperature):.3g} make a misfit", "labels"
        ),
    )


# Factorise one matrix at a time, because XLA can deadlock in batched factorisations on two cores.
_singular_values = jax.custom_batching.sequential_vmap(lambda matrix: jnp.linalg.svd(matrix, compute_uv=False))


def _check_independent(architecture: Architecture, features: Float[np.ndarray, "examples paths features"]) -> None:
    """Raise an error for linearly dependent examples if the temperature is negligible.

    The kernel is then singular, but because of rounding some singular kernels would pass the Cholesky factorisation.
    """
    # Use einsum instead of BLAS, whose threads would compete with the threads of XLA.
    square, largest = np.einsum("pki,pki->", features, features), np.finfo(np.float64).max / features.size
    if not square <= largest and (magnitude := np.max(np.abs(features))) > math.sqrt(largest):
        raise ValueError(
            f"features of magnitude {magnitude:.3g} make a kernel that exceeds the range of double precision; rescale "
            "them"
        )
    temperature = float(architecture.temperature)
    examples, paths, input_features = features.shape
    prior, rounding = prior_of_paths(architecture), examples * _EPS
    # Try a cheap bound on the kernel's trace first.
    if temperature > rounding * np.trace(prior) * square:
        return
    weighted = np.einsum("pki,kj->pji", features, np.linalg.cholesky(prior))
    if temperature > rounding * np.sum(weighted**2):
        return
    rank = paths * input_features
    needs = (
        "temperature=0 needs an invertible kernel, but"
        if temperature == 0
        else f"temperature={temperature:.3g} is lost in a kernel that is not positive definite to double precision:"
    )
    if examples > rank:
        raise ValueError(
            f"{needs} {examples} examples exceed its rank, at most paths x features = {paths} x {input_features} = "
            f"{rank}; use a larger temperature"
        )
    with threads_for(examples):
        singular = np.linalg.svd(weighted.reshape(examples, rank), compute_uv=False)
    # The condition number of the kernel is the square of the condition number of the features.
    if singular[-1] ** 2 + temperature <= rounding * singular[0] ** 2:
        raise ValueError(
            f"{needs} the examples are linearly dependent (their singular values are {singular[-1]:.3g} to "
            f"{singular[0]:.3g}), as repeated examples are; remove them or use a larger temperature"
            f"{single_precision_note(features)}"
        )


def prior_of_paths(architecture: Architecture) -> Float[np.ndarray, "paths paths"]:
    """Return U_1 at infinite width for one output and all tokens that are read."""
    check_fits(architecture, "making the order parameter U_1", 3 * architecture.overlap_sizes[0] ** 2)
    # The result does not depend on the temperature and the data, so cache it without them.
    leaves, structure = jax.tree.flatten(eqx.tree_at(lambda at: at.temperature, architecture, 0.0))
    arrays = [np.asarray(leaf, dtype=np.float64) for leaf in leaves]
    return _prior_of_values(structure, tuple((array.shape, array.tobytes()) for array in arrays))


@lru_cache(maxsize=256)
def _prior_of_values(structure: Any, contents: tuple[tuple[tuple[int, ...], bytes], ...]) -> np.ndarray:
    leaves = [np.frombuffer(each).reshape(shape) for shape, each in contents]
    architecture: Architecture = jax.tree.unflatten(structure, leaves)
    # These are constants of the architecture, even if this runs in a function that is being traced.
    with jax.ensure_compile_time_eval():
        numbers = architecture.layer_numbers()
    outer = architecture.prior_variances[-1] * np.eye(architecture.read_tokens)
    return (*layer_functions.prior_means(architecture.forms, numbers, outer), outer)[0]
