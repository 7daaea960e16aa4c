"""How networks of finitely many neurons tend to the mean field as they grow."""

from collections.abc import Sequence

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float, PRNGKeyArray, Real

from ...checks import checked_key, checked_sequence, checked_whole_number
from ...settings import usual_settings
from ..map import trajectory
from ..map.self_attention import Parameters, State, check_network, checked_fit, self_attention_limit
from ..weights.weights import Weights
from .finite_network import class_sum_network, run
from .linear_noise import Fluctuations, fluctuations

# of attentions, which are of order one
_ROUNDING = 1e-13


@usual_settings()
def convergence(
    weights: Weights,
    context: int,
    parameters: Parameters,
    start: State,
    *,
    repeats: Sequence[int],
    samples: int,
    steps: int = 60,
    key: PRNGKeyArray,
) -> xr.Dataset:
    """The distance between the attention of networks and of the mean field over the first `steps` tokens.

    Networks are of the neurons of `weights`, each as many times as `repeats` says, `samples` independent runs of every
    size; the law of the weights is the same at all sizes. All begin with `start`, a state of
    `self_attention_limit(weights, context)`, such as `token_start` or `window_start` makes of a prompt.

    - `rms` (neurons): root mean square over samples, steps and patterns; `rms_error`, its standard error over samples.
    - `rms_of_step` (neurons, step): the same at one step, so that it is seen whether the distance grows.
    - `predicted` (neurons), `predicted_of_step` (neurons, step): the same two by `network.fluctuations`, to first order
      in 1/N; no sample is drawn for them.
    - `bias` (neurons, step, pattern): of the mean over samples; `bias_error`, its standard error.
    - `slope`, `slope_error`, `chi_square`: of log rms against log neurons, as in `power_law`; -1/2 as long as noise is
      small after the dynamics have amplified it.
    - `mean_field` (step, pattern): the attention of infinitely many neurons.

    Raises `TypeError` or `ValueError` for fewer than two sizes or samples, for parameters that are not single numbers,
    for a start that is not one of these weights and context, and where no network differs from the mean
    field.
    """
    model = self_attention_limit(weights, context)
    check_network(model, parameters)
    _check_study(parameters, repeats, samples, steps, key)
    start = checked_fit("start", start, State, model, parameters)
    limit = np.asarray(trajectory.run(model, parameters, start, steps=steps).attention[1:])
    differences = {}
    for factor, size_key in zip(repeats, jax.random.split(key, len(repeats)), strict=True):
        sized = class_sum_network(weights, context, factor)
        path = run(sized, parameters, start, steps=steps, samples=samples, key=size_key)
        differences[factor * weights.neurons] = np.moveaxis(np.asarray(path.attention[1:]), 2, 0) - limit
    settings = {name: float(getattr(parameters, name)) for name in ("beta", "gamma", "epsilon")}
    predicted = fluctuations(class_sum_network(weights, context), parameters, start, steps=steps)
    attributes = {**settings, "context": context, "samples": samples}
    return _summary(differences, limit).assign(_predictions(predicted, list(differences))).assign_attrs(attributes)


def _check_study(parameters: Parameters, repeats: Sequence[int], samples: int, steps: int, key: PRNGKeyArray) -> None:
    for repeat in checked_sequence("repeats", repeats, "whole numbers"):
        checked_whole_number("repeats", repeat, least=1)
    checked_whole_number("samples", samples)
    checked_whole_number("steps", steps, least=1)
    checked_key("key", key)
    if parameters.batch_shape != ():
        raise ValueError(f"a study is at one beta, gamma and epsilon, got parameters of shape {parameters.batch_shape}")
    if len(set(repeats)) < len(repeats) or len(repeats) < 2:
        raise ValueError(f"a slope needs two different sizes at least, got repeats {tuple(repeats)}")
    if samples < 2:
        raise ValueError(f"error bars need two samples at least, got {samples}")


def _predictions(
    predicted: Fluctuations, sizes: Sequence[int]
) -> dict[str, tuple[tuple[str, ...], Float[np.ndarray, "*_"]]]:
    """Predicted distances of networks of other sizes than those of `predicted`, whose square is inverse to the size."""
    shrink = np.sqrt(float(predicted.neurons) / np.array(sizes))
    of_step = np.sqrt(np.mean(np.asarray(predicted.attention_deviation[1:]) ** 2, axis=1))
    return {
        "predicted": (("neurons",), float(predicted.rms) * shrink),
        "predicted_of_step": (("neurons", "step"), of_step * shrink[:, None]),
    }


def _summary(
    differences: dict[int, Float[np.ndarray, "samples step pattern"]], limit: Float[np.ndarray, "step pattern"]
) -> xr.Dataset:
    sizes, values = np.array(list(differences)), np.stack(list(differences.values()))
    samples = values.shape[1]
    squares = np.mean(values**2, axis=(2, 3))
    rms = np.sqrt(np.mean(squares, axis=1))
    if np.any(rms <= _ROUNDING):
        raise ValueError(
            f"no network of {sizes[np.argmin(rms)]} neurons differs from the mean field: nothing is left to chance "
            "where epsilon is 1, or where beta is so large that every spin is certain"
        )
    rms_error = np.std(squares, axis=1, ddof=1) / np.sqrt(samples) / (2 * rms)
    return xr.Dataset(
        {
            "rms": ("neurons", rms),
            "rms_error": ("neurons", rms_error),
            "rms_of_step": (("neurons", "step"), np.sqrt(np.mean(values**2, axis=(1, 3)))),
            "bias": (("neurons", "step", "pattern"), np.mean(values, axis=1)),
            "bias_error": (("neurons", "step", "pattern"), np.std(values, axis=1, ddof=1) / np.sqrt(samples)),
            "mean_field": (("step", "pattern"), limit),
            **power_law(sizes, rms, rms_error),
        },
        coords={"neurons": sizes, "step": np.arange(1, 1 + len(limit))},
    )


def power_law(
    sizes: Real[np.ndarray, " sizes"], values: Float[np.ndarray, " sizes"], errors: Float[np.ndarray, " sizes"]
) -> dict[str, float]:
    """The power of `sizes` that `values`, with standard errors `errors`, grow as.

    - `slope`: of log values against log sizes, by weighted least squares.
    - `chi_square`: per degree of freedom; far above 1 where values are no power, and 0 of any two sizes.
    - `slope_error`: its standard error, widened by the square root of `chi_square` where that is above 1.
    """
    abscissa, ordinate, weights = np.log(sizes), np.log(values), values / errors
    line, covariance = np.polyfit(abscissa, ordinate, 1, w=weights, cov="unscaled")
    residuals = weights * (ordinate - np.polyval(line, abscissa))
    chi_square = np.sum(residuals**2) / (len(sizes) - 2) if len(sizes) > 2 else 0.0
    slope, slope_error = line[0], np.sqrt(max(1.0, chi_square) * covariance[0, 0])
    return {"slope": float(slope), "slope_error": float(slope_error), "chi_square": float(chi_square)}
