"""One call that looks for mistakes in a kind of layer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ... import bpkr
from ...checks import (
    checked_flag,
    checked_function,
    checked_instance,
    checked_sequence,
    checked_whole_number,
    shown,
)
from ...precision import require_float64
from ..report import Finding, Report, Result, merged
from .derivations import IS_DERIVED, check_derivation
from .networks import check_networks
from .numerics import check_numerics
from .placement import Placement, check_parameters, check_scaling, place
from .posterior import check_posterior
from .reference import DrawWeights, check_draws, check_reference
from .trials import Reference, with_more_heads

CHECKS = ("reference", "derivation", "networks", "numerics", "posterior")
"""The parts of `check_layer` that may be chosen; the specification is always checked."""
_QUICK = CHECKS[:-1]
_LEFT_OUT = {
    **{check: f'"{check}": not among `checks`' for check in _QUICK},
    "posterior": "networks sampled from the posterior: thorough=True does, in half a minute",
}


@dataclass(frozen=True)
class LayerReport(Report):
    """What `check_layer` found; `print` it."""


def check_layer(
    kind: bpkr.AbstractLayer,
    *,
    reference: Reference | None = None,
    draw_weights: DrawWeights | None = None,
    checks: Sequence[str] | None = None,
    thorough: bool = False,
    seed: int = 0,
) -> LayerReport:
    """Whether the layer `kind` is right: what it states, what follows from it, and what runs.

    It is tried alone, with one head more, below a layer of attention with two outputs, above a dense layer, and between
    others in a network of four layers; the report says at which sizes. Mistakes in it, and what is refused, are
    findings of the report, not errors; `report.holds` says whether there are none. Five to ten seconds.

    - `reference`: the forward map once more, in plain NumPy: `reference(weights, hidden, attention, parameters)` of
      arrays (blocks, N_{l+1}, N_l), (N_l, tokens), (heads, keys, queries) or None without attention, and the values of
      the parameters by the names that they have in the layer; returns (N_{l+1}, tokens). Where it differs from the
      stated map, the report says by what: a sign, a factor, a transpose, an order, a missing term.
    - `draw_weights`: how the weights are drawn elsewhere, `draw_weights(rng, shape, variance, parameters)` returns
      an array of `shape`, (blocks, N_{l+1}, N_l); compared with the layer's prior.
    - `checks`: some of `CHECKS`, to save time; all but "posterior" if None.
    - `thorough`: also "posterior": saddle points against networks sampled from the posterior. Half a minute.
    - `seed`: of all that is random; the same seed gives the same report.

        >>> import theorykit
        >>> from theorykit import bpkr, testing
        >>> theorykit.enable_float64()
        >>> def dense(weights, hidden, attention, parameters):
        ...     return -weights[0] @ hidden / len(hidden) ** 0.5
        >>> report = testing.check_layer(bpkr.Dense(), reference=dense, checks=["reference"])
        >>> report.findings[0].meaning
        'a sign'
    """
    require_float64()
    checked_instance("kind", kind, bpkr.AbstractLayer, "an instance of a kind of layer, such as bpkr.Attention(2)")
    for name, function in (("reference", reference), ("draw_weights", draw_weights)):
        if function is not None:
            checked_function(name, function)
    chosen = _chosen(checks, checked_flag("thorough", thorough))
    seed = checked_whole_number("seed", seed, least=0, most=2**32 - 1)
    placements, specified = place(kind)
    results, left_out = [specified], []
    if not placements:
        left_out.append("everything else, for the layer is refused")
    else:
        if "reference" in chosen:
            results += _against_the_user(kind, placements[0], reference, draw_weights, seed, left_out)
        results += _of_the_package(kind, placements, chosen, seed)
        left_out += [said for check, said in _LEFT_OUT.items() if check not in chosen]
    return LayerReport(f"The layer {type(kind).__name__}", *merged(results), tuple(left_out))


def _chosen(checks: Sequence[str] | None, thorough: bool) -> tuple[str, ...]:
    given = _QUICK if checks is None else checked_sequence("checks", checks, f"some of {CHECKS}")
    if unknown := [check for check in given if not isinstance(check, str) or check not in CHECKS]:
        raise ValueError(f"checks must be some of {CHECKS}, got {', '.join(map(shown, unknown))}")
    return (*given, "posterior") if thorough else given


def _against_the_user(kind, placement: Placement, reference, draw_weights, seed, left_out) -> Iterator[Result]:
    if reference is None:
        left_out.append("the forward map against one of yours in NumPy: give reference=...")
    else:
        yield from check_reference(kind, placement, reference, seed)
    if draw_weights is None:
        left_out.append("the prior against weights as you draw them: give draw_weights=...")
    else:
        yield check_draws(kind, placement, draw_weights, seed)


def _of_the_package(kind, placements: Sequence[Placement], chosen: Sequence[str], seed: int) -> Iterator[Result]:
    yield check_scaling(placements[0].form)
    yield check_parameters(kind, placements[0].form)
    for placement in placements:
        for result in _placed(placement, chosen, placement in placements[:2], seed):
            yield _at(placement, result)
            if isinstance(result, Finding) and result.check == IS_DERIVED:
                return
    more_heads = with_more_heads(kind, placements[0], seed)
    if "networks" in chosen and more_heads is not None:
        for result in check_networks(more_heads, seed):
            yield _at(more_heads, result)
    if "posterior" in chosen:
        yield check_posterior(placements[0], seed)


def _at(placement: Placement, result: Result) -> Result:
    """The result, and a finding with where it was made."""
    if isinstance(result, Finding):
        return replace(result, measured=f"{placement.words}: {result.measured}")
    return result


def _placed(placement: Placement, chosen: Sequence[str], with_numerics: bool, seed: int) -> Iterator[Result]:
    """The kind at one place; the first two have it at the readout and not, one output and two: what runs is theirs."""
    if "derivation" in chosen:
        yield from check_derivation(placement, seed)
    if "networks" in chosen:
        yield from check_networks(placement, seed)
    if "numerics" in chosen and with_numerics:
        yield from check_numerics(placement, seed)
