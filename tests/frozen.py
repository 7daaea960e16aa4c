"""Adapter of the frozen numbers: from instances as plain data to results as plain data, through theorykit.

`tests/data/frozen` holds instances and the results that theorykit gave for them before it was rebuilt. Only this file
may be edited when names or signatures of the package change. Instances, results and tolerances may not.

Each kind is a function of an instance, `spec` (JSON: numbers, texts, lists) and `arrays` (NumPy, by name), that returns
arrays, numbers and texts by name.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sympy
from sympy.core.symbol import Str

from theorykit import bpkr
from theorykit.bpkr import nonlinear, sampling, sweeps
from theorykit.symbolic import atoms, normal

from .bpkr.cases import CorrelatedHeads, Pooling, TiedHeads

Results = Mapping[str, Any]
KINDS: dict[str, Callable[[dict, dict[str, np.ndarray]], Results]] = {}


def kind(function: Callable) -> Callable:
    """Register a function under its name."""
    KINDS[function.__name__] = function
    return function


# ---- Theory 1 ----

# Layers that the tests define themselves, by name.
_OWN_LAYERS = {each.__name__: each for each in (CorrelatedHeads, Pooling, TiedHeads)}
# Functions of hidden units that the package knows by name; others are expressions in h.
_NAMED_FUNCTIONS = ("identity", "erf", "relu", "quadratic")
# Everything that a `srepr` of an action names.
_NAMESPACE = {**vars(sympy), "Str": Str, **vars(atoms)}
_SAMPLERS = {
    "order parameters": sampling.sample_order_parameters,
    "weights": sampling.sample_weights,
    "gibbs": sampling.sample_weights_by_gibbs,
}


def are_equal_expressions(expected: str, found: str) -> bool:
    """Return whether two `srepr` are of expressions whose difference expands to zero."""
    first, second = (eval(text, dict(_NAMESPACE)) for text in (expected, found))
    if first.is_Matrix != second.is_Matrix or getattr(first, "shape", None) != getattr(second, "shape", None):
        return False
    if first.is_Matrix:
        # Compare traces of products with any other matrix, because traces are numbers, which `normal` expands.
        other = sympy.MatrixSymbol("other", *reversed(first.shape))
        first, second = (sympy.Trace(matrix * other) for matrix in (first, second))
    return normal(sympy.expand(first) - sympy.expand(second)) == 0


def _function(text: str):
    return text if text in _NAMED_FUNCTIONS else sympy.sympify(text, {"h": sympy.Symbol("h", real=True)})


def _layer(spec):
    """Return a layer: a whole number of attention heads, or a list of the name of a kind and its arguments."""
    if isinstance(spec, int):
        return spec
    name, *arguments = spec
    if name == "Dense":
        return bpkr.Dense(activation=_function(*arguments)) if arguments else bpkr.Dense()
    if name == "Skip":
        inside, gain = arguments
        return bpkr.Skip(_layer(inside), gain)
    return _OWN_LAYERS[name](*(np.array(each) if isinstance(each, list) else each for each in arguments))


def _architecture(spec) -> bpkr.Architecture:
    options = {name: spec[name] for name in ("outputs", "read_tokens", "richness", "width_ratios") if name in spec}
    if "embedding" in spec:
        options["embedding"] = _function(spec["embedding"])
    widths = math.inf if isinstance(spec["widths"], str) else spec["widths"]
    layers = [_layer(each) for each in spec["layers"]]
    return bpkr.Architecture(layers, widths, spec["variances"], temperature=spec["temperature"], **options)


def _attention(spec, arrays, part: str = ""):
    """Return the attention maps of inputs. Layers have the heads `key_query_1`, ... and `lengths` count real tokens."""
    masks = spec.get("mask"), arrays.get(f"{part}lengths")
    masks = tuple(each for each in masks if each is not None)
    key_query = [arrays[name] for name in sorted(arrays) if name.startswith("key_query")]
    return bpkr.attention(arrays[f"{part}inputs"], key_query=key_query, mask=masks or None)


def _features(spec, arrays, part: str = ""):
    """Return path features, as given or of inputs."""
    if f"{part}features" in arrays:
        return arrays[f"{part}features"]
    attention, lengths = _attention(spec, arrays, part), arrays.get(f"{part}lengths")
    inputs, readout = arrays[f"{part}inputs"], spec.get("readout")
    return bpkr.path_features(inputs, attention, _architecture(spec), readout, real_tokens=lengths)


def _data(spec, arrays) -> bpkr.Data:
    features, tested = _features(spec, arrays), _features(spec, arrays, "test_")
    labels, test_labels = arrays["labels"], arrays.get("test_labels")
    if spec.get("moments"):
        moments = bpkr.Data.of_arrays(features, labels, progress=False).moments
        return bpkr.Data(test_features=tested, test_labels=test_labels, moments=moments)
    if "coding" in spec:
        return bpkr.Data.of_classes(features, labels, tested, test_labels, coding=spec["coding"])
    return bpkr.Data(features, labels, tested, test_labels)


def _problem(spec, arrays) -> bpkr.Problem:
    return bpkr.Problem(_architecture(spec), _data(spec, arrays))


def _named(point: bpkr.OrderParameters, prefix: str = "") -> dict[str, Any]:
    """Return order parameters by name: U_1, ..., U_L, u."""
    return {f"{prefix}U_{layer}": each for layer, each in enumerate(point.matrices, 1)} | {f"{prefix}u": point.readout}


def _joined(layers) -> np.ndarray:
    """Return one array of what there is per layer."""
    return np.concatenate([np.asarray(each) for each in layers])


@kind
def expressions(spec, arrays):
    """The derived action of an architecture."""
    action = bpkr.derive(_architecture(spec))
    found = {"energy": action.energy, "mean": action.predictor.mean, "covariance": action.predictor.covariance}
    found |= {f"entropy_{layer}": each for layer, each in enumerate(action.entropies, 1)}
    return {name: sympy.srepr(each) for name, each in found.items()}


@kind
def values(spec, arrays):
    """Values and derivatives of the action at given points, of which `point_U_1`, ... are the free order parameters.

    Derivatives are with respect to the free order parameters, as symmetric matrices. Second derivatives are products
    of the Hessian with `direction_U_1`, ...
    """
    problem, architecture = _problem(spec, arrays), _architecture(spec)
    names = [*(f"U_{layer}" for layer in range(1, architecture.depth + 1)), "u"]
    points, directions = (
        {name: jnp.asarray(arrays[f"{part}_{name}"]) for name in names if f"{part}_{name}" in arrays}
        for part in ("point", "direction")
    )

    def order_parameters(free):
        """Return all order parameters: above a skip connection of strength s, U_{l+1} is a block of U_l over s^2."""
        found = []
        for i, (name, size) in enumerate(zip(names, architecture.overlap_sizes, strict=True)):
            if name in free:
                found.append((free[name] + free[name].T) / 2)
            else:
                found.append(found[-1][:size, :size] / spec["layers"][i - 1][-1] ** 2)
        *matrices, readout = found
        return bpkr.OrderParameters(tuple(matrices), readout.reshape(()) if readout.size == 1 else readout)

    def total(free):
        return bpkr.evaluate(problem, order_parameters(free)).total

    def product(free, direction):
        return jax.jvp(jax.grad(total), (free,), (direction,))[1]

    def at_point(free):
        point = order_parameters(free)
        terms, prediction = bpkr.evaluate(problem, point), bpkr.predict(problem, point)
        products = jax.lax.map(lambda direction: product(free, direction), directions)
        return {
            "entropies": jnp.stack([*terms.layer_entropies, terms.readout_entropy]),
            "energy": terms.energy,
            "total": terms.total,
            "mean": prediction.mean,
            "variance": prediction.variance,
            **{f"gradient_{name}": each for name, each in jax.grad(total)(free).items()},
            **{f"product_{name}": each for name, each in products.items()},
        }

    first = order_parameters({name: each[0] for name, each in points.items()})
    at_first = {"kernel": bpkr.kernel(problem, first), "gradient_norm": bpkr.gradient_norm(problem, first)}
    return jax.jit(lambda points: jax.lax.map(at_point, points))(points) | at_first


@kind
def problem(spec, arrays):
    """A solved problem, and what `results` of the specification names."""
    problem = _problem(spec, arrays)
    saddle = bpkr.solve(problem, tolerance=spec["tolerance"])
    found = {}
    for name in spec["results"]:
        found |= _RESULTS[name](spec, arrays, problem, saddle)
    return found


def _saddle(spec, arrays, problem, saddle):
    numbers = ("action", "entropy", "energy", "log_evidence", "action_error", "converged", "min_hessian_eigenvalue")
    return _named(saddle.order_parameters) | {name: getattr(saddle, name) for name in numbers}


def _prediction(spec, arrays, problem, saddle):
    prediction = bpkr.predict(problem, saddle)
    return {"mean": prediction.mean, "variance": prediction.variance}


def _limit(spec, arrays, problem, saddle):
    """Values at the order parameters of infinite width."""
    limit = bpkr.gp_limit(problem.architecture)
    terms, prediction = bpkr.evaluate(problem, limit), bpkr.predict(problem, limit)
    found = {"limit_entropy": terms.entropy, "limit_energy": terms.energy}
    return _named(limit, "limit_") | found | {"limit_mean": prediction.mean, "limit_variance": prediction.variance}


def _probabilities(spec, arrays, problem, saddle):
    classes, prediction = problem.data.classes, bpkr.predict(problem, saddle)
    variance = prediction.variance + problem.architecture.label_noise
    return {
        "probabilities": classes.probabilities(prediction.mean, variance),
        "log_probability": classes.log_probability(arrays["test_labels"], prediction.mean, variance),
        "decoded": classes.decode(prediction.mean),
        "encoded": problem.data.labels,
    }


def _fluctuations(spec, arrays, problem, saddle):
    found = bpkr.fluctuations(problem, saddle)
    return {
        **_named(found.mean, "fluctuating_"),
        **_named(found.deviation, "deviation_"),
        "fluctuating_mean": found.prediction.mean,
        "fluctuating_variance": found.prediction.variance,
        "fluctuating_evidence": found.log_evidence,
    }


def _first_order(spec, arrays, problem, saddle):
    return _named(bpkr.first_order(problem), "first_order_")


def _heads(spec, arrays, problem, saddle):
    """Scores, the order in which pruning removes heads, and the costs of leaving them out."""
    scores, costs = bpkr.head_scores(problem.architecture, saddle), bpkr.head_costs(problem, saddle, progress=False)
    order = bpkr.rank_heads(scores)
    return {
        "scores": _joined(scores),
        "scores_at_infinite_width": _joined(costs.infinite_width_scores),
        "rank": np.array(order),
        "removable": np.array(bpkr.removable_heads(order, problem.architecture.heads)),
        "cost": _joined(costs.log_evidence),
        "cost_error": _joined(costs.log_evidence_error),
        "cost_of_prediction": _joined(costs.prediction),
        "cost_of_prediction_error": _joined(costs.prediction_error),
    }


def _alignment(spec, arrays, problem, saddle):
    found = bpkr.kernel_task_alignment(bpkr.kernel(problem, saddle), problem.data.labels)
    return {"eigenvalues": found.eigenvalues, "cosines": found.cosines}


def _derivatives(spec, arrays, problem, saddle):
    """Derivatives of the action at the saddle point, and of a sum of predictions, in all numbers and arrays."""
    names = ["temperature", "variances", *(() if isinstance(spec["widths"], str) else ("widths",))]
    numbers = {name: jnp.asarray(spec[name], dtype=float) for name in names}
    varied = {name: jnp.asarray(each) for name, each in arrays.items() if each.dtype.kind == "f"}

    def results(numbers, varied):
        numbers = {name: each if each.ndim == 0 else tuple(each) for name, each in numbers.items()}
        problem = _problem(spec | numbers, arrays | varied)
        saddle = bpkr.solve(problem, tolerance=spec["tolerance"])
        mean = bpkr.predict(problem, saddle).mean.ravel()
        return jnp.stack([saddle.action, jnp.arange(1.0, 1 + len(mean)) @ mean])

    of_numbers, of_arrays = jax.jacrev(results, (0, 1))(numbers, varied)
    return {f"slope_{name}": each for name, each in (of_numbers | of_arrays).items() if not name.startswith("test_l")}


def _minima(spec, arrays, problem, saddle):
    found = bpkr.search(problem, key=jax.random.key(0), starts=4, progress=False)
    return {"minima": np.array([each.action for each in found.saddles]), "failures": found.failures}


_RESULTS = {
    "saddle": _saddle,
    "prediction": _prediction,
    "limit": _limit,
    "probabilities": _probabilities,
    "fluctuations": _fluctuations,
    "first order": _first_order,
    "heads": _heads,
    "alignment": _alignment,
    "derivatives": _derivatives,
    "minima": _minima,
}


@kind
def other_theories(spec, arrays):
    """The solution of a theory of nonlinear units with other order parameters."""
    theories = {"mean": nonlinear.MeanProblem, "nested": nonlinear.NestedProblem}
    theory = theories[spec["theory"]](_problem(spec, arrays))
    solution = theory.solve()
    prediction = theory.predict(solution)
    found = {"action": solution.action, "mean": prediction.mean, "variance": prediction.variance}
    return dict(solution.order_parameters) | found


@kind
def kernel_of_function(spec, arrays):
    """E[f(g) f(g')] for Gaussian pairs, as a matrix over `inputs` (inputs, features), whose covariance is x.x'/N_0."""
    spec = {"layers": [], "widths": 1.0, "variances": 1.0, "temperature": 1.0, "embedding": spec["function"]}
    features = bpkr.path_features(arrays["inputs"][:, None], [], _architecture(spec))
    problem = bpkr.Problem(_architecture(spec), bpkr.Data(features))
    return {"kernel": bpkr.kernel(problem, bpkr.gp_limit(problem.architecture))}


@kind
def path_features(spec, arrays):
    """Attention maps of inputs, and the path features that they give."""
    maps = {f"attention_{layer}": each for layer, each in enumerate(_attention(spec, arrays), 1)}
    return maps | {"features": _features(spec, arrays)}


@kind
def network(spec, arrays):
    """Outputs of a finite network of given weights, whole and with heads removed, and its order parameters."""
    weights, key_query = (
        [arrays[name] for name in sorted(arrays) if name.startswith(prefix)] for prefix in ("weights", "key_query")
    )
    heads, readout = bpkr.heads(key_query=key_query), spec.get("readout")
    network = bpkr.Network.of_weights(_architecture(spec), weights, heads, readout=readout)
    pruned = bpkr.without_heads(network, [bpkr.Head(*each) for each in spec["removed"]])
    found = _named(bpkr.empirical_order_parameters(network))
    return found | {"outputs": network(arrays["inputs"]), "pruned_outputs": pruned(arrays["inputs"])}


@kind
def model(spec, arrays):
    """The estimator: fitted, and its predictions."""
    settings = dict(spec)
    settings["widths"] = math.inf if isinstance(spec["widths"], str) else spec["widths"]
    model = bpkr.Model(heads=[arrays["key_query"]], **settings)
    model.fit(arrays["inputs"], arrays["labels"], arrays.get("lengths"))
    tested = arrays["test_inputs"], arrays.get("test_lengths")
    distribution = model.predict_distribution(*tested)
    found = {
        "predicted": model.predict(*tested),
        "score": model.score(arrays["test_inputs"], arrays["test_labels"], arrays.get("test_lengths")),
        "mean": distribution.mean,
        "variance": distribution.variance,
        "log_evidence": model.log_evidence_,
        "scores": _joined(model.head_scores()),
        "path_weights": model.path_weights(),
        "kernel": model.kernel(*tested),
    }
    if not hasattr(model, "classes_") or "richness" in spec:
        return found
    return found | {"classes": model.classes_, "probabilities": model.predict_proba(*tested)}


@kind
def sweep(spec, arrays):
    """A table of solves at several widths and temperatures."""
    grid = {name: spec[name] for name in ("temperatures", "richnesses") if name in spec}
    grid["richness"] = grid.pop("richnesses", None)
    widths = [math.inf if isinstance(each, str) else each for each in spec["all_widths"]]
    found = sweeps.sweep(_problem(spec, arrays), widths=widths, progress=False, **grid)
    return {name: found[name].values for name in spec["results"]}


@kind
def sample(spec, arrays):
    """Posterior means and their standard errors."""
    problem = _problem(spec, arrays)
    schedule = sampling.Schedule(**spec["schedule"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sampling.MixingWarning)
        tree = _SAMPLERS[spec["sampler"]](problem, key=jax.random.key(0), schedule=schedule, progress=False)
    summary, found = tree["summary"].to_dataset(), {}
    for name in spec["results"]:
        found[name] = summary[name].sel(statistic="mean").values
        found[f"{name}_error"] = summary[name].sel(statistic="mcse_mean").values
    return found


# ---- Own actions and theories ----


# ---- Dynamics ----
