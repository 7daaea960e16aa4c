"""An action against a function of the user's own in NumPy.

They may differ by a constant, of the parameters alone: what is compared are differences between points.
"""

from collections.abc import Sequence

import numpy as np

from ..report import Finding, Passed, Result
from .hypotheses import explanations
from .points import ActionPoint
from .samples import CLAIM, Reference, draw_samples


def check_reference(groups: Sequence[Sequence[ActionPoint]], reference: Reference) -> Result:
    """The action at random points against the reference there; a finding says by which mistake they would differ."""
    samples = draw_samples(groups, reference)
    if isinstance(samples, Finding):
        return samples
    error = float(np.max(np.abs(samples.misfit)) / samples.scale)
    if samples.vanishes(samples.misfit):
        return Passed(CLAIM, f"to {error:.1g} of its size at {len(samples.points)} points")
    unexplained = Finding(
        CLAIM,
        f"they differ by up to {error:.3g} of their size, and by no single sign, factor, transpose or term",
        "more than one mistake, or a function of the order parameters that is another: compare term by term",
    )
    return next(explanations(samples), unexplained)
