"""A problem: an architecture with checked data, and the compiled action with the numbers of the architecture.

Theory 1 checks its inputs here. `solve`, `predict` and other functions take a problem and do not check it again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...checks import checked_instance, counted, is_in_traced_code, is_traced
from ...memory import memory
from ...settings import usual_settings
from ...sharding import all_finite, is_sharded
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Block, Table, Text, verbatim
from ...symbolic.documents.values import data_size, number
from ...threads import MANY_ROWS
from ..action.action import Action
from ..data.classes import warn_of_class_numbers
from ..data.data import Data, check_data, check_same_width, check_solvable, checked_features, data_line, data_rows
from ..features.implicit import Features, ImplicitFeatures
from ..order_parameters.order_parameters import HasOrderParameters, OrderParameters, checked_order_parameters
from ..specification.architecture import Architecture, ansatz_of, solve_bytes
from ..specification.view import architecture_line, widths_in_words
from .bound_action import BoundAction, bind
from .energies import has_dual_form


class Problem(DisplayMixin, eqx.Module):
    """An architecture with data, the input of `solve`, `evaluate`, `predict` and other functions.

    The constructor takes an architecture and data. It checks the data once, and derives and compiles the action. A
    problem is a JAX pytree: the numbers of the architecture and the arrays of the data are leaves. To differentiate or
    vmap, make the problem inside the function.

    - `bound`: the compiled action with the numbers of the architecture.
    - `data`: the checked data.
    - `ansatz`: the assumption beyond large widths, or the parameterisation with a richness, in words; else empty.

    Example:
        >>> import numpy as np
        >>> import theorykit
        >>> from theorykit import bpkr
        >>> theorykit.enable_float64()
        >>> rng = np.random.default_rng(0)
        >>> data = bpkr.Data(rng.normal(size=(20, 2, 5)), rng.choice([-1.0, 1.0], size=20))
        >>> problem = bpkr.Problem(bpkr.Architecture(layers=(2,), widths=10, temperature=0.1), data)
        >>> bool(bpkr.solve(problem).converged)
        True
    """

    bound: BoundAction
    data: Data
    ansatz: str = eqx.field(static=True)

    @usual_settings()
    def __init__(self, architecture: Architecture, data: Data):
        self.data = check_solvable(architecture, check_data(architecture, data))
        if data.classes is None and data.labels is not None:
            warn_of_class_numbers(data.labels, stacklevel=4)
        self.bound = bind(architecture.with_arrays())
        self.ansatz = ansatz_of(architecture, 0 if self.data.labels is None else self.data.labels.size)

    def __reduce__(self):
        # Compiled functions cannot be pickled, so the other process compiles them again.
        return Problem, (self.architecture, self.data)

    @property
    def architecture(self) -> Architecture:
        """The architecture, with its numbers as arrays."""
        return self.bound.architecture

    @property
    def action(self) -> Action:
        """The derived action."""
        return self.bound.action

    @property
    def description(self) -> str:
        """Numbers of examples, layers, paths and outputs, and the temperature, in words."""
        return f"{data_line(self.data)}; {architecture_line(self.architecture)}"

    @property
    def is_dual(self) -> bool:
        """Whether the energy is computed in feature space: from moments, or with more examples than features."""
        return self.data.moments is not None or has_dual_form(self.data.features)

    @property
    def adds_zeros(self) -> bool:
        """Whether to add examples and features of zeros, up to a `shared_size`, so that similar data share programs.

        False for large data: additional examples are expensive there, and compilation is short compared with a solve.
        """
        if is_in_traced_code(self) or self.data.moments is not None:
            return False
        if isinstance(self.data.features, ImplicitFeatures) or not self.architecture.temperature > 0:
            return False
        return len(self.data.features) * self.architecture.outputs <= MANY_ROWS

    def _view(self) -> Iterator[Block]:
        architecture = self.architecture
        rows = matrix_rows(self.data) * architecture.outputs
        form = "in feature space" if self.is_dual else "from the kernel"
        yield Text(f"**Problem**: {verbatim(self.description)}")
        heads = ", ".join(map(number, architecture.heads or (0,)))
        table = [("heads", heads), ("widths", ", ".join(widths_in_words(architecture)))]
        *of_data, (_, size) = data_rows(self.data)
        energy = f"{form}: each evaluation factorises a matrix with {rows:,} rows"
        memory = f"data {size}, a dense solve up to {data_size(solve_bytes(architecture, rows))}"
        yield Table((*table, *of_data, ("energy", energy), ("memory", memory)))
        if self.ansatz:
            yield Text(self.ansatz)

    def require_labels(self) -> None:
        """Raise `ValueError` for data without labels, and for sharded data, which the dense solver cannot use."""
        data = self.data
        if data.moments is not None:
            return
        if data.labels is None:
            raise ValueError("data has no labels, which all functions but bpkr.kernel need")
        # Labels are sharded like their features.
        for name in ("features", "test_features"):
            array = getattr(data, name)
            if is_sharded(array):
                raise ValueError(
                    f"{name} of shape {array.shape} are sharded over {len(array.sharding.device_set)} devices, but the "
                    "dense solver factorises the kernel on one device, because JAX has no distributed Cholesky "
                    "factorisation. Use bpkr.MatrixFree or bpkr.Data.of_devices for sharded arrays"
                )

    def require_arrays(self, function: str) -> None:
        """Raise `ValueError`, with the name of the `function`, if the data are only moments."""
        self.require_labels()
        if self.data.moments is not None:
            raise ValueError(
                f"{function} needs training features and labels, but data has only their second moments; give "
                "bpkr.Data(features, labels)"
            )

    def point(
        self, point: OrderParameters | HasOrderParameters, name: str = "order_parameters", *, singular: bool = False
    ) -> OrderParameters:
        """Return checked order parameters. Allow `singular` order parameters if only the kernel is needed."""
        return checked_order_parameters(self.architecture, point, name, singular=singular)

    def test_features(self, features: Any, name: str = "test_features") -> Features:
        """Return checked features of test examples, by default from the problem's data."""
        if features is None:
            if self.data.test_features is None:
                raise ValueError(f"{name} must be given, because data has no test features")
            return self.data.test_features
        checked = checked_features(self.architecture, features, name)
        moments = self.data.moments
        check_same_width(self.data.features.shape[2] if moments is None else moments.features, checked, name)
        return checked

    def finite(self, results: Any) -> Any:
        """Return computed values after checking that all are finite; the error names the likely cause."""
        traced, temperature, leaves = is_traced(results), "traced", jax.tree.leaves(results)
        if not traced:
            if all(all_finite(leaf) if is_sharded(leaf) else np.all(np.isfinite(leaf)) for leaf in leaves):
                return results
            temperature = self.architecture.temperature
        form, cause = (
            ("T W^-1 + Phi^T Phi, with W = U_1 (x) I,", "features, some of which are linearly dependent")
            if self.is_dual
            else ("the kernel K(U) + T I", "kernel, with repeated or linearly dependent examples")
        )
        message = (
            f"{form} is not positive definite to double precision. Likely causes: a temperature that is zero or tiny "
            f"compared to the {cause} (temperature={temperature}); or features or order parameters of extreme magnitude"
        )
        if not traced:
            raise ValueError(message)
        finite = jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))
        return jax.tree.map(lambda leaf: eqx.error_if(leaf, ~finite, message), results)


def matrix_rows(data: Data) -> int:
    """Return the rows per output of the matrix that the action factorises."""
    if data.moments is not None:
        return len(data.moments.gram)
    return math.prod(data.features.shape[1:]) if has_dual_form(data.features) else len(data.features)


def describe_cost(architecture: Architecture, data: Data) -> str:
    """Describe the cost of a solve in one line: paths, outputs, examples, form of the energy, and estimated memory."""
    outputs, rows = architecture.outputs, matrix_rows(data) * architecture.outputs
    is_dual = data.moments is not None or has_dual_form(data.features)
    examples = float(data.moments.examples) if data.moments is not None else len(data.features)
    size = solve_bytes(architecture, rows) / 2**30
    arrays = f"; arrays of about {size:.2g} GiB, of {memory() / 2**30:.3g} GiB of memory" if size > 0.1 else ""
    return (
        f"{counted(architecture.paths, 'path')} x {counted(outputs, 'output')}, {examples:,.0f} examples, by "
        f"{'second moments' if is_dual else 'the kernel'} ({rows:,} x {rows:,}){arrays}"
    )


def as_problem(problem: Problem | Architecture, data: Data | None = None) -> Problem:
    """Return a given problem, or make one from an architecture and data."""
    if isinstance(problem, Problem):
        if data is not None:
            raise TypeError("data can only be given with an architecture, because a Problem contains its data")
        return problem
    return Problem(*architecture_and_data(problem, data))


def architecture_and_data(problem: Problem | Architecture, data: Data | None) -> tuple[Architecture, Data]:
    """Return architecture and data, for functions that use other widths and temperatures."""
    if isinstance(problem, Problem):
        problem = as_problem(problem, data)
        return problem.architecture, problem.data
    checked_instance("problem", problem, (Problem, Architecture), "such as bpkr.Problem(architecture, data)")
    if data is None:
        raise TypeError("problem is an Architecture, so data must be given too, such as bpkr.Data(features, labels)")
    return problem, checked_instance("data", data, Data, "such as bpkr.Data(features, labels)")
