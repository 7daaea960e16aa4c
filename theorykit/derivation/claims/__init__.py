"""What a step of a derivation claims, and how to check it on numbers: by quadrature, differences, or evaluation.

Each claim is checked from the two expressions alone, in NumPy, and shares no algorithm with the rule that made the
step. Actions are written as S where the integrand is exp(-S/2), so sums of S are products of integrands.
"""

from .claim import Claim
from .equivalence import SameMoments
from .identities import Equal, EqualUpToConstant, LeadingOrder, SumOverRows
from .integrals import AverageIs, GaussianAverage, GaussianDensity, GramVolume, OrderParameterInserted, SourceDerivative
from .neurons import NeuronsGathered, SpinCovariance, SpinSum
from .responses import Gradient, Response
from .saddles import Constrained, MatrixDerivative, Solves, SolvesToFirstOrder, Stationary

__all__ = [
    "AverageIs",
    "Claim",
    "Constrained",
    "Equal",
    "EqualUpToConstant",
    "GaussianAverage",
    "GaussianDensity",
    "Gradient",
    "GramVolume",
    "LeadingOrder",
    "MatrixDerivative",
    "NeuronsGathered",
    "OrderParameterInserted",
    "Response",
    "SameMoments",
    "Solves",
    "SolvesToFirstOrder",
    "SourceDerivative",
    "SpinCovariance",
    "SpinSum",
    "Stationary",
    "SumOverRows",
]
