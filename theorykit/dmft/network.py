"""Networks of finitely many neurons: samples of their orbits, fluctuations to order 1/N, and convergence to the map.

Networks differ from the mean field only in the overlaps of a new token. A network draws either one spin per neuron, or
the sum of spins for each class of neurons with equal weights. The sum follows a binomial law exactly, at a cost that
does not depend on the number of neurons.

Given the previous attention, the spins of a token are independent. The overlaps of the token, which are sums over
neurons, therefore have the mean of the map and the covariance Q / N of `MeanField.noise`. To leading order in 1/N, as
in van Kampen's system-size expansion, each token changes the covariance of the network's memory from Sigma to
J Sigma J^T + H Q H^T / N. J is the derivative of the map along its orbit, and H the derivative of the state with
respect to the overlaps of that token. Only spins are random. Redrawing the weights would also change the column law, by
N^(-1/2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Int8, PRNGKeyArray

from ..checks import Count, Key, checked_arguments, counted
from ..codegen.batch import column, long_matrix
from ..precision import require_float64
from ..settings import usual_settings
from ..symbolic.documents.display import DisplayMixin
from ..symbolic.documents.document import Block, Table, Text
from ..symbolic.documents.values import brief
from . import map as mean_field
from .map import (
    KEY,
    OUTPUT,
    QUERY,
    VALUE,
    Parameters,
    SelfAttention,
    State,
    attend,
    attention_curves,
    attention_table,
    broadcast_to_parameters,
    compiled,
    fitting,
    map_batch,
    next_state,
    overlap,
    self_attention_limit,
    store,
)
from .weights import FAMILIES, Weights, distinct_columns

__all__ = ["class_sum_network", "fluctuations", "run", "spin_network"]

# Tolerance for the rounding of attentions, which are of order one.
_ROUNDING = 1e-13


class FiniteNetwork(DisplayMixin, eqx.Module):
    """Network of finitely many neurons, stored as neurons or as classes of neurons with equal weights.

    - `signs` (neurons, families, patterns): weights of each neuron or class.
    - `shares` (neurons,): fraction of all neurons that each neuron or class represents.
    - `limit`: the mean field to which the network converges if its neurons are repeated.
    - `counts` (neurons,): number of neurons in each class, whose spins are drawn as a sum. None if each neuron has a
      spin.
    """

    signs: Int8[Array, "neurons families patterns"]
    shares: Float[Array, " neurons"]
    limit: SelfAttention
    counts: Float[Array, " neurons"] | None

    @property
    def neurons(self) -> Float[Array, ""]:
        """N, the number of neurons."""
        return jnp.asarray(len(self.shares), dtype=float) if self.counts is None else jnp.sum(self.counts)

    def _view(self) -> Iterator[Block]:
        drawn = "every spin is drawn" if self.counts is None else f"sums of {len(self.shares)} classes are drawn"
        yield Text(f"Network of {int(self.neurons)} neurons; {drawn}.")
        yield Table((("patterns", str(self.limit.patterns)), ("tokens in the context", str(self.limit.context))))
        yield Text("Sample it with `dmft.network.run`; `limit` is the map of infinitely many neurons.")


@checked_arguments
def spin_network(weights: Weights, context: int) -> FiniteNetwork:
    """Return the network of `weights` with one spin per neuron. Time and memory are proportional to N."""
    limit, shares = self_attention_limit(weights, context), np.full(weights.neurons, 1 / weights.neurons)
    return FiniteNetwork(jnp.asarray(np.moveaxis(weights.semantic, 2, 0)), jnp.asarray(shares), limit, None)


@checked_arguments
def class_sum_network(weights: Weights, context: int, repeats: Count = 1) -> FiniteNetwork:
    """Return the network in which every neuron of `weights` is repeated, with one sum of spins per class of neurons.

    The network is exact, at a cost that does not depend on N. Its `limit` is the mean field, and `neurons` is N.

    Args:
        weights: The weights.
        context: Largest number of tokens that the attention reads.
        repeats: Number of copies of every neuron.
    """
    limit, (signs, counts) = self_attention_limit(weights, context), distinct_columns(weights)
    shares, counts = jnp.asarray(counts / weights.neurons), jnp.asarray(repeats * counts, dtype=float)
    return FiniteNetwork(jnp.asarray(signs), shares, limit, counts)


class SampledTrajectory(DisplayMixin, eqx.Module):
    """Result of `run`, which explains the attributes."""

    attention: Float[Array, "times patterns samples *batch"]
    overlaps: Float[Array, "steps families patterns samples *batch"]
    end: State
    spins: Float[Array, "steps neurons samples *batch"] | None

    def _view(self) -> Iterator[Block]:
        steps, _, _, samples, *batch = self.overlaps.shape
        yield Text(
            f"{samples} sampled networks over {counted(steps, 'token')}{f', for each of {batch}' if batch else ''}."
        )
        yield attention_table(self.attention)
        yield from attention_curves(self.attention)
        yield Text("Compare with `dmft.network.fluctuations`, or with the map: `dmft.run` of the network's `limit`.")


@usual_settings()
@checked_arguments
def run(
    network: FiniteNetwork,
    parameters: Parameters,
    start: State,
    *,
    steps: int,
    samples: int = 1,
    keep_spins: bool = False,
    key: Key,
) -> SampledTrajectory:
    """Run independent samples of a network. The members of a batch also have independent spins.

    Args:
        network: The network.
        parameters: Parameters of the map.
        start: A state of `network.limit`, in either convention.
        steps: Number of tokens.
        samples: Number of samples.
        keep_spins: Return the spins as well.
        key: Random key of the spins.

    Returns:
        A trajectory with these attributes:

        - `attention` `(steps + 1, patterns, samples, *batch)`: the attentions, with the start first.
        - `overlaps` `(steps, families, patterns, samples, *batch)`: overlaps of every token.
        - `end`: the last state, from which to resume.
        - `spins` `(steps, neurons, samples, *batch)`: the spins, or mean spins if classes are drawn. None unless
          `keep_spins` is set.
    """
    if steps < 1 or samples < 1:
        raise ValueError(f"steps and samples must be at least 1, got {steps} steps and {samples} samples")
    start = fitting("start", start, network.limit, parameters)
    return _run(network, parameters, start, steps, samples, key, keep_spins)


@eqx.filter_jit
def _run(network, parameters, start, steps, samples, key, keep_spins):
    signs = network.signs.astype(float)

    def token(state: State, key: PRNGKeyArray):
        fields = parameters.beta * jnp.einsum("nm,m...->n...", signs[:, OUTPUT], jnp.stack(state.attention))
        up = jax.nn.sigmoid(2 * fields)
        if network.counts is None:
            spins = jnp.where(jax.random.bernoulli(key, up), 1.0, -1.0)  # Eq. (4)
        else:  # mean spins by class
            counts = network.counts.reshape(-1, *(1 for _ in fields.shape[1:]))
            spins = 2 * jax.random.binomial(key, counts, up) / counts - 1  # Eq. (4), one class at once
        semantic = jnp.einsum("nfm,n,n...->fm...", signs, network.shares, spins)
        positional = network.limit.positional[state.position].reshape(semantic.shape[:2] + (1,) * (spins.ndim - 1))
        overlaps = (1 - parameters.epsilon) * semantic + parameters.epsilon * positional  # Eq. (1)
        state = store(state, tuple(overlaps[KEY]), tuple(overlaps[VALUE]))
        state = attend(parameters, state, tuple(overlaps[QUERY]))
        return state, (jnp.stack(state.attention), overlaps, spins if keep_spins else None)

    start = broadcast_to_parameters(parameters, start)
    start = map_batch(start, lambda entry, axis: jnp.repeat(jnp.expand_dims(entry, axis), samples, axis))
    end, (attention, overlaps, spins) = jax.lax.scan(token, start, jax.random.split(key, steps))
    return SampledTrajectory(jnp.concatenate([jnp.stack(start.attention)[None], attention]), overlaps, end, spins)


class Fluctuations(DisplayMixin, eqx.Module):
    """Result of `fluctuations`, which explains the attributes."""

    mean: Float[Array, "times patterns *batch"]
    attention: Float[Array, "times patterns patterns *batch"]
    overlaps: Float[Array, "steps families patterns families patterns *batch"]
    neurons: Float[Array, ""]

    def _view(self) -> Iterator[Block]:
        yield Text(
            f"Fluctuations of a network of {counted(int(self.neurons), 'neuron')} over "
            f"{counted(len(self.overlaps), 'token')}."
        )
        yield Table((("root mean square deviation of the attention", brief(self.rms)),))
        yield from attention_curves(self.attention_deviation, "standard deviation of the attention")

    @property
    def attention_deviation(self) -> Float[Array, "times patterns *batch"]:
        """Standard deviation of each attention."""
        # Clip variances at zero. Negative ones are rounding.
        return jnp.sqrt(jnp.maximum(jnp.einsum("tpp...->tp...", self.attention), 0.0))

    @property
    def overlap_deviation(self) -> Float[Array, "steps families patterns *batch"]:
        """Standard deviation of each overlap."""
        return jnp.sqrt(jnp.maximum(jnp.einsum("tfpfp...->tfp...", self.overlaps), 0.0))

    @property
    def rms(self) -> Float[Array, "*batch"]:
        """Root mean square deviation of the attention."""
        return jnp.sqrt(jnp.mean(self.attention_deviation[1:] ** 2, axis=(0, 1)))


@checked_arguments
def fluctuations(network: FiniteNetwork, parameters: Parameters, start: State, *, steps: Count) -> Fluctuations:
    """Compute covariances over independent networks with the same start, which `run` samples.

    The result is of first order in 1/N: the noise must stay small after the map has amplified it. This holds for any
    number of tokens on a stable cycle if N is large enough, and for about log N / (2 lambda) tokens if the largest
    Lyapunov exponent lambda is positive. After that, covariances exceed the range of the overlaps and are meaningless.
    Beyond double precision, they are infinite.

    Args:
        network: The network.
        parameters: Parameters of the map.
        start: The start of all networks, a state of `network.limit` in either convention.
        steps: Number of tokens.

    Returns:
        Results with these attributes:

        - `mean` `(steps + 1, patterns, *batch)`: the attention of the map, with the start first.
        - `attention` `(steps + 1, patterns, patterns, *batch)`: covariance of the attention.
        - `overlaps` `(steps, families, patterns, families, patterns, *batch)`: covariance of m^o, m^v, m^q and m^k of
          every token.
        - `neurons`: N, the number of neurons.
        - `attention_deviation`, `overlap_deviation`: standard deviations.
        - `rms`: root mean square deviation of the attention, over patterns and over the tokens after the start.

    Example:
        >>> import jax
        >>> import theorykit
        >>> from theorykit import dmft
        >>> theorykit.enable_float64()
        >>> weights = dmft.published_weights()
        >>> network = dmft.network.class_sum_network(weights, context=4, repeats=1000)  # 99,000 neurons
        >>> parameters = dmft.Parameters(beta=0.5, gamma=127.0, epsilon=0.02)
        >>> start = dmft.token_start(network.limit, parameters, dmft.pattern_prompt(weights))
        >>> found = dmft.network.fluctuations(network, parameters, start, steps=50)
        >>> found.attention_deviation.shape  # (tokens, patterns)
        (51, 3)
        >>> round(float(found.rms), 4)
        0.0019
    """
    start = fitting("start", start, network.limit, parameters)
    return Fluctuations(*_fluctuations(network, parameters, start, steps), network.neurons)


@eqx.filter_jit
def _fluctuations(network: FiniteNetwork, parameters: Parameters, start: State, steps: int):
    start = broadcast_to_parameters(parameters, start)
    model, patterns, context, batch = network.limit, start.patterns, start.context, start.batch_shape
    size, families = patterns * (1 + 2 * context), (len(FAMILIES), patterns)
    silent = jnp.zeros((len(FAMILIES) * patterns, *batch))
    signs = network.signs.astype(float).reshape(*network.signs.shape, *(1 for _ in batch))
    shares = network.shares.reshape(-1, *(1 for _ in batch))
    columns = [signs[:, family, pattern] for family in range(len(FAMILIES)) for pattern in range(patterns)]

    def remembered(state: State) -> Array:
        return jnp.concatenate([jnp.stack(state.attention), *state.keys, *state.values])

    def token(at, _):
        state, covariance, bounded = at

        def following(numbers: Array, difference: Array) -> tuple[Array, Array]:
            """Return the memory after a token, and the token's overlaps: the overlaps of the map plus `difference`."""
            attention, slots = tuple(numbers[:patterns]), numbers[patterns:].reshape(2, patterns, context, *batch)
            here = State(attention, tuple(slots[0]), tuple(slots[1]), state.position, state.tokens)
            drawn = [overlap(model, family, parameters, attention, state.position) for family in range(len(FAMILIES))]
            overlaps = jnp.concatenate([jnp.stack(family) for family in drawn]) + difference
            of_family = overlaps.reshape(*families, *batch)
            here = store(here, tuple(of_family[KEY]), tuple(of_family[VALUE]))
            return remembered(attend(parameters, here, tuple(of_family[QUERY]))), overlaps

        _, push = jax.linearize(following, remembered(state), silent)

        def carry(numbers: Array) -> Array:
            return jnp.concatenate(push(numbers[:size], numbers[size:]))

        found = compiled("noise")(
            Omega=long_matrix(columns[OUTPUT * patterns :][:patterns]),
            X=long_matrix(columns),
            Xbar=long_matrix([shares * each for each in columns]),
            A=column(state.attention),
            beta=parameters.beta,
            epsilon=parameters.epsilon,
        )["Q"]  # Eq. (9), N times the covariance of the overlaps, given the previous state
        noise = jnp.stack([jnp.stack([jnp.broadcast_to(entry, batch) for entry in row]) for row in found.grid])
        # The memory (covariance Sigma) and the overlaps (covariance Q / N) are independent. Use one block each.
        noise = noise / network.neurons
        joint = jnp.zeros((size + len(noise), size + len(noise), *batch))
        joint = joint.at[:size, :size].set(covariance).at[size:, size:].set(noise)
        both = jax.vmap(carry)(jax.vmap(carry, in_axes=1, out_axes=1)(joint))
        carried = (both + jnp.swapaxes(both, 0, 1)) / 2
        bounded &= jnp.all(jnp.isfinite(carried), axis=(0, 1))
        carried = jnp.where(bounded, carried, 0.0)
        shown = jnp.where(bounded, carried, jnp.inf)
        state = next_state(model, parameters, state)
        kept = jnp.stack(state.attention), shown[:patterns, :patterns], shown[size:, size:]
        return (state, carried[:size, :size], bounded), kept

    covariance = jnp.zeros((size, size, *batch))
    begin = (start, covariance, jnp.ones(batch, dtype=bool))
    _, (mean, attention, overlaps) = jax.lax.scan(token, begin, None, length=steps)
    mean = jnp.concatenate([jnp.stack(start.attention)[None], mean])
    attention = jnp.concatenate([covariance[None, :patterns, :patterns], attention])
    return mean, attention, overlaps.reshape(steps, *families, *families, *batch)


@usual_settings()
@checked_arguments
def convergence(
    weights: Weights,
    context: int,
    parameters: Parameters,
    start: State,
    *,
    repeats: Sequence[Count],
    samples: int,
    steps: Count = 60,
    key: Key,
) -> xr.Dataset:
    """Measure the distance between the attention of finite networks and of the mean field, as the network grows.

    Args:
        weights: Weights of the smallest network.
        context: Largest number of tokens that the attention reads.
        parameters: Parameters of the map.
        start: The start of all runs, a state of `self_attention_limit(weights, context)`.
        repeats: Numbers of copies of every neuron of `weights`, one number per network size.
        samples: Number of independent runs per size.
        steps: Number of tokens.
        key: Random key of the spins.

    Returns:
        A dataset:

        - `rms` (neurons): root mean square distance over samples, steps and patterns.
        - `rms_error` (neurons): standard error of `rms` over samples.
        - `rms_of_step` (neurons, step): root mean square distance at one step, which shows whether the distance grows.
        - `predicted` (neurons), `predicted_of_step` (neurons, step): predictions of `rms` and `rms_of_step` by
          `network.fluctuations`, to first order in 1/N and without samples.
        - `bias`, `bias_error` (neurons, step, pattern): difference of the mean over samples from the mean field, and
          its standard error.
        - `slope`, `slope_error`: slope of log rms against log neurons. It is -1/2 while the dynamics keeps the noise
          small. The error is multiplied by the root of `chi_square` if that is above 1.
        - `chi_square`: chi-square of the fit per degree of freedom.
        - `mean_field` (step, pattern): the attention of infinitely many neurons.
    """
    require_float64()
    if parameters.batch_shape != ():
        raise ValueError(f"parameters must be one set of parameters, got a batch of shape {parameters.batch_shape}")
    if len(set(repeats)) < len(repeats) or len(repeats) < 2:
        raise ValueError(f"repeats must contain at least two different numbers to fit a slope, got {tuple(repeats)}")
    if samples < 2:
        raise ValueError(f"samples must be at least 2 for error bars, got {samples}")
    smallest = class_sum_network(weights, context)
    start = fitting("start", start, smallest.limit, parameters)
    limit = np.asarray(mean_field.run(smallest.limit, parameters, start, steps=steps).attention[1:])
    sizes, values = weights.neurons * np.array(repeats), []
    for factor, size_key in zip(repeats, jax.random.split(key, len(repeats)), strict=True):
        sized = class_sum_network(weights, context, factor)
        path = run(sized, parameters, start, steps=steps, samples=samples, key=size_key)
        values.append(np.moveaxis(np.asarray(path.attention[1:]), 2, 0) - limit)
    values = np.stack(values)  # (neurons, sample, step, pattern)
    squares = np.mean(values**2, axis=(2, 3))
    rms = np.sqrt(np.mean(squares, axis=1))
    if np.any(rms <= _ROUNDING):
        smallest_size, cause = sizes[np.argmin(rms)], "epsilon is 1, or beta so large that every spin is certain"
        raise ValueError(f"no network of {smallest_size} neurons differs from the mean field: {cause}")
    rms_error = np.std(squares, axis=1, ddof=1) / np.sqrt(samples) / (2 * rms)
    # Predict the smallest size, and scale the others: squared deviations are inversely proportional to the size.
    predicted, shrink = fluctuations(smallest, parameters, start, steps=steps), np.sqrt(weights.neurons / sizes)
    of_step = np.sqrt(np.mean(np.asarray(predicted.attention_deviation[1:]) ** 2, axis=1))
    settings = {name: float(getattr(parameters, name)) for name in ("beta", "gamma", "epsilon")}
    return xr.Dataset(
        {
            "rms": ("neurons", rms),
            "rms_error": ("neurons", rms_error),
            "rms_of_step": (("neurons", "step"), np.sqrt(np.mean(values**2, axis=(1, 3)))),
            "bias": (("neurons", "step", "pattern"), np.mean(values, axis=1)),
            "bias_error": (("neurons", "step", "pattern"), np.std(values, axis=1, ddof=1) / np.sqrt(samples)),
            "mean_field": (("step", "pattern"), limit),
            **power_law(sizes, rms, rms_error),
            "predicted": ("neurons", float(predicted.rms) * shrink),
            "predicted_of_step": (("neurons", "step"), of_step * shrink[:, None]),
        },
        coords={"neurons": sizes, "step": np.arange(1, 1 + len(limit))},
        attrs={**settings, "context": context, "samples": samples},
    )


def power_law(sizes: np.ndarray, values: np.ndarray, errors: np.ndarray) -> dict[str, float]:
    """Fit the `slope` of log values against log sizes by weighted least squares, with its error and `chi_square`.

    If `chi_square` per degree of freedom is above 1, its root multiplies the error. It is 0 for two sizes.
    """
    abscissa, ordinate, weights = np.log(sizes), np.log(values), values / errors
    line, covariance = np.polyfit(abscissa, ordinate, 1, w=weights, cov="unscaled")
    residuals = weights * (ordinate - np.polyval(line, abscissa))
    chi_square = np.sum(residuals**2) / (len(sizes) - 2) if len(sizes) > 2 else 0.0
    slope, slope_error = line[0], np.sqrt(max(1.0, chi_square) * covariance[0, 0])
    return {"slope": float(slope), "slope_error": float(slope_error), "chi_square": float(chi_square)}
