"""What a solve says of layers that are too narrow for a theory of wide ones."""

import jax
import numpy as np
import pytest

from theorykit import bpkr

FEATURES, LABELS = np.random.default_rng(0).normal(size=(12, 4, 3)), np.resize([1.0, -1.0], 12)


def solved(widths):
    return bpkr.solve(bpkr.Architecture((2, 2), widths, temperature=0.5), bpkr.Data(FEATURES, LABELS))


@pytest.mark.parametrize(("widths", "least"), [((8, 9, 3), 2.0), ((3, 20, 20), 0.75), ((50, 1, 2), 0.5)])
def test_a_layer_of_fewer_units_than_paths_is_out_of_range(widths, least):
    found = solved(widths)
    assert found.converged and np.isclose(found.stats["units_per_path"], least)
    said = f"a layer has {least:.2g} hidden units per partial path"
    assert (said in found.diagnosis) == (least < 1)


@pytest.mark.slow
def test_a_batch_says_so_of_its_narrowest_network():
    batch = jax.vmap(lambda width: solved(width))(np.array([2.0, 40.0]))
    assert batch.diagnosis.startswith("all 2 solves converged. The theory of wide layers does not hold")
    assert batch.stats["units_per_path"].tolist() == [0.5, 10.0]
