"""Predictions of the network at given order parameters, and the kernels behind them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ...checks import counted, is_traced
from ...compilation import jit, jit_and_keep
from ...settings import usual_settings
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Block, Table, Text, verbatim
from ...threads import MANY_ROWS
from ..data.canonical import shared_size, with_zeros
from ..data.classes import Classes
from ..data.data import checked_features
from ..features.implicit import Features, ImplicitFeatures
from ..features.kernels import kernel_between, kernel_diagonal
from ..order_parameters.order_parameters import HasOrderParameters, OrderParameters
from ..specification.architecture import Architecture, checked_architecture
from .formulas import BoundAction, flat_features
from .problem import Problem, as_problem

# A display shows at most this many examples.
_EXAMPLES = 5
# A display shows at most this many outputs.
_OUTPUTS = 4


class Prediction(DisplayMixin, eqx.Module):
    """Posterior mean and variance of the outputs on test examples, without the labels' noise T.

    - `mean`: posterior mean, (examples,) for one output, and (examples, outputs) for several.
    - `variance`: posterior variance, in the same shape.
    - `ansatz`: the assumption beyond large widths, or the parameterisation with a richness, in words; else empty.
    - `classes`: the classes of the labels, if the data of the problem have classes.
    """

    mean: Float[Array, "examples *outputs"]
    variance: Float[Array, "examples *outputs"]
    ansatz: str = eqx.field(static=True, default="")
    classes: Classes | None = eqx.field(static=True, default=None)

    def _view(self) -> Iterator[Block]:
        examples, classes = len(self.mean), self.classes
        yield Text(
            f"**Prediction** for {counted(examples, 'test example')}: mean +- standard deviation, without label noise"
        )
        mean = np.asarray(self.mean[:_EXAMPLES]).reshape(min(examples, _EXAMPLES), -1)
        deviation = np.sqrt(np.asarray(self.variance[:_EXAMPLES]).reshape(mean.shape))
        names = [f"output {i + 1}" for i in range(mean.shape[1])] if mean.shape[1] > 1 else ["output"]
        if classes is not None and classes.outputs > 1:
            names = [verbatim(name) for name in classes.names]
        entries = [
            [f"{m:.4f} +- {s:.4f}" for m, s in zip(*row, strict=True)][:_OUTPUTS]
            for row in zip(mean, deviation, strict=True)
        ]
        header, found = ["example", *names[:_OUTPUTS]], [] if classes is None else classes.decode(self.mean)
        if classes is not None:
            header.append("class")
            for row, name in zip(entries, found[:_EXAMPLES], strict=True):
                row.append(verbatim(name))
        yield Table(tuple((f"{i}", *row) for i, row in enumerate(entries, 1)), tuple(header))
        if examples > _EXAMPLES:
            yield Text(f"... {counted(examples - _EXAMPLES, 'more example')} in `mean` and `variance`")
        if classes is not None:
            counts = [f"{verbatim(name)}: {np.sum(found == name)}" for name in classes.names]
            yield Text(f"predicted {', '.join(counts[:8])}")
        if self.ansatz:
            yield Text(self.ansatz)


@usual_settings()
def predict(
    problem: Problem,
    order_parameters: OrderParameters | HasOrderParameters,
    test_features: ArrayLike | ImplicitFeatures | None = None,
) -> Prediction:
    """Predict the output on test examples: mean (Eqs. 9, 29) and variance (Eq. 30).

    Args:
        problem: the architecture with its training data.
        order_parameters: from a solve, or any others; you can pass a `Saddle`.
        test_features: path features (examples, paths, features); by default the test features of the problem's data.

    Example:
        >>> import numpy as np
        >>> import theorykit
        >>> from theorykit import bpkr
        >>> theorykit.enable_float64()
        >>> features = np.random.default_rng(0).normal(size=(40, 2, 5))
        >>> data = bpkr.Data(features[:20], np.sign(features[:20, 0, 0]), features[20:])
        >>> arch = bpkr.Architecture(layers=(2,), widths=10, temperature=0.1)
        >>> prediction = bpkr.predict(bpkr.Problem(arch, data), bpkr.gp_limit(arch))
        >>> round(float(np.mean(prediction.mean * features[20:, 0, 0] > 0)), 2)  # share of correct signs
        0.7
    """
    problem = as_problem(problem)
    problem.require_labels()
    test_features = problem.test_features(test_features)
    point, examples = problem.point(order_parameters, singular=True), len(test_features)
    pads = problem.examples.adds_zeros and examples <= MANY_ROWS and not is_traced(point, test_features)
    if pads:
        # Add examples of zeros, so that similar numbers of examples share a compiled function.
        size, widens = shared_size(examples), problem.examples.directions is None
        test_features = jnp.asarray(with_zeros(test_features, size, widens))
    prediction = prediction_at(problem.canonical, point, test_features)
    if pads:
        # Slice on the host, where it needs no compilation.
        prediction = jax.tree.map(lambda array: jnp.asarray(np.asarray(array)[:examples]), prediction)
    return replace(problem.finite(prediction), ansatz=problem.ansatz, classes=problem.data.classes)


@jit_and_keep
def prediction_at(problem: Problem, order_parameters: OrderParameters, test_features: Features) -> Prediction:
    """Predict as `predict` does, without checks. Pure and traceable, even for singular order parameters."""
    u1, kernel = order_parameters.first, problem.examples.kernel
    between = kernel.between(u1, problem.examples.tested(test_features))
    found = prediction_from_kernels(
        problem.bound, kernel.matrix(u1), between, kernel_diagonal(u1, test_features), problem.examples.labels
    )
    outputs = problem.architecture.outputs
    return found if outputs == 1 else jax.tree.map(lambda array: array.reshape(-1, outputs), found)


def prediction_from_kernels(
    bound: BoundAction,
    kernel: Float[Array, "rows rows"],
    between: Float[Array, "testrows rows"],
    test_diagonal: Float[Array, " testrows"],
    labels: Float[Array, "rows one"],
) -> Prediction:
    """Evaluate Eqs. (9), (29), (30) from kernels, with one row per (example, output). Pure and traceable.

    `kernel` is K among training examples, `between` is K between test and training examples, and `test_diagonal` is K
    of each test example with itself.
    """
    form = bound.action.of_kernels
    given = {form.kernel: kernel, form.between: between, form.test_diagonal: test_diagonal[:, None]}
    values = bound.compiled.predictor.call_from(bound.numbers_of_predictor() | given | {bound.symbols.labels: labels})
    # Rounding can make the variance negative if the output is certain.
    return Prediction(values["mean"][:, 0], jnp.maximum(values["variance"][:, 0], 0.0))


@usual_settings()
def kernel(
    problem: Problem,
    order_parameters: OrderParameters | HasOrderParameters,
    other: ArrayLike | ImplicitFeatures | None = None,
) -> Float[Array, "rows columns"]:
    """Return the kernel K (Eq. 10) between training examples and other examples.

    Args:
        problem: the architecture with its training data, which need not have labels.
        order_parameters: the order parameters, or a `Saddle`.
        other: path features (examples, paths, features); by default the training features.

    Returns:
        One row per training example, and one column per other example. With C outputs there is one row or column per
        (example, output), and the output varies fastest.
    """
    problem = as_problem(problem)
    if problem.data.replaces:
        raise ValueError("kernel needs training features, but data are from second moments; give bpkr.Data(features)")
    features = problem.data.features
    other = features if other is None else problem.test_features(other, "other features")
    return _kernel(problem.point(order_parameters, singular=True).first, features, other)


_kernel = jit_and_keep(kernel_between)


def path_kernels(architecture: Architecture, features: ArrayLike | ImplicitFeatures) -> Float[Array, "n n rows rows"]:
    """Return the kernel phi^pi_mu . phi^pi'_nu of every pair of paths. K (Eq. 10) is their sum weighted by U_1.

    Args:
        architecture: the architecture.
        features: path features (examples, paths, features), as `path_features` returns them.

    Returns:
        An array (n_1, n_1, rows, rows). Rows are as in `kernel`. With several outputs the first two axes run over
        (path, output) as in U_1, and the output varies fastest.
    """
    return _path_kernels(checked_architecture(architecture), checked_features(architecture, features))


@jit
def _path_kernels(architecture: Architecture, features):
    if isinstance(features, ImplicitFeatures):
        return features.path_kernels(architecture.outputs)
    by_path = flat_features(architecture, features).reshape(-1, architecture.overlap_sizes[0], features.shape[2])
    return jnp.einsum("pai,qbi->abpq", by_path, by_path)
