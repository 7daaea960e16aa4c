"""Networks of finitely many neurons: samples of them, their fluctuations to order 1/N, and convergence to the map.

Networks differ from the mean field only in the overlaps of a new token. Either a spin is drawn for every neuron, or a
sum of spins for every class of neurons with equal weights. The sum has a binomial law, which is exact, and its cost
does not depend on the number of neurons.

Given the previous attention, the spins of a token are independent. So its overlaps, which are sums over neurons, have
the mean of the map and the covariance Q / N of `MeanField.noise`. To leading order in 1/N, as in van Kampen's expansion
in the size of a system, each token changes the covariance of the network's memory from Sigma to
J Sigma J^T + H Q H^T / N. J is the derivative of the map along its orbit, and H the derivative of the state by the
overlaps of that token. Only spins are random. Redrawing the weights would change the column law by N^(-1/2) too.
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
from ..symbolic.documents.sketches import brief
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

# Rounding error of attentions, which are of order one.
_ROUNDING = 1e-13


class FiniteNetwork(DisplayMixin, eqx.Module):
    """Neurons, or classes of neurons, with their weights, `signs`, and the fraction of neurons that each represents.

    `limit` is the mean field that the network tends to if its neurons are repeated. `counts` are the numbers of neurons
    in classes whose spins are only drawn as sums. None means that each neuron has a spin.
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

    def _token(
        self, parameters: Parameters, state: State, key: PRNGKeyArray
    ) -> tuple[Float[Array, "families patterns *batch"], Float[Array, "neurons *batch"]]:
        """Return overlaps m^o, m^v, m^q and m^k of the token after `state`, and its spins or mean spins by class."""
        signs = self.signs.astype(float)
        fields = parameters.beta * jnp.einsum("nm,m...->n...", signs[:, OUTPUT], jnp.stack(state.attention))
        up = jax.nn.sigmoid(2 * fields)
        if self.counts is None:
            spins = jnp.where(jax.random.bernoulli(key, up), 1.0, -1.0)  # Eq. (4)
        else:
            counts = self.counts.reshape(-1, *(1 for _ in fields.shape[1:]))
            spins = 2 * jax.random.binomial(key, counts, up) / counts - 1  # Eq. (4), one class at once
        semantic = jnp.einsum("nfm,n,n...->fm...", signs, self.shares, spins)
        positional = self.limit.positional[state.position].reshape(semantic.shape[:2] + (1,) * (spins.ndim - 1))
        return (1 - parameters.epsilon) * semantic + parameters.epsilon * positional, spins  # Eq. (1)


@checked_arguments
def spin_network(weights: Weights, context: int) -> FiniteNetwork:
    """Return the network of the neurons of `weights`, spin by spin. Time and memory are proportional to N."""
    limit, shares = self_attention_limit(weights, context), np.full(weights.neurons, 1 / weights.neurons)
    return FiniteNetwork(jnp.asarray(np.moveaxis(weights.semantic, 2, 0)), jnp.asarray(shares), limit, None)


@checked_arguments
def class_sum_network(weights: Weights, context: int, repeats: Count = 1) -> FiniteNetwork:
    """Return the network with every neuron of `weights` `repeats` times. It is exact, at a cost independent of N.

    Its `limit` is the mean field, and `neurons` is N.
    """
    limit, (signs, counts) = self_attention_limit(weights, context), distinct_columns(weights)
    shares, counts = jnp.asarray(counts / weights.neurons), jnp.asarray(repeats * counts, dtype=float)
    return FiniteNetwork(jnp.asarray(signs), shares, limit, counts)


class SampledTrajectory(DisplayMixin, eqx.Module):
    """Result of `run`."""

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
        yield attention_curves(self.attention)
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
    """Run `steps` tokens after `start`, in each of `samples` independent networks. All batch members draw separately.

    `start` is a state of `network.limit`, in either convention.

    Returns:
        `attention` `(steps + 1, patterns, samples, *batch)`, with the start first; `overlaps` `(steps, families,
        patterns, samples, *batch)` of every token; `end`, the state to resume from; `spins` `(steps, neurons, samples,
        *batch)`, or mean spins if classes are drawn, None unless they are kept.
    """
    if steps < 1 or samples < 1:
        raise ValueError(f"a run has a step and a sample at least, got {steps} steps and {samples} samples")
    start = fitting("start", start, network.limit, parameters)
    return _run(network, parameters, start, steps, samples, key, keep_spins)


@eqx.filter_jit
def _run(network, parameters, start, steps, samples, key, keep_spins):
    def token(state: State, key: PRNGKeyArray):
        overlaps, spins = network._token(parameters, state, key)
        state = store(state, tuple(overlaps[KEY]), tuple(overlaps[VALUE]))
        state = attend(parameters, state, tuple(overlaps[QUERY]))
        return state, (jnp.stack(state.attention), overlaps, spins if keep_spins else None)

    start = broadcast_to_parameters(parameters, start)
    start = map_batch(start, lambda entry, axis: jnp.repeat(jnp.expand_dims(entry, axis), samples, axis))
    end, (attention, overlaps, spins) = jax.lax.scan(token, start, jax.random.split(key, steps))
    return SampledTrajectory(jnp.concatenate([jnp.stack(start.attention)[None], attention]), overlaps, end, spins)


class Fluctuations(DisplayMixin, eqx.Module):
    """Result of `fluctuations`."""

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
        yield attention_curves(self.attention_deviation, "standard deviation of the attention")

    @property
    def attention_deviation(self) -> Float[Array, "times patterns *batch"]:
        """Standard deviation of each attention."""
        # Variances below zero are rounding.
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
    """Compute covariances of the first `steps` tokens after `start`, over independent networks, which `run` samples.

    All networks begin with `start`, a state of `network.limit` in either convention. The result is of first order in
    1/N: the noise must stay small after the map has amplified it. This holds for any number of tokens on a stable cycle
    if N is large enough, and for about log N / (2 lambda) tokens if the largest Lyapunov exponent lambda is positive.
    After that, covariances grow beyond the overlaps' range and are meaningless. Beyond double precision they are
    infinite.

    Returns:
        `mean` `(steps + 1, patterns, *batch)`, the attention of the map, with the start first; `attention` `(steps + 1,
        patterns, patterns, *batch)`, its covariance; `overlaps` `(steps, families, patterns, families, patterns,
        *batch)`, the covariance of m^o, m^v, m^q and m^k of every token; `neurons`, N; standard deviations
        `attention_deviation` and `overlap_deviation`; and `rms`, over the tokens after the start and patterns.

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

    def remembered(state: State) -> Array:
        return jnp.concatenate([jnp.stack(state.attention), *state.keys, *state.values])

    def token(at, _):
        state, covariance, bounded = at

        def following(numbers: Array, difference: Array) -> tuple[Array, Array]:
            """Return the memory after a token, and its overlaps, which differ from the map's by `difference`."""
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

        # Sigma of the memory and Q / N of the overlaps are independent: one block each.
        noise = _noise(network, parameters, state) / network.neurons
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


def _noise(network: FiniteNetwork, parameters: Parameters, state: State) -> Array:
    """Return N times the covariance of the overlaps of the token after `state`, given that state; Eq. (9)."""
    batch = state.batch_shape
    signs = network.signs.astype(float).reshape(*network.signs.shape, *(1 for _ in batch))
    shares = network.shares.reshape(-1, *(1 for _ in batch))
    columns = [signs[:, family, pattern] for family in range(len(FAMILIES)) for pattern in range(state.patterns)]
    found = compiled("noise")(
        Omega=long_matrix(columns[OUTPUT * state.patterns :][: state.patterns]),
        X=long_matrix(columns),
        Xbar=long_matrix([shares * each for each in columns]),
        A=column(state.attention),
        beta=parameters.beta,
        epsilon=parameters.epsilon,
    )["Q"]
    return jnp.stack([jnp.stack([jnp.broadcast_to(entry, batch) for entry in row]) for row in found.grid])


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
    """Measure the distance between the attention of networks and of the mean field over the first `steps` tokens.

    Each size repeats the neurons of `weights` by one of `repeats`, with `samples` independent runs. All runs begin with
    `start`, a state of `self_attention_limit(weights, context)`. The result is a dataset:

    - `rms` (neurons): root mean square over samples, steps and patterns; `rms_error`, its standard error over samples.
    - `rms_of_step` (neurons, step): the same at one step, which shows whether the distance grows.
    - `predicted` (neurons), `predicted_of_step` (neurons, step): predictions of these two by `network.fluctuations`, to
      first order in 1/N and without samples.
    - `bias` (neurons, step, pattern): of the mean over samples; `bias_error`, its standard error.
    - `slope`, `slope_error`, `chi_square`: of log rms against log neurons. The slope is -1/2 while noise stays small
      under the dynamics. The error is widened by the root of chi_square per degree of freedom, if above 1.
    - `mean_field` (step, pattern): the attention of infinitely many neurons.
    """
    require_float64()
    if parameters.batch_shape != ():
        raise ValueError(f"a study is at one beta, gamma and epsilon, got parameters of shape {parameters.batch_shape}")
    if len(set(repeats)) < len(repeats) or len(repeats) < 2:
        raise ValueError(f"a slope needs two different sizes at least, got repeats {tuple(repeats)}")
    if samples < 2:
        raise ValueError(f"error bars need two samples at least, got {samples}")
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
    # Squares of deviations are inversely proportional to the size.
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

    `chi_square`, per degree of freedom, widens the error if it is above 1. It is 0 for any two sizes.
    """
    abscissa, ordinate, weights = np.log(sizes), np.log(values), values / errors
    line, covariance = np.polyfit(abscissa, ordinate, 1, w=weights, cov="unscaled")
    residuals = weights * (ordinate - np.polyval(line, abscissa))
    chi_square = np.sum(residuals**2) / (len(sizes) - 2) if len(sizes) > 2 else 0.0
    slope, slope_error = line[0], np.sqrt(max(1.0, chi_square) * covariance[0, 0])
    return {"slope": float(slope), "slope_error": float(slope_error), "chi_square": float(chi_square)}
