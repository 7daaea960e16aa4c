"""Numbers whose products double precision cannot hold: refused by the name of what is extreme."""

import math

import numpy as np
from jaxtyping import Float

from ..specification.architecture import Architecture

# largest powers of ten: squares of order parameters and labels, and their products, stay within double precision
_ORDER_PARAMETERS, _LABELS, _MISFIT, _TEMPERATURE = 200.0, 75.0, 150.0, 300.0


def check_magnitudes(architecture: Architecture, labels: Float[np.ndarray, "examples *outputs"]) -> None:
    """Raise `ValueError` for prior variances, a temperature or labels beyond what the action can be computed with."""
    exponent = 0.0
    for variance in reversed(architecture.prior_variances):
        exponent += math.log10(float(variance))
        if abs(exponent) > _ORDER_PARAMETERS:
            variances = ", ".join(f"{float(each):.3g}" for each in architecture.prior_variances)
            raise ValueError(
                f"prior_variances ({variances}) make order parameters of about 1e{exponent:+.0f}, beyond what double "
                "precision can square; rescale the variances, or the features"
            )
    temperature, largest = float(architecture.temperature), float(np.max(np.abs(labels)))
    if temperature > 10**_TEMPERATURE:
        raise ValueError(f"temperature={temperature:.3g} is beyond what double precision can compute with")
    if largest == 0.0:
        return
    misfit = 2 * math.log10(largest) - (math.log10(temperature) if temperature else 0.0)
    if math.log10(largest) > _LABELS or misfit > _MISFIT:
        raise ValueError(
            f"labels of magnitude {largest:.3g} at temperature={temperature:.3g} make a misfit of about "
            f"1e{misfit:+.0f}, beyond what double precision can square; rescale the labels"
        )
