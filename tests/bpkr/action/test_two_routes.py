"""Two derivations that share only the forward maps arrive at one action; and the code it makes grows as it should."""

import numpy as np
import pytest

from theorykit import bpkr
from theorykit.bpkr import Attention, Dense, Skip
from theorykit.bpkr.evaluation.formulas import compiled_terms
from theorykit.codegen import interpret
from theorykit.derivation.claims import random_values

from ...marks import slow
from ..cases import GRAMMAR, READOUTS_OF_TOKENS, CorrelatedHeads, TiedHeads

RNG = np.random.default_rng(3)
KINDS = (Attention(1), Attention(2), Attention(3), Dense(), Skip(2, 0.7), Skip(Dense(), 1.2), TiedHeads(2),
         CorrelatedHeads(np.diag([1.5, 0.5]), 2))  # fmt: skip
RANDOM_NETWORKS = [
    tuple(KINDS[i] for i in RNG.integers(len(KINDS), size=depth)) for depth in range(1, 6) for _ in range(3)
]
HEADS_ONLY = [tuple(Attention(int(heads)) for heads in RNG.integers(1, 5, size=depth)) for depth in range(1, 6)]
SHALLOW = [layers for layers in (*HEADS_ONLY, *RANDOM_NETWORKS) if len(layers) <= 2]
DEEP = [layers for layers in (*HEADS_ONLY, *RANDOM_NETWORKS) if len(layers) > 2]


def derived(layers, outputs=1):
    return bpkr.derive(bpkr.Architecture(layers, widths=6, temperature=1.0, outputs=outputs))


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("layers", [*SHALLOW, *slow(DEEP)], ids=str)
def test_the_leading_order_of_the_exact_prior_is_the_action(layers, outputs):
    assert not any(derived(layers, outputs).route_differences)


@pytest.mark.parametrize("layers", [*SHALLOW, *slow(DEEP)], ids=str)
def test_what_the_exact_prior_has_beyond_it_is_known(layers):
    """(n_l + 1) log det U_l, less (n_{l+1} + 1) log det U_{l+1} where a skip connection holds it."""
    action, heads = derived(layers), bpkr.Architecture(layers, widths=6, temperature=1.0).head_counts()
    sizes = {symbol: heads[symbol.name] for symbol in action.symbols.sizes}
    overlaps, corrections = action.symbols.overlaps, action.finite_width.corrections
    for i, (overlap, correction) in enumerate(zip(overlaps, corrections, strict=True)):
        values = random_values([correction, *overlaps], sizes, np.random.default_rng(i))

        def weighted(symbol, values=values):
            matrix = values[symbol.name]
            return (len(matrix) + 1) * np.linalg.slogdet(matrix)[1]

        expected = weighted(overlap)
        if i < len(action.forms) and action.forms[i].has_skip:
            expected -= weighted(overlaps[i + 1])
        assert abs(interpret(correction, values) - expected) < 1e-10 * max(1.0, abs(expected))


@pytest.mark.slow
def test_depth_six_is_derived_verified_and_compiled():
    action = derived((2,) * 6)
    for derivation in (action.derivation, action.finite_width.derivation):
        assert derivation.verify().holds
    assert compiled_terms(action).source.count("cholesky(") == 7


@pytest.mark.quick(4)
@pytest.mark.parametrize("case", (*GRAMMAR, *READOUTS_OF_TOKENS), ids=str)
def test_the_meaning_of_the_first_order_parameter_is_derived(case):
    """Result 2: N_1 U_1 is the mean of the sum of w w^T."""
    action = bpkr.derive(case.architecture())
    *_, last = (step for step in action.derivation.steps if step.section == "Meaning of U")
    first = action.symbols.first
    assert last.after == action.symbols.widths[0] * first
