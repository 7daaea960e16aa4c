from .action.action import Action
from .action.derivation import derive
from .data.classes import Classes, LabelsWarning
from .data.data import Data
from .evaluation.formulas import generate_source
from .evaluation.problem import Problem
from .evaluation.values import (
    Prediction,
    evaluate,
    head_scores,
    kernel,
    kernel_task_alignment,
    parameter_values,
    predict,
)
from .model import Model
from .network.network import (
    Head,
    Heads,
    Network,
    attention,
    empirical_order_parameters,
    path_features,
    removable_heads,
    sample_network,
)
from .order_parameters import OrderParameters, finite_width_law, gp_limit
from .saddle.gaussian_fluctuations import first_order, fluctuations
from .saddle.head_costs import head_costs
from .saddle.solve import Saddle, solve
from .saddle.solvers import AcceleratedSweeps, Newton
from .specification.architecture import Architecture
from .specification.layers import AbstractLayer, Attention, Dense, Skip

__all__ = [
    "AbstractLayer",
    "AcceleratedSweeps",
    "Action",
    "Architecture",
    "Attention",
    "Classes",
    "Data",
    "Dense",
    "Head",
    "Heads",
    "LabelsWarning",
    "Model",
    "Network",
    "Newton",
    "OrderParameters",
    "Prediction",
    "Problem",
    "Saddle",
    "Skip",
    "attention",
    "derive",
    "empirical_order_parameters",
    "evaluate",
    "finite_width_law",
    "first_order",
    "fluctuations",
    "generate_source",
    "gp_limit",
    "head_costs",
    "head_scores",
    "kernel",
    "kernel_task_alignment",
    "parameter_values",
    "path_features",
    "predict",
    "removable_heads",
    "sample_network",
    "solve",
]
