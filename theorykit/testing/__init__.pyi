from . import strategies
from .layers.check import CHECKS, LayerReport, check_layer
from .problems import Problem, random_heads, random_inputs, random_order_parameters, random_problem, symbol_values
from .report import Finding, Passed, Report

__all__ = [
    "CHECKS",
    "Finding",
    "LayerReport",
    "Passed",
    "Problem",
    "Report",
    "check_layer",
    "random_heads",
    "random_inputs",
    "random_order_parameters",
    "random_problem",
    "strategies",
    "symbol_values",
]
