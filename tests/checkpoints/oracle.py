"""Attention written down plainly in NumPy, one score at a time: what the heads of a checkpoint are compared with."""

import numpy as np


def normalise(inputs, norm, epsilon):
    """A layer norm, token by token."""
    if norm is None:
        return inputs
    mean, variance = inputs.mean(-1, keepdims=True), inputs.var(-1, keepdims=True)
    return (inputs - mean) / np.sqrt(variance + epsilon) * norm[0] + norm[1]


def attention(inputs, query, key, query_bias, key_bias, *, causal=False, present=None):
    """Maps (examples, heads, keys, queries) of one layer, zero where a query may not attend to a key."""
    examples, tokens, _ = inputs.shape
    maps = np.zeros((examples, len(query), tokens, tokens))
    for e, h, t in np.ndindex(examples, len(query), tokens):
        q = query[h] @ inputs[e, t] + query_bias[h]
        keys = [s for s in range(tokens) if (s <= t or not causal) and (present is None or present[e, s])] or [t]
        scores = np.array([q @ (key[h] @ inputs[e, s] + key_bias[h]) for s in keys]) / np.sqrt(len(q))
        weights = np.exp(scores - scores.max())
        maps[e, h, keys, t] = weights / weights.sum()
    return maps


def published_network(arrays, inputs, heads, residual=False, token=0):
    """The published network's output (examples, outputs), from its arrays by their own names."""
    hidden = inputs
    if "learned_input_layer.weight" in arrays:
        hidden = inputs @ arrays["learned_input_layer.weight"].T
    layer = 0
    while f"transformer.layers.{layer}.to_q.weight" in arrays:
        q, k, v = (
            (of @ arrays[f"transformer.layers.{layer}.to_{name}.weight"].T).reshape(*of.shape[:2], heads, -1)
            for name, of in (("q", inputs), ("k", inputs), ("v", hidden))
        )
        scores = np.einsum("bthg,bshg->bhts", q, k) * q.shape[-1] ** -0.5
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        after = heads**-0.5 * np.einsum("bhts,bshm->btm", weights, v)
        hidden = after + hidden if residual else after
        layer += 1
    return hidden[:, token] @ arrays["readout_layer.weight"].T
