from . import strategies
from .actions.check import ActionReport, check_action
from .actions.points import ActionPoint, random_action_point
from .layers.check import CHECKS, LayerReport, check_layer
from .problems import Problem, random_heads, random_inputs, random_order_parameters, random_problem, symbol_values
from .report import Finding, Passed, Report

__all__ = [
    "CHECKS",
    "ActionPoint",
    "ActionReport",
    "Finding",
    "LayerReport",
    "Passed",
    "Problem",
    "Report",
    "check_action",
    "check_layer",
    "random_action_point",
    "random_heads",
    "random_inputs",
    "random_order_parameters",
    "random_problem",
    "strategies",
    "symbol_values",
]
