"""What results for nonlinear hidden units say of the ansatz that they rest on."""

from ...checks import is_traced
from .architecture import Architecture

# labels per width, below which the terms that the ansatz drops are as large as those that it keeps
_FEW = 0.2


def ansatz_of(architecture: Architecture, labels: int) -> str:
    """The ansatz of a result from so many labels, and whether they are enough for it; empty where there is none.

    Of traced widths the latter is not known.
    """
    if architecture.is_linear:
        return ""
    functions = ", ".join(activation.name for activation in architecture.activations)
    said = (
        f"Gaussian equivalence: hidden units after {functions} are replaced by linear ones of the same covariance, "
        "which is good for labels in proportion to the widths"
    )
    if is_traced(architecture.widths):
        return said
    widest = max(map(float, architecture.widths))
    if labels >= _FEW * widest:
        return said
    return (
        f"{said}; here {labels} labels are few beside {widest:.6g} hidden units, and the ansatz drops terms of the "
        "order of those that it keeps: the infinitely wide network, bpkr.gp_limit, is as good"
    )
