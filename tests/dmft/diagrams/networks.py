"""The published network, and the window that its diagrams start from."""

from functools import lru_cache, partial

from theorykit import dmft

GAMMA = float(dmft.attention_gain(2.2, 100, 3))


@lru_cache
def published() -> dmft.SelfAttention:
    return dmft.self_attention_limit(dmft.published_weights(), 4)


@lru_cache
def window() -> dmft.Window:
    parameters = dmft.Parameters(3.0, GAMMA, 0.02)
    start = dmft.window_start(published(), parameters, dmft.pattern_prompt(dmft.published_weights()))
    return dmft.discard_transient(published(), parameters, start, 4000)


def from_window():
    return partial(dmft.state_from_window, window=window())
