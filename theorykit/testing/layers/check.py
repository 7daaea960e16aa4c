"""Check a kind of layer for mistakes in one call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

from ... import bpkr
from ...checks import Seed, checked_arguments, checked_instance, shown
from ...precision import require_float64
from ..report import Finding, Report, report_of
from .networks import check_networks, check_posterior
from .numerics import IS_DERIVED, check_derivation, check_numerics
from .placement import check_parameters, check_scaling, place, placed
from .reference import DrawWeights, check_draws, check_reference
from .trials import Reference, of_other_heads

_QUICK = ("reference", "derivation", "networks", "numerics")
_CHECKS = (*_QUICK, "posterior")
_LEFT_OUT = {
    **{check: f'"{check}": not among `checks`' for check in _QUICK},
    "posterior": "networks sampled from the posterior: thorough=True does, in half a minute",
}
_Kind = Annotated[
    bpkr.AbstractLayer,
    partial(checked_instance, kind=bpkr.AbstractLayer, example="an instance of a layer, such as bpkr.Attention(2)"),
]


@checked_arguments
def check_layer(
    kind: _Kind,
    *,
    reference: Reference | None = None,
    draw_weights: DrawWeights | None = None,
    checks: Sequence[str] | None = None,
    thorough: bool = False,
    seed: Seed = 0,
) -> Report:
    """Check whether the layer `kind` is right: what it states, what follows from it, and what runs.

    The layer is tried alone, with one more head, and between other layers. Mistakes in it, and rejections, are findings
    of the report, not errors. The check takes five to ten seconds.

    Args:
        kind: The layer.
        reference: The same forward map in plain NumPy: `reference(weights, hidden, attention, parameters)` of arrays
            (blocks, N_{l+1}, N_l), (N_l, tokens), (heads, keys, queries) or None without attention, and the values of
            the parameters by their names in the layer. It returns (N_{l+1}, tokens). The report explains a difference.
        draw_weights: Your own way to draw weights: `draw_weights(rng, shape, variance, parameters)` returns an array of
            `shape`, (blocks, N_{l+1}, N_l). It is compared with the layer's prior.
        checks: Some of "reference", "derivation", "networks", "numerics" and "posterior", to save time; all except
            "posterior" if None. The specification is always checked.
        thorough: Include "posterior": saddle points against networks sampled from the posterior. Takes half a minute.
        seed: Seed of all random numbers. The same seed gives the same report.

    Example:
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
    if unknown := [check for check in checks or () if check not in _CHECKS]:
        raise ValueError(f"checks must be some of {_CHECKS}, got {', '.join(map(shown, unknown))}")
    chosen = (*(_QUICK if checks is None else checks), *["posterior"] * thorough)
    left_out: list[str] = []

    def results() -> Iterator[Finding]:
        placements, specified = place(kind)
        yield specified
        if not placements:
            left_out.append("everything else, for the layer is refused")
            return
        alone = placements[0]
        if "reference" in chosen:
            if reference is None:
                left_out.append("the forward map against one of yours in NumPy: give reference=...")
            else:
                yield from check_reference(kind, alone, reference, seed)
            if draw_weights is None:
                left_out.append("the prior against weights as you draw them: give draw_weights=...")
            else:
                yield check_draws(kind, alone, draw_weights, seed)
        left_out.extend(said for check, said in _LEFT_OUT.items() if check not in chosen)
        yield check_scaling(alone.form)
        yield check_parameters(kind, alone.form)
        of_package = {"derivation": check_derivation, "networks": check_networks, "numerics": check_numerics}
        tried = [
            (placement, check)
            for placement in placements
            for name, check in of_package.items()
            # The first two places have the kind at the readout and elsewhere, with one output and with two. Run these.
            if name in chosen and (name != "numerics" or placement in placements[:2])
        ]
        more_heads = of_other_heads(kind, alone.form, kind.heads + 1, seed)
        if "networks" in chosen and more_heads is not None:
            words = f"alone, with {kind.heads + 1} heads"
            tried.append((placed((more_heads[0],), 0, alone.architecture.widths, 1, words), check_networks))
        for placement, check in tried:
            for result in check(placement, seed):
                said = result.measured if result.holds else f"{placement.words}: {result.measured}"
                yield replace(result, measured=said)
                if result.check == IS_DERIVED:
                    return
        if "posterior" in chosen:
            yield check_posterior(alone, seed)

    return report_of(f"The layer {type(kind).__name__}", results(), left_out)
