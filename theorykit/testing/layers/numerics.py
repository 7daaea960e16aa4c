"""Check the action with the layer: its derivation, both routes to it, and generated code against expressions."""

from collections.abc import Iterator
from itertools import zip_longest

import jax
import jax.numpy as jnp
import numpy as np

from ... import bpkr
from ...bpkr.evaluation.formulas import bind
from ...bpkr.evaluation.values import action_terms
from ...bpkr.order_parameters.coordinates import from_order_parameters, to_order_parameters
from ...bpkr.specification import layer_functions
from ...checks import counted
from ...codegen import interpret
from ...compilation import jit
from ..problems import TOKENS, random_problem, symbol_values
from ..report import Finding, check_slopes_agree, raised, slope_at_zero
from .placement import Placement
from .trials import make_trials

IS_DERIVED = "an action with the layer is derived"
_ENGINE = "steps are made of the layer's own two formulas, so a mistake in them is not the cause"
_PACKAGE = "both follow from your formulas: a bug of the package"
# Largest relative rounding error.
_ROUNDING = 1e-9
# Step of finite differences. Truncation and rounding errors are then far below the tolerance of slopes.
_STEP = 1e-4
# Largest difference of two equal expressions, relative to their size.
_CANCELLED = 1e-10
# Number of directions in which gradients are compared.
_DIRECTIONS = 3
# Largest number of failures that are reported.
_TOLD = 3


def check_derivation(placement: Placement, seed: int) -> Iterator[Finding]:
    """Check that an action can be derived, that each step of its derivations holds, and that both routes agree."""
    try:
        action = bpkr.derive(placement.architecture)
        derivations = action.derivations
    except Exception as error:
        meaning = "a rule of the derivation engine does not cover an expression in `forward` or `prior`, or is wrong"
        yield Finding(IS_DERIVED, raised(error), f"{meaning}; {_ENGINE}")
        return
    claim = "every step of the derivation holds on random numbers"
    evidence = [(name, item) for name, each in derivations.items() for item in each.verify(seed).evidence]
    failures = [(name, item) for name, item in evidence if not item.holds]
    if failures:
        told = []
        for name, item in failures[:_TOLD]:
            error = item.reason or f"error {item.error:.3g} times what is tolerated"
            told.append(f'"{item.step.rule}" ({name}, {item.step.section}), {error}')
        told += [f"and {len(failures) - _TOLD} more"] * (len(failures) > _TOLD)
        name, first = failures[0]
        yield Finding(
            claim,
            f"{len(failures)} of {counted(len(evidence), 'step')} failed: {'; '.join(told)}",
            f'the rule "{first.step.rule}" in the derivation "{name}" is wrong, or does not cover it; {_ENGINE}',
        )
    else:
        largest = max((item.error for _, item in evidence), default=0.0)
        yield Finding(claim, f"{counted(len(evidence), 'step')}, the largest error {largest:.1g} of what is tolerated")
    claim, differences = "both routes arrive at the same entropies", action.route_differences
    if not any(differences):
        yield Finding(claim, "their differences are zero, symbol by symbol")
        return
    problem = random_problem(placement.architecture, seed)
    readout = np.asarray(problem.order_parameters.readout).reshape(problem.architecture.outputs, -1)
    overlaps = zip(action.symbols.overlaps, (*problem.order_parameters.matrices, readout), strict=True)
    values = symbol_values(problem) | {symbol.name: np.asarray(value) for symbol, value in overlaps}
    sizes = [
        abs(interpret(difference, values)) / max(abs(interpret(entropy, values)), 1.0)
        for difference, entropy in zip_longest(differences, action.entropies)
    ]
    number = int(np.argmax(sizes))
    if sizes[number] < _CANCELLED:
        yield Finding(claim, f"their differences are {sizes[number]:.1g} of the entropies")
        return
    name = f"S_{number + 1}" if number < len(sizes) - 1 else "S_a"
    yield Finding(
        claim,
        f"{name} differs by {differences[number]}, {sizes[number]:.3g} of its size at random order parameters",
        f"one of the two routes is wrong in {name}; {_ENGINE}",
    )


def check_numerics(placement: Placement, seed: int) -> Iterator[Finding]:
    """Compare computed values and gradients with the expressions."""
    problem = random_problem(placement.architecture, seed)
    architecture, form, kind = problem.architecture, placement.form, placement.architecture.layers[placement.place]
    data, numbers = (jnp.asarray(problem.features), jnp.asarray(problem.labels)), architecture.layer_numbers()
    rng, bound = np.random.default_rng(seed), bind(architecture)

    def total(coordinates):
        found = action_terms(bound, to_order_parameters(architecture, coordinates), *data)
        return found.total, jnp.stack([found.entropy, found.energy, found.total])

    of_total = jit(jax.value_and_grad(total, has_aux=True))
    coordinates = np.asarray(from_order_parameters(architecture, problem.order_parameters))
    (_, values), gradient = of_total(coordinates)
    wrong_code = f"the generated code is wrong; {_PACKAGE}"

    width, next_width = (int(numbers[each.name]) for each in (form.symbols.width, form.symbols.next_width))
    (trial,) = make_trials(kind, form, [(width, next_width, TOKENS)], seed, own_numbers=True)
    given, symbols = trial.values(), (form.hidden, form.weights, form.symbols.attention)
    arrays = (jnp.asarray(given[each.name]) if each.name in given else None for each in symbols)
    found, expected = np.asarray(layer_functions.forward(form, numbers, *arrays)), trial.stated()
    error = float(np.max(np.abs(found - expected)) / np.max(np.abs(expected)))
    claim = "the compiled forward map agrees with the stated one"
    yield Finding(claim, f"to {error:.3g} of their size", "" if error < _ROUNDING else wrong_code)

    action, of_symbols, names = bpkr.derive(architecture), symbol_values(problem), ("entropy", "energy", "total")
    expected = np.array([interpret(getattr(action, name), of_symbols) for name in names])
    errors = np.abs(np.asarray(values) - expected) / np.maximum(np.abs(expected), 1.0)
    worst, claim = int(np.argmax(errors)), "the compiled action agrees with the derived one"
    said, meaning = f"entropy and energy to {errors[worst]:.1g}", ""
    if not errors[worst] < _ROUNDING:
        compiled, interpreted = f"{values[worst]:.6g} when compiled", f"{expected[worst]:.6g} when interpreted"
        said, meaning = f"the {names[worst]} is {compiled}, but {interpreted}", wrong_code
    yield Finding(claim, said, meaning)

    slopes = []
    for _ in range(_DIRECTIONS):
        direction = rng.normal(size=coordinates.shape) / np.sqrt(len(coordinates))
        slope = slope_at_zero(lambda step, at=direction: float(of_total(coordinates + step * at)[0][0]), _STEP)
        slopes.append((float(np.asarray(gradient) @ direction), slope))
    meaning = f"automatic differentiation of the generated code is wrong; {_PACKAGE}"
    yield check_slopes_agree("the compiled gradient agrees with the gradient of the action", slopes, meaning)

    # Compare the saddle-point equations with finite differences of the action. Both use the interpreter.
    rng, slopes = np.random.default_rng(seed), []
    for symbol, equation in action.saddle_point_equations.items():
        here = of_symbols[symbol.name]
        direction = rng.normal(size=np.shape(here))
        direction = direction + direction.T if direction.ndim else direction
        # Keep the matrix positive definite.
        step = np.min(np.linalg.eigvalsh(np.atleast_2d(here))) / np.linalg.norm(np.atleast_2d(direction)) * direction

        def of_step(at, name=symbol.name, here=here, step=step):
            # In `total`, nested order parameters are blocks of the free order parameters.
            return interpret(action.total, {**of_symbols, name: here + at * step})

        slopes.append((float(np.sum(interpret(equation, of_symbols) * step)), slope_at_zero(of_step, _STEP)))
    claim = "the saddle-point equations are the gradient of the action"
    yield check_slopes_agree(claim, slopes, f"`theorykit.symbolic.gradient` has a wrong rule; {_PACKAGE}")

    of_entropy = jit(jax.value_and_grad(lambda x: bound.entropy(to_order_parameters(architecture, x))))
    origin = from_order_parameters(architecture, bpkr.gp_limit(architecture))
    least, slope = of_entropy(origin)
    size = float(jnp.max(jnp.abs(slope))) / max(float(width) for width in architecture.widths)
    direction = np.random.default_rng(seed).normal(size=origin.shape) / np.sqrt(len(origin))
    elsewhere, _ = of_entropy(origin + 0.5 * direction)
    meaning = f"`LayerForm.prior_mean` is not the mean of the prior whose entropy was derived; {_PACKAGE}"
    yield Finding(
        "without data, the order parameters of infinite width minimise the action",
        f"a slope of {size:.3g} per unit of width; at another point the action differs by {elsewhere - least:+.3g}",
        "" if size < _ROUNDING and elsewhere > least else meaning,
    )
