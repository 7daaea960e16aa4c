"""Compare a layer with your forward map and your prior in NumPy."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
from sympy import Expr

from .._compat import require_float64
from ..bpkr import AbstractLayer, Architecture
from ..bpkr.specification.layers import LayerForm, LayerSymbols
from ..checks import counted
from ..codegen import interpret
from ..symbolic.algebra import from_terms, matrix_terms
from .explain import Finding, Point, Report, Trial, changes_of, compare, of_shape, put, random_value

_TOLERANCE = 1e-9
# N_l, N_{l+1} and tokens. Products of powers of primes are unique.
_SIZES = ((5, 7, 11), (11, 5, 7), (41, 37, 29))
_ARGUMENTS = ("weights", "hidden", "attention", "variance")


def check_layer(
    kind: AbstractLayer,
    *,
    reference: Callable[..., Any] | None = None,
    prior: Callable[..., Any] | None = None,
    seed: int = 0,
) -> Report:
    """Return a report of the mistakes in a layer. A mistake raises no error.

    Args:
        kind: the layer.
        reference: the same forward map in NumPy, `reference(weights, hidden, attention,
            parameters)`, for any number of heads. Arguments are weights (blocks,
            N_{l+1}, N_l), hidden (N_l, tokens), attention (heads, keys, queries) or
            None, and values by their names in the layer. It returns (N_{l+1}, tokens).
        prior: the same prior in NumPy, `prior(variance, parameters)`. It returns the
            covariance (blocks, blocks) of weights.
        seed: seed of all random numbers.
    """
    require_float64()
    subject, claim = f"The layer {type(kind).__name__}", "the theory covers it"
    try:
        (form,) = Architecture((kind,), 6, temperature=1.0).forms
    except Exception as error:  # The user's code may raise any error.
        return Report(subject, (Finding(claim, "", repr(error)),))
    checks = [Finding(claim, counted(kind.heads, "head")), *_check_form(kind, form)]
    for check, own in ((_check_reference, reference), (_check_prior, prior)):
        checks += [] if own is None else [check(kind, form, own, seed)]
    return Report(subject, tuple(checks))


def _check_form(kind: AbstractLayer, form: LayerForm) -> tuple[Finding, Finding]:
    of, mixing = form.symbols, form.block_tokens
    found = (mixing.free_symbols | form.gain.free_symbols) & {of.width, of.next_width}
    wrong = f"1/sqrt({of.width}) is missing, occurs twice, or has another width"
    claim = "sums over units are divided by sqrt(layer.width)"
    scaling = Finding(claim, f"paths are multiplied by {mixing}", wrong if found else "")
    own = kind.parameters(of).keys()
    above = kind.parameters(LayerSymbols(of.index + 1, of.width, of.next_width)).keys()
    wrong = "layers share it: write layer.number or layer.covariance" if own & above else ""
    if unused := own - form.parameters:
        wrong = f"`forward` and `prior` do not use {unused}"
    return scaling, Finding("parameters are used, by one layer", f"they are {set(own)}", wrong)


def _interpret(expression: Expr, form: LayerForm, point: Point) -> np.ndarray:
    of, weights, attention = form.symbols, point["weights"], point["attention"]
    values = {each: point[each.name.removesuffix(f"_{of.index}")] for each in form.parameters}
    values |= {of.width: weights.shape[2], of.next_width: weights.shape[1]}
    values |= {of.hidden: point["hidden"], of.tokens: point["hidden"].shape[1]}
    values |= {form.weights: np.hstack(weights), of.variance: point["variance"]}
    if attention is not None:
        values |= {of.heads: len(attention), of.attention: np.vstack(attention)}
    return np.asarray(interpret(expression, {each.name: value for each, value in values.items()}))


def _parameters(point: Point) -> dict[str, Any]:
    return {name: each for name, each in point.items() if name not in _ARGUMENTS}


def _with_heads(kind: AbstractLayer, heads: int) -> AbstractLayer:
    """Copy a layer past its constructor, with another number of heads."""
    other = object.__new__(type(kind))
    for field in fields(kind):
        value = heads if field.name == "heads" else getattr(kind, field.name)
        value = _with_heads(value, heads) if isinstance(value, AbstractLayer) else value
        object.__setattr__(other, field.name, value)
    return other


def _trials(kind, form, function, seed: int, heads: int, is_square: bool) -> list[Trial]:
    """Evaluate `function` at random points. Columns of attention sum to one."""
    rng, of = np.random.default_rng([seed, heads]), form.symbols
    other = kind if heads == kind.heads else _with_heads(kind, heads)
    counts, found = {of.heads.name: heads}, []
    for width, next_width, tokens in _SIZES if other.forward(of) == form.forward else ():
        blocks = int(interpret(other.prior(of).shape[0], counts))
        next_width = width if is_square else next_width
        point = {
            "weights": rng.normal(size=(blocks, next_width, width)),
            "hidden": rng.normal(size=(width, tokens)),
            "attention": _normalised(rng.uniform(size=(heads, tokens, tokens))) if heads else None,
            "variance": rng.uniform(0.5, 1.5),
        }
        for each in other.parameters(of):
            point[each.name.removesuffix(f"_{of.index}")] = random_value(each, counts, rng)
        sizes = {"layer.width": width, "layer.tokens": tokens, "layer.heads": max(heads, 1)}
        sizes |= {} if is_square else {"layer.next_width": next_width}
        sizes |= {} if blocks == max(heads, 1) else {"blocks": blocks}
        sizes |= {name: each for name, each in point.items() if not np.ndim(each) and each}
        place = f"weights {point['weights'].shape}"
        found.append(Trial([point], function(point)[None], _TOLERANCE, sizes, place))
    return found


def _check_prior(kind: AbstractLayer, form: LayerForm, prior: Callable, seed: int) -> Finding:
    claim = "the prior equals yours"

    def function(at: Point) -> np.ndarray:
        return of_shape((len(at["weights"]),) * 2, prior(at["variance"], _parameters(at)))

    try:
        trials = _trials(kind, form, function, seed, kind.heads, form.has_skip)
    except Exception as error:  # The user's code may raise any error.
        return Finding(claim, "", repr(error))
    terms = {str(form.covariance): lambda at: _interpret(form.covariance, form, at)}
    point = trials[0].points[0]
    changes = changes_of(point, ["variance", *_parameters(point)])
    return compare(claim, terms, trials, changes, {"all ones": lambda at: np.ones([len(at["weights"])] * 2)})


def _check_reference(kind: AbstractLayer, form: LayerForm, reference: Callable, seed: int) -> Finding:
    def evaluate(point: Point, hidden: float | int = 1.0, weights: float | int = 1.0) -> np.ndarray:
        attention = None if point["attention"] is None else point["attention"].copy()
        with np.errstate(all="ignore"):
            given = weights * point["weights"], hidden * point["hidden"], attention
            found = reference(*given, _parameters(point))
        return of_shape((point["weights"].shape[1], point["hidden"].shape[1]), found)

    trials_of = partial(_trials, kind, form, evaluate, seed)
    is_square = form.has_skip
    try:
        try:
            trials = trials_of(kind.heads, is_square)
        except Exception:
            is_square = True
            trials = trials_of(kind.heads, is_square)
        at = partial(evaluate, trials[0].points[0])
        # Doubling and signs are exact. A bias does not scale either, so it is first.
        value, bare = at(), at(weights=0)
        rests = {
            "it has a bias, which the theory does not cover": at(0),
            "it has a norm, an activation function, or attention to activations": at(2) - 2 * value,
            "it has an activation function such as ReLU": at(-1) + value,
            "the weights enter more than once": at(weights=2) - 2 * value + bare,
        }
    except Exception as error:  # The user's code may raise any error.
        return Finding("the reference can be compared", "", repr(error))
    least = 0.1 * _TOLERANCE * np.max(np.abs(value))
    for wrong, rest in rests.items():
        if np.max(np.abs(rest)) > least:
            return Finding("the reference is linear", "we scaled its arguments", wrong)
    # A number in place of the number of heads is right only for some.
    for heads in (kind.heads + 1, kind.heads + 3) if kind.heads else ():
        with suppress(Exception):
            trials += trials_of(heads, is_square)
    expressions = [from_terms([term], form.forward.shape) for term in matrix_terms(form.forward)]
    terms = {str(each): partial(_interpret, each, form) for each in expressions}
    changes = _CHANGES | changes_of(trials[0].points[0], [*_parameters(trials[0].points[0])])
    for order in permutations(range(kind.heads)) if kind.heads < 5 else ():
        said = f"heads in the order {order}, counted from 0"
        changes[said] = put("attention", lambda of, order=order: of[list(order)])
    extras = dict(_EXTRAS)
    for block in (*range(len(trials[-1].points[0]["weights"]) - 1), -1):
        name = f"weight block {block}"
        extras[f"{name} * hidden"] = lambda at, block=block: at["weights"][block] @ at["hidden"]
        for factor in (-1, 0, 0.5, 2):
            change = put("weights", partial(_scaled, block, factor))
            changes[f"{factor} times {name}, counted from 0"] = change
    return compare("the forward map equals the reference", terms, trials, changes, extras)


def _normalised(attention: np.ndarray, axis: int = 1) -> np.ndarray:
    return attention / attention.sum(axis=axis, keepdims=True)


def _scaled(block: int, factor: float, weights: np.ndarray) -> np.ndarray:
    is_block = np.arange(len(weights)) == block % len(weights)
    return np.where(is_block[:, None, None], factor * weights, weights)


# What the reference may have, with attention (heads, keys, queries).
_OF_ATTENTION = {
    "the transpose of attention": lambda of: of.swapaxes(1, 2),
    "attention normalised over queries": lambda of: _normalised(of, 2),
    "softmax over keys of attention": lambda of: _normalised(np.exp(of)),
    "causal attention, not normalised": np.triu,
    "causal attention": lambda of: _normalised(np.triu(of)),
    "attention applied twice": lambda of: of @ of,
    "no mixing of tokens": lambda of: 0 * of + np.eye(of.shape[1]),
}
_CHANGES = {said: put("attention", change) for said, change in _OF_ATTENTION.items()}
_CHANGES["the transpose of weights"] = put("weights", lambda of: of.swapaxes(1, 2))
_CHANGES["the first block for all weights"] = put("weights", lambda of: 0 * of + of[:1])
_EXTRAS = {
    "layer.hidden": lambda at: at["hidden"],
    "mean of layer.hidden": lambda at: 0 * at["hidden"] + at["hidden"].mean(axis=1, keepdims=True),
    "weights * hidden": lambda at: at["weights"].sum(axis=0) @ at["hidden"],
}
