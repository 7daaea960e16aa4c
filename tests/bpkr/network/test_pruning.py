"""The order in which heads are removed."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from theorykit import bpkr


@given(data=st.data())
def test_removable_heads_are_in_order_of_their_score_and_leave_one_in_every_layer(data):
    counts = data.draw(st.lists(st.integers(0, 4), max_size=3))
    few = st.sampled_from([0.1, 0.2, 0.3])
    scores = [np.array(data.draw(st.lists(few, min_size=count, max_size=count))) for count in counts]
    layers = [[(s, (layer, i)) for i, s in enumerate(of, 1)] for layer, of in enumerate(scores, 1)]
    expected = sorted(pair for pairs in layers for pair in pairs if pair != max(pairs))
    assert bpkr.removable_heads(scores) == [head for _, head in expected]
