"""The compiled action with the kind in it: against the interpreter, its gradients, and the minimum of its entropy."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from ... import bpkr
from ...bpkr.evaluation.action_terms import action_terms
from ...bpkr.evaluation.bound_action import bind
from ...bpkr.order_parameters.coordinates import from_order_parameters, to_order_parameters
from ...bpkr.specification import layer_functions
from ...codegen import interpret
from ...compilation import jit
from ..differences import relative_error, slope_at_zero
from ..problems import TOKENS, Problem, random_problem, symbol_values
from ..report import Finding, Passed, Result
from .placement import Placement

_ROUNDING, _DIFFERENCES = 1e-9, 1e-6
_STEP = 1e-4
_DIRECTIONS = 3
_PACKAGE = "Both come from the same expression, which follows from your formulas: a mistake of the package"


def check_numerics(placement: Placement, seed: int) -> Iterator[Result]:
    """Values and gradients that run, against those of the expressions."""
    problem = random_problem(placement.architecture, seed)
    architecture = problem.architecture
    data = jnp.asarray(problem.features), jnp.asarray(problem.labels)

    def terms(coordinates):
        found = action_terms(bind(architecture), to_order_parameters(architecture, coordinates), *data)
        return jnp.stack([found.entropy, found.energy, found.total])

    def total(coordinates):
        values = terms(coordinates)
        return values[2], values

    of_total = jit(jax.value_and_grad(total, has_aux=True))
    coordinates = np.asarray(from_order_parameters(architecture, problem.order_parameters))
    (_, values), gradient = of_total(coordinates)
    yield _forward(placement, seed)
    yield _interpreted(placement, problem, np.asarray(values))
    yield _gradient(placement, of_total, coordinates, np.asarray(gradient), seed)
    yield _symbolic_gradient(placement, problem, seed)
    yield _minimum(placement, problem, seed)


def _forward(placement: Placement, seed: int) -> Result:
    """The compiled forward map of the layer."""
    claim = "the forward map that runs is the one that is stated"
    form, numbers = placement.form, placement.architecture.layer_numbers()
    rng = np.random.default_rng(seed)
    width, next_width = (int(numbers[each.name]) for each in (form.symbols.width, form.symbols.next_width))
    blocks = layer_functions.count(form.blocks, placement.architecture.head_counts())
    heads = placement.architecture.layers[placement.place].heads
    hidden, weights = rng.normal(size=(width, TOKENS)), rng.normal(size=(next_width, blocks * width))
    attention = rng.normal(size=(heads * TOKENS, TOKENS)) if heads else None
    arrays = (None if array is None else jnp.asarray(array) for array in (hidden, weights, attention))
    found = np.asarray(layer_functions.forward(form, numbers, *arrays))
    values = {name: np.asarray(value) if np.ndim(value) else float(value) for name, value in numbers.items()}
    values |= {form.hidden.name: hidden, form.weights.name: weights, form.symbols.tokens.name: float(TOKENS)}
    values |= {form.symbols.attention.name: attention} if heads else {}
    expected = interpret(form.forward, values)
    error = float(np.max(np.abs(found - expected)) / np.max(np.abs(expected)))
    if error < _ROUNDING:
        return Passed(claim, f"to {error:.1g}")
    return Finding(claim, f"they differ by {error:.3g} of their size", f"the generated code is wrong. {_PACKAGE}")


def _interpreted(placement: Placement, problem: Problem, values: np.ndarray) -> Result:
    claim = "the action that runs is the one that is derived"
    action, numbers = bpkr.derive(problem.architecture), symbol_values(problem)
    names = ("entropy", "energy", "total")
    expected = np.array([interpret(getattr(action, name), numbers) for name in names])
    errors = np.abs(values - expected) / np.maximum(np.abs(expected), 1.0)
    worst = int(np.argmax(errors))
    if errors[worst] < _ROUNDING:
        return Passed(claim, f"entropy and energy to {errors[worst]:.1g}")
    return Finding(
        claim,
        f"the {names[worst]} is {values[worst]:.6g} where it runs, {expected[worst]:.6g} by the interpreter",
        f"the generated code is wrong. {_PACKAGE}",
    )


def _gradient(placement: Placement, of_total, coordinates, gradient, seed: int) -> Result:
    claim = "the gradient that runs is that of the action"
    rng, errors = np.random.default_rng(seed), []
    for _ in range(_DIRECTIONS):
        direction = rng.normal(size=coordinates.shape) / np.sqrt(len(coordinates))
        slope = slope_at_zero(lambda step, at=direction: float(of_total(coordinates + step * at)[0][0]), _STEP)
        errors.append(_error(float(gradient @ direction), slope))
    return _differences(claim, errors, f"automatic differentiation of the generated code is wrong. {_PACKAGE}")


def _symbolic_gradient(placement: Placement, problem: Problem, seed: int) -> Result:
    """The saddle-point equations against differences of the action, both by the interpreter."""
    claim = "the saddle-point equations are the gradient of the action"
    action, values = bpkr.derive(problem.architecture), symbol_values(problem)
    rng, errors = np.random.default_rng(seed), []
    for symbol, equation in action.saddle_point_equations.items():
        direction = rng.normal(size=np.shape(values[symbol.name]))
        direction = direction + direction.T if direction.ndim else direction
        # well inside the positive definite matrices
        size = np.min(np.linalg.eigvalsh(np.atleast_2d(values[symbol.name]))) / np.linalg.norm(np.atleast_2d(direction))
        step = size * direction

        def total(at, symbol=symbol, step=step):
            moved = values[symbol.name] + at * step
            # the nested order parameters are written as blocks of the free ones in `total`
            return interpret(action.total, {**values, symbol.name: moved})

        errors.append(_error(float(np.sum(interpret(equation, values) * step)), slope_at_zero(total, _STEP)))
    return _differences(claim, errors, f"`theorykit.symbolic.gradient` has a wrong rule. {_PACKAGE}")


def _error(found: float, expected: float) -> tuple[float, float, float]:
    return relative_error(found, expected), found, expected


def _differences(claim: str, errors: list[tuple[float, float, float]], meaning: str) -> Result:
    error, found, expected = max(errors)
    if error < _DIFFERENCES:
        return Passed(claim, f"to {error:.1g} in {len(errors)} directions")
    return Finding(claim, f"a slope of {found:.6g} where differences of the action have {expected:.6g}", meaning)


def _minimum(placement: Placement, problem: Problem, seed: int) -> Result:
    claim = "without data, the order parameters of infinite width minimise the action"
    architecture = problem.architecture
    bound = bind(architecture)

    def entropy(coordinates):
        return bound.entropy(to_order_parameters(architecture, coordinates))

    of_entropy = jit(jax.value_and_grad(entropy))
    origin = from_order_parameters(architecture, bpkr.gp_limit(architecture))
    least, slope = of_entropy(origin)
    size = float(jnp.max(jnp.abs(slope))) / max(float(width) for width in architecture.widths)
    direction = np.random.default_rng(seed).normal(size=origin.shape) / np.sqrt(len(origin))
    elsewhere, _ = of_entropy(origin + 0.5 * direction)
    if size < _ROUNDING and elsewhere > least:
        return Passed(claim, f"the slope is {size:.1g} per unit of width")
    return Finding(
        claim,
        f"a slope of {size:.3g} per unit of width; at another point the action differs by {elsewhere - least:+.3g}",
        f"`LayerForm.prior_mean` is not the mean of the prior whose entropy was derived. {_PACKAGE}",
    )
