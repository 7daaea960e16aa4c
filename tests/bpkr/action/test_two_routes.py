"""Two derivations that share only the forward maps arrive at one action, also at depth six."""

import numpy as np
import pytest

from theorykit import bpkr
from theorykit.bpkr import Attention, Dense, Skip
from theorykit.bpkr.evaluation.formulas import compiled_terms

from ...marks import slow
from ..cases import CorrelatedHeads, TiedHeads

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


@pytest.mark.slow
def test_depth_six_is_derived_verified_and_compiled():
    action = derived((2,) * 6)
    for derivation in (action.derivation, action.finite_width.derivation):
        assert derivation.verify().holds
    assert compiled_terms(action).source.count("cholesky(") == 7
