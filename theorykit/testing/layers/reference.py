"""Compare the stated forward map with your own reference, and the stated prior with weights that you draw."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from jax.typing import ArrayLike
from sympy import MatrixSymbol, Symbol

from ...bpkr.specification.layers import AbstractLayer
from ...codegen import interpret
from ..problems import plain
from ..report import Finding, raised
from .explanations import AGREES, Pair, explain_difference, listed
from .networks import Sampled, check_covariance
from .placement import Placement
from .trials import Reference, Sizes, Trial, Unusable, copies, make_trials, of_other_heads

DrawWeights = Callable[[np.random.Generator, tuple[int, int, int], float, Mapping[str, ArrayLike]], ArrayLike]
"""Function that draws weights: (rng, (blocks, N_{l+1}, N_l), variance, parameters) -> weights; see `check_layer`."""

_CLAIM = "the stated forward map equals the reference"
# Sizes of trials. They are primes, so no product of powers of some is a power of another, and factors are unique.
_PRIMES = (5, 7, 11, 13)
# N_l, N_{l+1} and number of tokens of the largest trial.
_WIDE = (41, 37, 29)
# Number of draws of weights.
_DRAWS = 2_000


def check_reference(kind: AbstractLayer, placement: Placement, reference: Reference, seed: int) -> Iterator[Finding]:
    """Check that `forward` equals the reference, or explain the difference."""
    form = placement.form

    def tried(sizes: Sequence[Sizes], own_numbers: bool, heads: int = kind.heads) -> list[Pair]:
        """Return trials with `heads` heads and results of the reference, or none if there is no such layer."""
        other = (kind, form) if heads == kind.heads else of_other_heads(kind, form, heads, seed)
        if other is None:
            return []
        trials = make_trials(*other, sizes, seed + (heads != kind.heads), own_numbers)
        return [(trial, trial.referred(reference)) for trial in trials]

    first, second, third, *_ = [size for size in _PRIMES if size not in (kind.heads, kind.heads + 1)]
    unequal = [(first, second, third), (third, first, second)]
    equal = [(width, width, tokens) for width, _, tokens in unequal]
    note, sizes = "", equal if form.has_skip else unequal
    try:
        pairs = tried(sizes, own_numbers=False)
    except Unusable as at_unequal:
        sizes = equal
        try:
            pairs = tried(sizes, own_numbers=False)
        except Unusable as problem:
            said, trial = str(problem), make_trials(kind, form, equal, seed, own_numbers=False)[0]
            shapes = f"weights {trial.weights.shape}, hidden {trial.hidden.shape}"
            shapes += "" if trial.attention is None else f", attention {trial.attention.shape}"
            meaning = (
                "the reference is called with weights (blocks, next_width, width), hidden (width, tokens), attention "
                "(heads, keys, queries) or None, and parameters; or it assumes another number of blocks or heads"
            )
            if f"shape {trial.shape[::-1]}" in said:
                meaning = (
                    "the reference returns the transpose; it must return one column per token, (next_width, tokens)"
                )
            if "complex" in said or "in float" in said:
                meaning = "the theory uses real numbers in double precision: return such numbers"
            if "KeyError" in said:
                named = ", ".join(trial.parameters) or "none"
                meaning = (
                    f"the reference uses a parameter that the layer does not have; the layer's parameters: {named}"
                )
            yield Finding("the reference can be compared", f"{said}, given {shapes}", meaning)
            return
        note = f" (at equal widths; at others {at_unequal})"
    trial, target = pairs[0]
    if nonlinear := _nonlinearity(trial, reference):
        yield Finding("the reference is linear in weights and hidden activations", *nonlinear)
        return
    own_numbers = False
    if trial.parameters:
        own = make_trials(kind, form, sizes, seed, own_numbers=True)[0].parameters
        own_numbers = not np.any(replace(trial, parameters=own).referred(reference) != target)
    if own_numbers:
        pairs = tried(sizes, own_numbers)
        if set(form.parameters) & form.forward.atoms(Symbol, MatrixSymbol):
            note += " (at the layer's own parameters, which the reference does not read)"

    def elsewhere(sizes: Sequence[Sizes], heads: int) -> list[Pair]:
        try:
            return tried(sizes, own_numbers, heads)
        except Unusable:
            return []

    others = elsewhere(sizes, kind.heads + 1)
    error = _error(pairs)
    if error >= AGREES:
        found = explain_difference(pairs, others)
        yield Finding(_CLAIM, f"{found.measured}{note}", found.meaning)
        return
    # Both agree for the layer's own number of heads. More heads and larger inputs may reveal a difference.
    wide = [(_WIDE[0], _WIDE[0] if sizes[0][0] == sizes[0][1] else _WIDE[1], _WIDE[2])]
    further = elsewhere(sizes[:1], kind.heads + 3)
    groups = [(others, further), (further, []), (elsewhere(wide, kind.heads), elsewhere(wide, kind.heads + 1))]
    agreeing, alone = list(pairs), ""
    for more, beyond in groups:
        if not more:
            continue
        if _error(more) < AGREES:
            agreeing += more
        elif not all(_is_general(trial, reference) for trial, _ in more):
            alone = f" (at {len(more[0][0].attention)} heads the reference ignores some: it is written for fewer)"
        else:
            found = explain_difference(more, beyond)
            yield Finding(
                _CLAIM,
                f"at {_sizes_said(more)} {found.measured}; at {_sizes_said(agreeing)} they agree{note}",
                f"{found.meaning}. One of the two holds only for few heads or small inputs: a number replaces a size",
            )
            return
    yield Finding(_CLAIM, f"to {error:.1g} at {_sizes_said(agreeing)}{note}{alone}")


def _is_general(trial: Trial, reference: Reference) -> bool:
    # A reference for any number of heads depends on every weight block and head, so check this.
    whole = trial.referred(reference)
    try:
        for name in ("weights", "attention"):
            array = getattr(trial, name)
            for place in range(0 if array is None else len(array)):
                without = np.where(np.arange(len(array))[:, None, None] == place, 0.0, array)
                if np.max(np.abs(replace(trial, **{name: without}).referred(reference) - whole)) <= AGREES:
                    return False
    except Unusable:
        pass
    return True


def _sizes_said(pairs: Sequence[Pair]) -> str:
    trials = [trial for trial, _ in pairs]
    heads = sorted({len(trial.attention) for trial in trials if trial.attention is not None})
    widths = dict.fromkeys(f"{width} to {next_width}" for width, next_width, _ in (trial.sizes for trial in trials))
    tokens = sorted({trial.hidden.shape[1] for trial in trials})
    said = [f"{listed(heads)} head{'s' * (heads != [1])}"] if heads else []
    return ", ".join([*said, f"widths {listed(widths)}", f"{listed(tokens)} tokens"])


def _error(pairs: Sequence[Pair]) -> float:
    return max(np.max(np.abs(trial.stated() - target)) / max(np.max(np.abs(target)), 1e-300) for trial, target in pairs)


def _nonlinearity(trial: Trial, reference: Reference) -> tuple[str, str] | None:
    def at(hidden: np.ndarray, weights: np.ndarray = trial.weights) -> np.ndarray:
        return replace(trial, hidden=hidden, weights=weights).referred(reference)

    def differ(one: np.ndarray, other: np.ndarray) -> bool:
        return bool(np.max(np.abs(one - other)) > AGREES * size)

    hidden, size = trial.hidden, np.max(np.abs(trial.referred(reference)))
    if size == 0:
        return "the reference is zero at random weights and activations", "it depends on neither"
    # Doubling and sign changes are exact in floating-point numbers, so results of a linear map differ only by rounding.
    try:
        constant, value, double, minus = at(0 * hidden), at(hidden), at(2 * hidden), at(-hidden)
    except Unusable as problem:
        return f"{problem} if all hidden activations are zero", "it divides by their size: a norm"
    # Detect a bias first, because a bias as small as the tolerance would pass for another mistake below.
    if np.max(np.abs(constant)) > 0.1 * AGREES * size:
        said = f"without hidden activations it gives {np.max(np.abs(constant)):.3g}, not zero"
        return said, "the reference has a bias, which the theory does not cover"
    if not differ(double, value):
        said = "doubling the hidden activations does not change the result"
        return said, "the reference normalises activations, as layer norm does"
    if differ(minus, -value) and not differ(double, 2 * value):
        said = "doubling the hidden activations doubles the result, but reversing their sign does not reverse its sign"
        return said, "an activation function such as ReLU"
    if differ(double, 2 * value):
        factor = np.linalg.norm(double) / np.linalg.norm(value)
        said = f"doubling the hidden activations multiplies the norm of the result by {factor:.4g}"
        return said, "a nonlinear function of activations, or attention that is computed from them"
    nothing = at(hidden, np.zeros_like(trial.weights))
    if differ(at(hidden, 2 * trial.weights) - nothing, 2 * (value - nothing)):
        return "doubling the weights does not double the result", "the weights enter more than once"
    return None


def check_draws(kind: AbstractLayer, placement: Placement, draw_weights: DrawWeights, seed: int) -> Finding:
    """Check that weights drawn by the user have the covariance of `prior`, zero mean, and independent entries."""
    claim, form = "weights are drawn with the covariance of `prior`", placement.form
    numbers, variance = placement.architecture.layer_numbers(), placement.quantities["layer.variance"]
    sizes = [(6, 6, 5), (11, 11, 5)] if form.has_skip else [(5, 7, 6), (11, 6, 5)]
    trials = make_trials(kind, form, sizes, seed, own_numbers=True)
    rng, samples = np.random.default_rng(seed), []
    # Vary the width and the variance, to distinguish factors of these from numbers.
    for trial, scale in zip(trials, (1.0, 1.7), strict=True):
        drawn = []
        for _ in range(_DRAWS):
            try:
                returned = np.asarray(
                    draw_weights(rng, trial.weights.shape, scale * variance, copies(trial.parameters))
                )
                weights = returned.real.astype(float)
            except Exception as error:  # The user's code may raise any error.
                return Finding(claim, raised(error), "what the error says")
            if returned.dtype.kind == "c":
                return Finding(claim, "complex weights", "the theory requires real weights")
            if weights.shape != trial.weights.shape or not np.all(np.isfinite(weights)):
                said = f"an array of shape {weights.shape}, finite: {bool(np.all(np.isfinite(weights)))}"
                return Finding(claim, said, f"expected finite weights of shape {trial.weights.shape}")
            drawn.append(weights)
        width, next_width, _ = trial.sizes
        named = {"layer.width": float(width), "layer.next_width": float(next_width), "layer.variance": scale * variance}
        values = {**numbers, form.symbols.width.name: width, form.symbols.variance.name: scale * variance}
        stated = interpret(form.covariance, plain(values))
        samples.append(Sampled(np.asarray(drawn), stated, {**placement.quantities, **named}))
    otherwise = f"another covariance of the blocks than `prior`, {form.covariance}"
    if dependent := _dependence(samples[0].weights):
        return Finding(claim, *dependent)
    return check_covariance(claim, samples, otherwise)


def _dependence(weights: np.ndarray) -> tuple[str, str] | None:
    """Find a property that weights (draws, blocks, rows, columns) with independent Gaussian entries would not have."""
    size, error = np.sqrt(np.mean(weights**2)), 1 / np.sqrt(len(weights))
    mean = float(np.max(np.abs(weights.mean(axis=0)))) / size / error
    if mean > 6:
        return f"a mean of {mean:.0f} standard errors", "the prior has mean zero"
    blocks = weights.reshape(*weights.shape[:2], -1)
    blocks = blocks / np.sqrt(np.mean(blocks**2, axis=(0, 2), keepdims=True))
    overlaps = np.einsum("dai,dbj->aibj", blocks, blocks, optimize=True) / len(blocks)
    # Leave out equal entries of two blocks, which may have the covariance in `prior`.
    correlation = np.max(np.abs(overlaps * (1 - np.eye(blocks.shape[2]))[None, :, None, :]), axis=(1, 3))
    if np.max(correlation) > 7 * error:
        one, other = np.argwhere(correlation > 7 * error)[0]
        where = f"block {one + 1}" if one == other else f"blocks {one + 1} and {other + 1}"
        said = f"different entries of {where} have a correlation of {min(correlation[one, other], 1):.2g}"
        return said, "entries of weight blocks are independent in the theory"
    kurtoses = np.mean(blocks**4, axis=(0, 2))
    kurtosis = float(kurtoses[np.argmax(np.abs(kurtoses - 3))])
    if abs(kurtosis - 3) > 0.2:
        said = f"a fourth moment of {kurtosis:.2f} variances squared"
        return said, "weights are Gaussian in the theory, with a fourth moment of 3"
    return None
