from . import empirical_risk, in_context, learned_attention, nested_kernels, units_with_mean
from .bivariate_normal import log_bivariate_normal_cdf
from .spectral_laws import marchenko_pastur, semicircle

__all__ = [
    "empirical_risk",
    "in_context",
    "learned_attention",
    "log_bivariate_normal_cdf",
    "marchenko_pastur",
    "nested_kernels",
    "semicircle",
    "units_with_mean",
]
