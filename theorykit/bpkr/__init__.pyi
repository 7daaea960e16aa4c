from .action.action import Action, render_html, render_latex, render_markdown
from .action.derivation import derive
from .data.classes import Classes, LabelsWarning, find_classes, score_classes, sign_accuracy
from .data.data import Data
from .data.moments import Moments
from .evaluation.action_terms import evaluate, optimal_readout, parameter_values
from .evaluation.formulas import CompiledAction, compile_action, generate_source
from .evaluation.observables import head_scores, kernel_task_alignment
from .evaluation.prediction import Prediction, kernel, path_kernels, predict
from .evaluation.problem import Problem
from .features.from_kernels import features_of_kernels
from .model import Model
from .network.attention import Heads, attention, heads
from .network.network import Network, empirical_order_parameters, path_weights, sample_network
from .network.paths import AttentionWarning, Readout, path_features
from .network.pruning import Head, rank_heads, removable_heads, without_heads
from .order_parameters.finite_width_law import FiniteWidthLaw, finite_width_law
from .order_parameters.order_parameters import OrderParameters, gp_limit
from .saddle.gaussian_fluctuations import Fluctuations, first_order, fluctuations
from .saddle.head_costs import HeadCosts, head_costs
from .saddle.solve import ConvergenceWarning, Saddle, gradient_norm, search, solve
from .saddle.solvers import AcceleratedSweeps, Newton
from .specification.architecture import Architecture
from .specification.layers import AbstractLayer, Attention, Dense, LayerSymbols, Skip

__all__ = [
    "AbstractLayer",
    "AcceleratedSweeps",
    "Action",
    "Architecture",
    "Attention",
    "AttentionWarning",
    "Classes",
    "CompiledAction",
    "ConvergenceWarning",
    "Data",
    "Dense",
    "FiniteWidthLaw",
    "Fluctuations",
    "Head",
    "HeadCosts",
    "Heads",
    "LabelsWarning",
    "LayerSymbols",
    "Model",
    "Moments",
    "Network",
    "Newton",
    "OrderParameters",
    "Prediction",
    "Problem",
    "Readout",
    "Saddle",
    "Skip",
    "attention",
    "compile_action",
    "derive",
    "empirical_order_parameters",
    "evaluate",
    "features_of_kernels",
    "find_classes",
    "finite_width_law",
    "first_order",
    "fluctuations",
    "generate_source",
    "gp_limit",
    "gradient_norm",
    "head_costs",
    "head_scores",
    "heads",
    "kernel",
    "kernel_task_alignment",
    "optimal_readout",
    "parameter_values",
    "path_features",
    "path_kernels",
    "path_weights",
    "predict",
    "rank_heads",
    "removable_heads",
    "render_html",
    "render_latex",
    "render_markdown",
    "sample_network",
    "score_classes",
    "search",
    "sign_accuracy",
    "solve",
    "without_heads",
]
