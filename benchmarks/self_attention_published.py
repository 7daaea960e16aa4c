"""The published algorithm for the dynamics of self-attention, one step at a time.

Written in NumPy from the equations of Poc-Lopez and Aguilera, arXiv 2406.07247. Sums
over signs limit it to three patterns. Every step recomputes the overlaps of all tokens
in the window. Lyapunov exponents come from the automatic derivative of the whole map,
of attentions and position bits, with one QR decomposition per step. They need the
package `autograd`, from the extra `benchmarks`.
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import numpy as np

OUTPUT, VALUE, QUERY, KEY = range(4)


@dataclass(frozen=True)
class Parameters:
    """A network of M patterns and P position bits; families are listed as above.

    - `correlations` (4, odd sets, patterns): <w_a prod_{b in S} w^o_b> over semantic
      columns, for every family and every odd set S.
    - `positional` (4, patterns, P): positional columns of the weights.
    - `signs` (combinations, patterns): all sign vectors that start with +1.
    - `products` (combinations, odd sets): prod_{b in S} sigma_b.
    """

    correlations: np.ndarray
    positional: np.ndarray
    signs: np.ndarray
    products: np.ndarray
    beta: float
    gamma: float
    epsilon: float


def parameters_of(weights: np.ndarray, position_bits: int, **numbers: float) -> Parameters:
    """Return the parameters of weights +-1 (4, patterns, semantic and position bits)."""
    parts = np.split(weights.astype(float), [weights.shape[2] - position_bits], axis=2)
    semantic, positional = parts
    patterns = weights.shape[1]
    choices = itertools.product((1, -1), repeat=patterns - 1)
    signs = np.array([(1, *rest) for rest in choices], dtype=float)
    columns = odd_products(semantic[OUTPUT].T)
    correlations = np.einsum("is,fai->fsa", columns, semantic) / len(columns)
    return Parameters(correlations, positional, signs, odd_products(signs), **numbers)


def odd_products(vectors: np.ndarray) -> np.ndarray:
    """Return products (vectors, odd sets) of the entries of `vectors`."""
    patterns = range(vectors.shape[1])
    sizes = range(1, len(patterns) + 1, 2)
    sets = [each for size in sizes for each in itertools.combinations(patterns, size)]
    return np.stack([np.prod(vectors[:, list(each)], axis=1) for each in sets], axis=1)


def position_window(tokens: int, position_bits: int) -> np.ndarray:
    """Return bits (tokens, P) of the positions 0, -1, ..., 1 - tokens."""
    positions = -np.arange(tokens) % tokens
    return 2.0 * ((positions[:, None] >> np.arange(position_bits)[::-1]) & 1) - 1.0


def attention_of_prompt(prompt, weights, parameters: Parameters) -> np.ndarray:
    """Return A_0 (patterns,) = m^v_0 of a prompt +-1 (semantic and position bits,)."""
    bits = parameters.positional.shape[2]
    semantic = np.mean(weights[VALUE, :, :-bits] * prompt[:-bits], axis=1)
    semantic = (1 - parameters.epsilon) * semantic
    return with_position(VALUE, semantic, prompt[-bits:], parameters)


def with_position(family: int, semantic, bits, parameters: Parameters) -> np.ndarray:
    """Add the positional share of the overlaps (..., patterns): Eq. (1)."""
    # Constants are multiplied first, because the derivative costs time per operation.
    scale = parameters.epsilon / bits.shape[-1]
    return semantic + bits @ (scale * parameters.positional[family].T)


def overlaps(families, attention, bits, parameters: Parameters, numbers: ModuleType = np):
    """Return overlaps (..., patterns) of the next tokens, per family: Eqs. (5), (7)."""
    outputs = numbers.tanh(attention @ (parameters.beta * parameters.signs.T))
    scale = (1 - parameters.epsilon) / len(parameters.signs)
    coefficients = outputs @ (parameters.products * scale)
    semantic = [coefficients @ parameters.correlations[family] for family in families]
    pairs = zip(families, semantic, strict=True)
    return [with_position(family, each, bits, parameters) for family, each in pairs]


def step(window, positions, parameters: Parameters, numbers: ModuleType = np):
    """Return the next windows of attentions and of position bits, newest first.

    A window (live tokens, patterns) grows to as many rows as `positions`. `numbers` is
    NumPy, or the differentiable `autograd.numpy`.
    """
    live = positions[: len(window)]
    values, keys = overlaps((VALUE, KEY), window, live, parameters, numbers)
    (query,) = overlaps((QUERY,), window[0], positions[0], parameters, numbers)
    scores = parameters.gamma * (keys @ query)
    unnormalised = numbers.exp(scores - numbers.max(scores))
    attention = unnormalised @ values / numbers.sum(unnormalised)  # Eq. (2)
    kept = window[: len(positions) - 1]
    rolled = numbers.roll(positions, 1, axis=0)
    return numbers.concatenate([attention[None], kept]), rolled


def trajectory(attention, tokens: int, parameters: Parameters, steps: int) -> np.ndarray:
    """Return A_1, ..., A_steps (steps, patterns) after the attention A_0 of a prompt."""
    window = attention[None]
    positions = position_window(tokens, parameters.positional.shape[2])
    visited = []
    for _ in range(steps):
        window, positions = step(window, positions, parameters)
        visited.append(window[0])
    return np.array(visited)


def lyapunov_steps(window, positions, parameters: Parameters, steps: int) -> np.ndarray:
    """Return log |R_jj| (steps, tokens (patterns + P)) from a full window.

    Averages are the exponents: of the attentions, then zeros of the positions.
    """
    import autograd
    import autograd.numpy

    def flat_map(state: np.ndarray) -> np.ndarray:
        attentions, bits = state[: window.size], state[window.size :]
        rows = attentions.reshape(window.shape), bits.reshape(positions.shape)
        moved = step(*rows, parameters, autograd.numpy)
        return autograd.numpy.concatenate([part.reshape(-1) for part in moved])

    jacobian = autograd.jacobian(flat_map)
    state = np.concatenate([window.reshape(-1), positions.reshape(-1)]).astype(float)
    directions, growth = np.eye(len(state)), []
    for _ in range(steps):
        directions, triangle = np.linalg.qr(jacobian(state) @ directions)
        with np.errstate(divide="ignore"):
            growth.append(np.log(np.abs(np.diag(triangle))))
        state = flat_map(state)
    return np.array(growth)


def steps_per_second(run: Callable[[int], object], seconds: float) -> float:
    """Measure steps per second of `run(steps)`, in a run of at least `seconds`."""
    steps, elapsed = 1, 0.0
    while elapsed < seconds:
        steps *= 2
        start = time.perf_counter()
        run(steps)
        elapsed = time.perf_counter() - start
    return steps / elapsed
