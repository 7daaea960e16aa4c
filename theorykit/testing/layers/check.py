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
    progress: bool = True,
) -> Report:
    """Check a layer for mistakes: its specification, the theory that follows from it, and the generated code.

    The layer is checked alone, with one more head, and between other layers. Mistakes and rejections are findings of
    the report and do not raise errors. The check takes ten to thirty seconds.

    Args:
        kind: the layer.
        reference: the same forward map in plain NumPy, `reference(weights, hidden, attention, parameters)`. The arrays
            are weights (blocks, N_{l+1}, N_l), hidden (N_l, tokens), and attention (heads, keys, queries), or None
            without attention. `parameters` has the values of parameters by their names in the layer. The function
            returns (N_{l+1}, tokens). The report explains a difference.
        draw_weights: your function that draws weights, `draw_weights(rng, shape, variance, parameters)`. It returns an
            array of `shape`, (blocks, N_{l+1}, N_l), which is compared with the layer's prior.
        checks: some of "reference", "derivation", "networks", "numerics" and "posterior", to save time. The default is
            all except "posterior". The specification is always checked.
        thorough: whether to include "posterior", which compares saddle points with networks that are sampled from the
            posterior. This takes half a minute.
        seed: seed of all random numbers. The same seed gives the same report.
        progress: report progress if the check takes longer than a second.

    Returns:
        The findings, the checks that passed, and the checks that were left out.

    Raises:
        ValueError: `checks` has an unknown entry.

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
            left_out.append("everything else, because the layer is refused")
            return
        alone = placements[0]
        if "reference" in chosen:
            if reference is None:
                left_out.append("the forward map against your own in NumPy: pass reference=...")
            else:
                yield from check_reference(kind, alone, reference, seed)
            if draw_weights is None:
                left_out.append("the prior against weights that you draw: pass draw_weights=...")
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
            # Run generated code only for the first two placements, which cover the readout and inner layers, and one
            # and two outputs.
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

    cost = f"usually {'one to two minutes' if 'posterior' in chosen else 'less than a minute'}"
    return report_of(f"The layer {type(kind).__name__}", results(), left_out, cost=cost, progress=progress)
