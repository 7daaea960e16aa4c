"""Adapter of the frozen numbers: from instances as plain data to results as plain data, through theorykit.

`tests/data/frozen` holds instances and the results that theorykit gave for them before it was rebuilt. Only this file
may be edited when names or signatures of the package change. Instances, results and tolerances may not.

Each kind is a function of an instance, `spec` (JSON: numbers, texts, lists) and `arrays` (NumPy, by name), that returns
arrays, numbers and texts by name.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sympy import srepr

from theorykit import dmft, dynamics
from theorykit.codegen import interpret
from theorykit.dynamics.regimes import kaplan_yorke_lower_bound

Results = Mapping[str, Any]
KINDS: dict[str, Callable[[dict, dict[str, np.ndarray]], Results]] = {}


def kind(function: Callable) -> Callable:
    """Register a function under its name."""
    KINDS[function.__name__] = function
    return function


# ---- Theory 1 ----


# ---- Own actions and theories ----


# ---- Dynamics ----


def network_of(spec: dict, arrays: dict) -> tuple[dmft.Weights, dmft.SelfAttention]:
    weights = dmft.Weights(arrays["semantic"], arrays["positional"])
    return weights, dmft.self_attention_limit(weights, spec["context"])


def parameters_of(spec: dict) -> dmft.Parameters:
    return dmft.Parameters(*(np.array(spec[name], dtype=float) for name in ("beta", "gamma", "epsilon")))


def start_of(spec: dict, arrays: dict, weights: dmft.Weights, model: dmft.SelfAttention) -> dmft.State:
    """Return the state after a prompt, in either convention, or with the attentions of a window, newest first."""
    parameters = parameters_of(spec)
    if "window" in arrays:
        return dmft.state_from_window(model, parameters, dmft.Window(arrays["window"], spec["position"]))
    start = {"token": dmft.token_start, "window": dmft.window_start}[spec["convention"]]
    return start(model, parameters, dmft.prompt(weights, arrays["prompt"]))


@kind
def trajectory(spec, arrays):
    """Run a network from a prompt or a window. Batch axes are last."""
    weights, model = network_of(spec, arrays)
    parameters = parameters_of(spec)
    path = dmft.run(model, parameters, start_of(spec, arrays, weights, model), steps=spec["steps"])
    return {
        "attention": path.attention,
        "overlaps": path.overlaps(model, parameters),
        "positions": path.positions,
        "later": jnp.stack(dmft.advance(model, parameters, path.end, spec["later"]).attention),
    }


@kind
def column_law(spec, arrays):
    """Return the law of the columns of weights in a canonical order, and the means that depend on it."""
    weights, model = network_of(spec, arrays)
    law = dmft.column_law(weights)
    order = np.lexsort(law.directions.T[::-1])
    parameters = parameters_of(spec)
    averages = [dmft.semantic_overlap(model, family, parameters, arrays["attention"]) for family in range(4)]
    return {
        "directions": law.directions[order],
        "moments": law.moments[:, order],
        "positional": model.positional,
        "prompt": dmft.prompt(weights, arrays["prompt"]),
        "semantic_overlaps": jnp.stack(averages),
    }


@kind
def published_weights(spec, arrays):
    weights = dmft.published_weights(**spec)
    return {"semantic": weights.semantic, "positional": weights.positional}


@kind
def attention_gain(spec, arrays):
    return {"gamma": dmft.attention_gain(arrays["inverse_temperature"], spec["scale"], spec["patterns"])}


@kind
def mean_field_equations(spec, arrays):
    """Return the derived map and its responses as `srepr`, and their values at values of their symbols."""
    theory = dmft.derive()
    expressions = {name: getattr(theory, name) for name in spec["names"]}
    values = {name: array[()] for name, array in arrays.items()}
    return {name: srepr(expression) for name, expression in expressions.items()} | {
        f"{name}_value": interpret(expression, values) for name, expression in expressions.items()
    }


@kind
def tangent_growth(spec, arrays):
    """Return log R_jj of every token, for perturbations (vectors, context, patterns) of a window."""
    _, model = network_of(spec, arrays)
    window = dmft.Window(arrays["window"], spec["position"])
    call = {"steps": spec["steps"], "every": 1, "blocks": spec["steps"], "exponents": arrays["perturbations"]}
    return {"growth": dmft.lyapunov_spectrum(model, parameters_of(spec), window, **call).blocks}


@kind
def lyapunov_spectrum(spec, arrays):
    """Return exponents along the last axis, largest first, with errors, the regime and the Kaplan-Yorke dimension."""
    _, model = network_of(spec, arrays)
    window = dmft.Window(arrays["window"], spec["position"])
    options = {"orthonormalise": dynamics.gram_schmidt, "every": 1} if spec["leading"] else {}
    found = dmft.lyapunov_spectrum(
        model, parameters_of(spec), window, steps=spec["steps"], exponents=spec["leading"], **options
    )
    exponents = np.moveaxis(np.asarray(found.exponents), 0, -1)
    return {
        "exponents": exponents,
        "exponents_error": np.moveaxis(np.asarray(found.errors), 0, -1),
        "regime": np.atleast_1d(dynamics.classify(found)),
        "dimension": kaplan_yorke_lower_bound(exponents),
    }


@kind
def settled_orbits(spec, arrays):
    """Return the regime of orbits after a transient, and the range of the attention of those that are periodic."""
    weights, model = network_of(spec, arrays)
    parameters = parameters_of(spec)
    window = dmft.discard_transient(model, parameters, start_of(spec, arrays, weights, model), spec["transient"])
    call = {"steps": spec["steps"], "exponents": 2, "every": 1, "orthonormalise": dynamics.gram_schmidt}
    regimes = dynamics.classify(dmft.lyapunov_spectrum(model, parameters, window, **call))
    state = dmft.state_from_window(model, parameters, window)
    attention = np.asarray(dmft.run(model, parameters, state, steps=spec["recorded"]).attention)
    is_periodic = regimes == "periodic"
    return {
        "regimes": regimes,
        "lowest": np.where(is_periodic, attention.min(axis=0), np.nan),
        "highest": np.where(is_periodic, attention.max(axis=0), np.nan),
    }


@kind
def regimes(spec, arrays):
    """Classify exponents (orbits, exponents) with and without error bars, and return their dimensions."""
    exponents = arrays["exponents"]
    contracting = exponents.sum(axis=-1) < 0
    return {
        "published": dynamics.classify(exponents, threshold=spec["threshold"]),
        "decided": dynamics.classify(exponents, arrays["errors"], spec["threshold"]),
        "dimension": dynamics.kaplan_yorke_dimension(exponents[contracting]),
        "bound": kaplan_yorke_lower_bound(exponents),
    }


def logistic(state, growth):
    return growth * state * (1 - state)


def delayed_logistic(state, growth):
    return jnp.stack([growth * state[0] * (1 - state[1]), state[0]])


def henon(state, height):
    return jnp.stack([1 - height * state[0] ** 2 + state[1], 0.3 * state[0]])


def pitchfork(state, parameter):
    return parameter * state - state**3


def imperfect_pitchfork(state, parameter):
    return pitchfork(state, parameter) + 1e-3


def circle(state, parameter):
    """Fixed points where state and parameter are on the unit circle."""
    return state + 0.3 * (1 - state**2 - parameter**2)


MAPS = {each.__name__: each for each in (logistic, delayed_logistic, henon, pitchfork, imperfect_pitchfork, circle)}


def step_of(spec: dict, arrays: dict) -> Callable:
    """Return a map, or the map of a window of attentions over some tokens as a function of one parameter."""
    if spec["map"] != "network":
        return MAPS[spec["map"]]
    _, model = network_of(spec, arrays)
    return dmft.Stroboscope(model, parameters_of(spec), spec["scanned"], spec["tokens"])


def leading(multipliers: np.ndarray, count: int) -> np.ndarray:
    """Return the largest multipliers by modulus, with the upper one of a conjugate pair first."""
    multipliers = np.asarray(multipliers)
    return multipliers[np.lexsort((-multipliers.imag, -np.abs(multipliers).round(7)))][:count]


@kind
def cycle(spec, arrays):
    """Find a cycle from a guess, or with `max_period` the cycle on which an orbit settles."""
    step = step_of(spec, arrays)
    if "max_period" in spec:
        call = {"transient": spec["transient"]}
        found = dynamics.cycle_near(step, arrays["start"], spec["parameter"], spec["max_period"], **call)
    else:
        found = dynamics.find_cycle(step, arrays["guess"], spec["parameter"], spec["period"])
    points = np.asarray(found.points)
    return {
        # The first point of a cycle is arbitrary.
        "points": np.roll(points, -np.argmin(points[:, 0]), axis=0),
        "multipliers": leading(found.multipliers, spec["leading"]),
        "is_stable": found.is_stable,
    }


@kind
def cycle_branch(spec, arrays):
    """Follow a branch of cycles, and with several `bounds` the branches of doubled cycles from its first doubling."""
    step, results, found = step_of(spec, arrays), {}, None
    at = dynamics.find_cycle(step, arrays["guess"], spec["parameter"], spec["period"])
    for number, bounds in enumerate(spec["bounds"]):
        if number:
            doubling = next(event for event in found.events if event.kind == "period doubling")
            at = dynamics.double_period(step, doubling, amplitude=spec["amplitude"])
        found = dynamics.follow(step, at, tuple(bounds), direction=spec["direction"])
        # Two events may coincide, so their order is that of parameters and angles.
        events = sorted(found.events, key=lambda event: (round(float(event.parameter), 7), event.angle))
        results |= {
            f"kinds_{number}": ", ".join(event.kind for event in events),
            f"parameters_{number}": np.array([float(event.parameter) for event in events]),
            # Tolerances are relative, so results that may vanish are moved away from zero.
            f"cosines_{number}": np.cos([event.angle for event in events]),
            f"states_{number}": np.array([1 + np.sort(event.points, axis=0)[0] for event in events]),
            f"stable_ends_{number}": found.stable[[0, -1]],
            f"end_{number}": 1 + found.parameters[-1],
        }
    # Cycles of the last branch at given parameters, from the closest ones of the branch.
    for number, parameter in enumerate(spec["at"]):
        close = int(np.argmin(np.abs(np.asarray(found.parameters) - parameter)))
        there = dynamics.find_cycle(step, found.points[close], parameter, found.points.shape[1])
        results[f"points_{number}"] = 1 + np.sort(there.points, axis=0)
        results[f"multipliers_{number}"] = leading(there.multipliers, spec["leading"])
    return results


@kind
def fluctuations(spec, arrays):
    """Return covariances over networks in which every neuron is repeated, to first order in 1/N."""
    weights, model = network_of(spec, arrays)
    network = dmft.network.class_sum_network(weights, spec["context"], spec["repeats"])
    start = start_of(spec, arrays, weights, model)
    found = dmft.network.fluctuations(network, parameters_of(spec), start, steps=spec["steps"])
    names = ("mean", "attention", "overlaps", "attention_deviation", "overlap_deviation", "rms", "neurons")
    return {name: getattr(found, name) for name in names}


@kind
def sampled_networks(spec, arrays):
    """Return means and variances of the attention over sampled networks, with standard errors."""
    weights, model = network_of(spec, arrays)
    network = dmft.network.class_sum_network(weights, spec["context"], spec["repeats"])
    start = start_of(spec, arrays, weights, model)
    call = {"steps": spec["steps"], "samples": spec["samples"], "key": jax.random.key(0)}
    attention = np.asarray(dmft.network.run(network, parameters_of(spec), start, **call).attention)[1:]
    mean = attention.mean(axis=2, keepdims=True)
    squares = (attention - mean) ** 2
    error = lambda values: values.std(axis=2, ddof=1) / np.sqrt(spec["samples"])  # noqa: E731
    return {
        "mean": mean[:, :, 0],
        "mean_error": error(attention),
        "variance": squares.mean(axis=2),
        "variance_error": error(squares),
    }
