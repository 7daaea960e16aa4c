from . import strategies
from .actions.check import ActionReport, check_action
from .layers.check import CHECKS, LayerReport, check_layer
from .problems import Problem, random_heads, random_inputs, random_order_parameters, random_problem, symbol_values
from .report import Finding, Passed, Report

__all__ = [
    "CHECKS",
    "ActionReport",
    "Finding",
    "LayerReport",
    "Passed",
    "Problem",
    "Report",
    "check_action",
    "check_layer",
    "random_heads",
    "random_inputs",
    "random_order_parameters",
    "random_problem",
    "strategies",
    "symbol_values",
]
