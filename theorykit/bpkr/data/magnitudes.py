"""Numbers whose products double precision cannot hold: refused by the name of what is extreme."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Array, Float

from ...checks import Requirement, array_module, on_host
from ..specification.architecture import Architecture

# largest powers of ten: squares of order parameters and labels, and their products, stay within double precision
_ORDER_PARAMETERS, _LABELS, _MISFIT, _TEMPERATURE = 200.0, 75.0, 150.0, 300.0


def moderate_magnitudes(
    architecture: Architecture, labels: Float[np.ndarray | Array, "examples *outputs"]
) -> Iterator[Requirement]:
    """That prior variances, the temperature and labels are such as the action can be computed with."""
    variances = [on_host(variance) for variance in architecture.prior_variances]
    numbers = array_module(variances)
    exponents = [numbers.log10(variance) for variance in reversed(variances)]
    # of the order parameters of every layer, from the readout
    of_order_parameters = numbers.cumsum(numbers.stack(exponents))
    advice = "beyond what double precision can square; rescale the variances, or the features"

    def told() -> str:
        written = ", ".join(f"{float(each):.3g}" for each in variances)
        largest = of_order_parameters[np.argmax(np.abs(of_order_parameters) > _ORDER_PARAMETERS)]
        return f"prior_variances ({written}) make order parameters of about 1e{largest:+.0f}, {advice}"

    are_moderate = abs(of_order_parameters) <= _ORDER_PARAMETERS
    yield Requirement(f"prior_variances make order parameters {advice}", are_moderate, told)
    yield from _of_labels(architecture.temperature, labels)


def _of_labels(temperature, labels) -> Iterator[Requirement]:
    temperature, labels = on_host(temperature), on_host(labels)
    beyond = "beyond what double precision can compute with"
    yield Requirement(
        f"temperature is {beyond}",
        temperature <= 10**_TEMPERATURE,
        lambda: f"temperature={float(temperature):.3g} is {beyond}",
    )
    numbers = array_module(temperature, labels)
    tiny = np.finfo(np.float64).tiny
    largest = numbers.max(numbers.abs(labels))
    of_labels = numbers.log10(numbers.maximum(largest, tiny))
    # without a temperature, that of a temperature of one
    misfit = 2 * of_labels - numbers.where(temperature > 0, numbers.log10(numbers.maximum(temperature, tiny)), 0.0)
    advice = "beyond what double precision can square; rescale the labels"
    yield Requirement(
        f"labels and temperature make a misfit {advice}",
        (largest == 0) | ((of_labels <= _LABELS) & (misfit <= _MISFIT)),
        lambda: (
            f"labels of magnitude {largest:.3g} at temperature={float(temperature):.3g} make a misfit of about "
            f"1e{misfit:+.0f}, {advice}"
        ),
    )
