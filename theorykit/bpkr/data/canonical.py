"""An equivalent set of examples, in sizes that data sets share.

Rotations of examples leave the action unchanged. Each label y of a row of zeros adds
log T + y^2 / T to the energy.
"""

from collections.abc import Iterator

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._compat import MANY_ROWS
from ...checks import Requirement, array_module, is_in_traced_code, is_traced, on_host, require
from ..features.implicit import Features, ImplicitFeatures
from ..features.kernels import Kernel, kernel_of
from ..specification.architecture import Architecture
from .data import Data

_EPS = np.finfo(np.float64).eps


class Examples(eqx.Module):
    """The training examples that solvers use.

    - `labels`: y, with one row per (example, output).
    - `omitted`: labels in rows of zeros that are left out, minus those that were added.
    - `unexplained`: the sum of squares of labels that are left out.
    - `error`: largest rounding error of a feature.
    """

    kernel: Kernel
    labels: Float[Array, "rows one"]
    omitted: Float[Array, ""]
    unexplained: Float[Array, ""]
    error: Float[Array, ""]

    def tested(self, features: Features) -> Features:
        if isinstance(features, ImplicitFeatures):
            return features
        missing = self.kernel.features.shape[2] - features.shape[2]
        return jnp.pad(features, ((0, 0), (0, 0), (0, missing))) if missing else features


def canonical(architecture: Architecture, data: Data) -> Examples:
    """Return the canonical form of checked training data with labels.

    In principal axes of the examples, Cholesky factors of the graded kernel have full
    relative accuracy. Traced data and kernels of tokens stay as they are.
    """
    outputs, temperature = architecture.outputs, architecture.temperature
    features, labels = require((data.features, data.labels), _ranges(architecture, data))
    if isinstance(features, ImplicitFeatures) or is_traced(features, labels):
        return Examples(kernel_of(features, outputs), labels.reshape(-1, 1), *jnp.zeros(3))
    features, labels = np.asarray(features), np.asarray(labels).reshape(len(labels), -1)
    examples, paths, width = features.shape
    smallest, rounding = min(examples, paths * width), examples * _EPS
    is_lost, unexplained, error = False, 0.0, 0.0
    if not is_traced(architecture):
        # Compare T with the rounding of K at infinite width.
        variance = np.prod(architecture.prior_variances[1:])
        is_lost = temperature <= rounding * variance * np.vdot(features, features)
    # To decompose a large set would take longer than a solve.
    if smallest <= MANY_ROWS or is_lost or examples > paths * width:
        decomposes = smallest <= MANY_ROWS or is_lost
        features, labels, unexplained, singular = _rotated(features, labels, decomposes)
        error = _EPS * singular[0]
        least = singular[-1] if examples <= paths * width else 0.0
        if is_lost and temperature <= variance * (rounding * singular[0] ** 2 - least**2):
            known = f"but features have singular values from {least:.3g} to {singular[0]:.3g}"
            raise ValueError(f"temperature={temperature} needs an invertible kernel, so no repeated examples, {known}")
    is_small = smallest * outputs <= MANY_ROWS and not is_in_traced_code(temperature)
    adds_zeros = is_small and bool(temperature > 0)
    # A size that depends on the rank of the data would need a compilation.
    size = shared_size(smallest) if adds_zeros else len(features)
    if adds_zeros:
        rows = size - len(features)
        wider = shared_size(width) - width
        labels = np.pad(labels, ((0, rows), (0, 0)))
        features = np.pad(features, ((0, rows), (0, 0), (0, wider)))
    omitted = (examples - size) * outputs
    numbers = (jnp.asarray(np.float64(each)) for each in (omitted, unexplained, error))
    kernel = kernel_of(features, outputs)
    return Examples(kernel, jnp.asarray(labels.reshape(-1, 1)), *numbers)


def _ranges(architecture: Architecture, data: Data) -> Iterator[Requirement]:
    """Require that products of the data's numbers stay within double precision."""
    given = architecture.prior_variances, architecture.temperature, data.labels
    variances, temperature, labels = map(on_host, given)
    numbers = array_module(given)
    # Order parameters are products of variances, from the readout down.
    powers = numbers.cumsum(numbers.log10(numbers.asarray(variances[::-1])))
    # The misfit is y^2 / T.
    scale = numbers.sqrt(numbers.where(temperature > 0, numbers.minimum(temperature, 1.0), 1.0))
    rows = [
        ("prior_variances", variances, abs(powers) <= 200),
        ("temperature", temperature, temperature <= 1e300),
        ("labels", labels, abs(labels) <= 1e75 * scale),
    ]
    if not isinstance(data.features, ImplicitFeatures):
        features = on_host(data.features)
        rows.append(("features", features, abs(features) <= 1e150))
    for name, value, holds in rows:
        size = "unknown" if is_traced(value) else np.max(np.abs(value))
        yield Requirement(f"{name} of magnitude {size} leave the range of double precision", holds)


def _rotated(features, labels, decomposes: bool):
    """Rotate examples, phi -> O phi and y -> O y, and leave out rows without features.

    Return also the squares of labels without features, and singular values or the norm.
    """
    examples, paths, width = features.shape
    flat, columns = features.reshape(examples, -1), paths * width
    if decomposes:
        left, singular, right = np.linalg.svd(flat, full_matrices=False)
        kept = singular >= max(examples, columns) * _EPS * singular[0]
        left, flat = left[:, kept], singular[kept, None] * right[kept]
        labels, rest = left.T @ labels, labels - left @ (left.T @ labels)
    else:
        singular = np.linalg.norm(flat, keepdims=True).ravel()
        flat, labels = np.hsplit(np.linalg.qr(np.hstack([flat, labels]), mode="r"), [columns])
        flat, labels, rest = flat[:columns], labels[:columns], labels[columns:]
    # Without lost examples, the rest is a rounding error.
    unexplained = np.sum(rest**2) if len(flat) < examples else 0.0
    return flat.reshape(-1, paths, width), labels, unexplained, singular


def shared_size(size: int) -> int:
    """Round a size up to 16, ..., 31 times a power of two."""
    step = 2 ** max(0, (size - 1).bit_length() - 5)
    return step * -(-size // step)
