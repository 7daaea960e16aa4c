from . import strategies
from .actions.check import check_action
from .actions.points import ActionPoint, random_action_point
from .layers.check import check_layer
from .problems import Problem, random_heads, random_inputs, random_order_parameters, random_problem, symbol_values
from .report import Finding, Report

__all__ = [
    "ActionPoint",
    "Finding",
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
