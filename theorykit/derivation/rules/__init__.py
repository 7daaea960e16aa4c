"""The rules of integration: each takes an expression apart, computes what follows, and returns the step.

Expressions are actions S, the integrand being exp(-S/2). A rule finds in `before` what it applies to, by pattern, and
raises `RuleError` where it does not find it. What a rule claims is checked elsewhere, on numbers.
"""

from .identities import (
    abbreviate,
    determinant_lemma,
    drop_constants,
    gather_blocks,
    invert_update,
    join_branches,
    leading_order,
    name,
    push_through,
    reduce_traces,
    rescale,
    same_form,
    unstack,
    vectorise,
    woodbury,
    write_as_number,
    write_out,
)
from .integrals import (
    gaussian_average,
    gaussian_density,
    gram_volume,
    linearise_form,
    linearise_square,
    source_derivative,
    split_into_rows,
    sum_over_rows,
)
from .neurons import gather_classes, insert_overlap, name_sum, sum_over_spins
from .responses import response, set_to_zero, slope, solve
from .saddles import constrain, derivative, eliminate, insert_order_parameter, linear_response, riccati, solve_for
from .terms import RuleError, bilinear_matrix, inner_matrix, inner_of_form, terms_with, terms_without

__all__ = [
    "RuleError",
    "abbreviate",
    "bilinear_matrix",
    "constrain",
    "derivative",
    "determinant_lemma",
    "drop_constants",
    "eliminate",
    "gather_blocks",
    "gather_classes",
    "gaussian_average",
    "gaussian_density",
    "gram_volume",
    "inner_matrix",
    "inner_of_form",
    "insert_order_parameter",
    "insert_overlap",
    "invert_update",
    "join_branches",
    "leading_order",
    "linear_response",
    "linearise_form",
    "linearise_square",
    "name",
    "name_sum",
    "push_through",
    "reduce_traces",
    "rescale",
    "response",
    "riccati",
    "same_form",
    "set_to_zero",
    "slope",
    "solve",
    "solve_for",
    "source_derivative",
    "split_into_rows",
    "sum_over_rows",
    "sum_over_spins",
    "terms_with",
    "terms_without",
    "unstack",
    "vectorise",
    "woodbury",
    "write_as_number",
    "write_out",
]
