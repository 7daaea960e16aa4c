"""Run the published algorithm for the mean-field dynamics of self-attention, one step at a time, for comparison.

    python benchmarks/self_attention_published.py [--seconds SECONDS]

It is written in NumPy from the equations. Semantic averages are sums over combinations of signs, which limits it to
M <= 3 patterns. Every step recomputes the overlaps of all tokens in the window. Positions are a window of bits that
rotates by one row per step. Lyapunov exponents come from the automatic derivative of the whole map, of attentions and
position bits, with one QR decomposition per step. They need the package `autograd`, from the extra `benchmarks`.

Prints steps per second of the map and of the exponents, for windows of 4, 8 and 32 tokens.
"""

import argparse
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import numpy as np

OUTPUT, VALUE, QUERY, KEY = range(4)
TIMED_WINDOWS = (4, 8, 32)


@dataclass(frozen=True)
class Parameters:
    """A network and its settings: M patterns, P position bits, and the families output, value, query, key in order.

    correlations : array (4, odd orders, patterns)
        Averages <w_a prod_{b in S} w^o_b> over the semantic columns, for every family and every odd set S.
    positional : array (4, patterns, P)
        Positional columns of the weights.
    signs : array (combinations, patterns)
        All sign vectors that start with +1.
    products : array (combinations, odd orders)
        prod_{b in S} sigma_b for every sign vector.
    """

    correlations: np.ndarray
    positional: np.ndarray
    signs: np.ndarray
    products: np.ndarray
    beta: float
    gamma: float
    epsilon: float


def parameters_of(weights: np.ndarray, position_bits: int, *, beta: float, gamma: float, epsilon: float) -> Parameters:
    """Compute the parameters from weights +-1 (4, patterns, semantic bits + position bits)."""
    patterns = weights.shape[1]
    if patterns > 3:
        raise ValueError(f"{patterns} patterns: this implementation allows at most 3")
    semantic, positional = np.split(weights.astype(float), [weights.shape[2] - position_bits], axis=2)
    signs = np.array([(1, *rest) for rest in itertools.product((1, -1), repeat=patterns - 1)], dtype=float)
    columns = odd_products(semantic[OUTPUT].T)
    correlations = np.einsum("is,fai->fsa", columns, semantic) / len(columns)
    return Parameters(correlations, positional, signs, odd_products(signs), beta, gamma, epsilon)


def odd_products(vectors: np.ndarray) -> np.ndarray:
    """Return products (vectors, odd orders) of the entries of `vectors` (vectors, patterns) over all odd-sized sets."""
    patterns = vectors.shape[1]
    sets = [chosen for size in range(1, patterns + 1, 2) for chosen in itertools.combinations(range(patterns), size)]
    return np.stack([np.prod(vectors[:, list(chosen)], axis=1) for chosen in sets], axis=1)


def position_window(tokens: int, position_bits: int) -> np.ndarray:
    """Return the window at step 0: bits (tokens, position bits) of positions 0, -1, ..., 1 - tokens modulo tokens."""
    positions = -np.arange(tokens) % tokens
    return 2.0 * ((positions[:, None] >> np.arange(position_bits)[::-1]) & 1) - 1.0


def attention_of_prompt(prompt: np.ndarray, weights: np.ndarray, parameters: Parameters) -> np.ndarray:
    """Return A_0 (patterns,) = m^v_0 of a prompt +-1 (semantic bits + position bits,)."""
    position_bits = parameters.positional.shape[2]
    semantic = np.mean(weights[VALUE, :, :-position_bits] * prompt[:-position_bits], axis=1)
    return with_position(VALUE, (1 - parameters.epsilon) * semantic, prompt[-position_bits:], parameters)


def with_position(family: int, semantic: np.ndarray, bits: np.ndarray, parameters: Parameters) -> np.ndarray:
    """Add the positional share, from `bits`, to the semantic share of the overlaps (..., patterns): Eq. (1)."""
    # Here and below, constants are multiplied first, because the derivative costs time per operation on variables.
    columns = (parameters.epsilon / bits.shape[-1]) * parameters.positional[family].T
    return semantic + bits @ columns


def overlaps(
    families: tuple[int, ...], attention: np.ndarray, bits: np.ndarray, parameters: Parameters, numbers: ModuleType = np
) -> list[np.ndarray]:
    """Return overlaps (..., patterns), per family, of the tokens after `attention` (..., patterns): Eqs. (5), (7)."""
    outputs = numbers.tanh(attention @ (parameters.beta * parameters.signs.T))
    coefficients = outputs @ (parameters.products * ((1 - parameters.epsilon) / len(parameters.signs)))
    return [
        with_position(family, coefficients @ parameters.correlations[family], bits, parameters) for family in families
    ]


def step(
    window: np.ndarray, positions: np.ndarray, parameters: Parameters, numbers: ModuleType = np
) -> tuple[np.ndarray, np.ndarray]:
    """Return the next windows of attentions and of position bits, newest first.

    A window (live tokens, patterns) grows until it has as many rows as `positions` (tokens, position bits). `numbers`
    is the array module: NumPy, or the differentiable `autograd.numpy`.
    """
    values, keys = overlaps((VALUE, KEY), window, positions[: len(window)], parameters, numbers)
    (query,) = overlaps((QUERY,), window[0], positions[0], parameters, numbers)
    scores = parameters.gamma * (keys @ query)
    unnormalised = numbers.exp(scores - numbers.max(scores))
    attention = unnormalised @ values / numbers.sum(unnormalised)  # Eq. (2)
    kept = window[: len(positions) - 1]
    return numbers.concatenate([attention[None], kept]), numbers.roll(positions, 1, axis=0)


def trajectory(attention: np.ndarray, tokens: int, parameters: Parameters, steps: int) -> np.ndarray:
    """Return the attentions A_1, ..., A_steps (steps, patterns) after the attention A_0 (patterns,) of a prompt."""
    window, positions = attention[None], position_window(tokens, parameters.positional.shape[2])
    visited = []
    for _ in range(steps):
        window, positions = step(window, positions, parameters)
        visited.append(window[0])
    return np.array(visited)


def lyapunov_steps(window: np.ndarray, positions: np.ndarray, parameters: Parameters, steps: int) -> np.ndarray:
    """Return log |R_jj| (steps, tokens (patterns + position bits)) from a full window; -inf if R_jj is zero.

    Averages over steps are the exponents: first the exponents of the attentions, then zeros for the positions.
    """
    import autograd
    import autograd.numpy

    def flat_map(state: np.ndarray) -> np.ndarray:
        rows = state[: window.size].reshape(window.shape), state[window.size :].reshape(positions.shape)
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


def published_parameters(tokens: int, beta: float = 1.27) -> tuple[np.ndarray, Parameters]:
    """Return random weights of the published kind and size, 3 segments of 33 equal columns, and their parameters."""
    position_bits = (tokens - 1).bit_length()
    generator = np.random.default_rng(1)
    segments = np.repeat(generator.choice([-1, 1], size=(4, 3, 3)), 33, axis=2)
    weights = np.concatenate([segments, generator.choice([-1, 1], size=(4, 3, position_bits))], axis=2)
    return weights, parameters_of(weights, position_bits, beta=beta, gamma=220 / np.sqrt(3), epsilon=0.02)


def steps_per_second(run: Callable[[int], object], seconds: float) -> float:
    """Measure steps per second of `run(steps)`, in a run of at least about `seconds`."""
    steps, elapsed = 1, 0.0
    while elapsed < seconds:
        steps *= 2
        start = time.perf_counter()
        run(steps)
        elapsed = time.perf_counter() - start
    return steps / elapsed


def rates(tokens: int, seconds: float) -> tuple[float, float]:
    """Measure steps per second of the map and of the exponents, in the published setting with windows of `tokens`."""
    weights, parameters = published_parameters(tokens)
    position_bits = parameters.positional.shape[2]
    prompt = np.concatenate([weights[OUTPUT, 0, :-position_bits], -np.ones(position_bits)])
    start = attention_of_prompt(prompt, weights, parameters)
    # After a whole number of windows the position is 0 again.
    window = trajectory(start, tokens, parameters, tokens * 10)[: -tokens - 1 : -1]
    positions = position_window(tokens, position_bits)
    return (
        steps_per_second(lambda steps: trajectory(start, tokens, parameters, steps), seconds),
        steps_per_second(lambda steps: lyapunov_steps(window, positions, parameters, steps), seconds),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="shortest duration of a timed run")
    arguments = parser.parse_args()
    print(f"{'window':>6} {'map steps/s':>12} {'Lyapunov steps/s':>17}")
    for tokens in TIMED_WINDOWS:
        map_rate, lyapunov_rate = rates(tokens, arguments.seconds)
        print(f"{tokens:6} {map_rate:12.0f} {lyapunov_rate:17.1f}", flush=True)


if __name__ == "__main__":
    main()
