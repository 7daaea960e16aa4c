from .action.action import Action, Predictor
from .action.derivation import derive
from .action.document import render_latex, render_markdown
from .action.dual_form import DualForm
from .action.expansion import FirstOrder
from .action.finite_width_prior import FiniteWidthPrior
from .action.kept import load_action, save_action
from .data.accuracy import sign_accuracy
from .data.classes import Classes, ClassScores, LabelsWarning, find_classes, score_classes
from .data.data import Data, data_of_classes
from .data.statistics import FeatureStatistics, statistics_on_devices
from .data.streaming import statistics_of_arrays, statistics_of_batches, statistics_of_files
from .evaluation.action_terms import ActionTerms, evaluate, first_order, optimal_readout, parameter_values
from .evaluation.compiled_action import CompiledAction, compile_action, generate_source
from .evaluation.observables import KernelTaskAlignment, head_scores, kernel_task_alignment
from .evaluation.prediction import Prediction, kernel, path_kernels, predict, predict_from_statistics
from .features.from_kernels import features_of_kernels
from .matrix_free.estimate import EnergyEstimate, MatrixFreeOptions, MatrixFreeWarning, Slopes, estimate_energy
from .matrix_free.saddle import MatrixFreeSaddle, solve_matrix_free
from .network.attention_heads import AbstractHeads, KeyQueryHeads, ProjectionHeads, attention, heads
from .network.masks import Isolated, Layout, Mask
from .network.network import (
    Network,
    empirical_order_parameters,
    network_of_weights,
    path_outputs,
    path_weights,
    sample_network,
    sum_over_paths,
)
from .network.paths import AttentionWarning, Readout, path_features
from .network.pruning import Head, parameter_count, rank_heads, removable_heads, without_heads
from .order_parameters.finite_width_law import FiniteWidthLaw, law_of
from .order_parameters.order_parameters import OrderParameters, gp_limit
from .saddle.gaussian_fluctuations import Fluctuations, fluctuations
from .saddle.minima import ConvergenceWarning, Minima, search_minima
from .saddle.saddle import AcceleratedSweeps, Newton, Saddle, gradient_norm, solve, solve_from_statistics
from .specification.architecture import Architecture
from .specification.layers import AbstractLayer, Attention, Dense, LayerSymbols, Skip

__all__ = [
    "AbstractHeads",
    "AbstractLayer",
    "AcceleratedSweeps",
    "Action",
    "ActionTerms",
    "Architecture",
    "Attention",
    "AttentionWarning",
    "ClassScores",
    "Classes",
    "CompiledAction",
    "ConvergenceWarning",
    "Data",
    "Dense",
    "DualForm",
    "EnergyEstimate",
    "FeatureStatistics",
    "FiniteWidthLaw",
    "FiniteWidthPrior",
    "FirstOrder",
    "Fluctuations",
    "Head",
    "Isolated",
    "KernelTaskAlignment",
    "KeyQueryHeads",
    "LabelsWarning",
    "LayerSymbols",
    "Layout",
    "Mask",
    "MatrixFreeOptions",
    "MatrixFreeSaddle",
    "MatrixFreeWarning",
    "Minima",
    "Network",
    "Newton",
    "OrderParameters",
    "Prediction",
    "Predictor",
    "ProjectionHeads",
    "Readout",
    "Saddle",
    "Skip",
    "Slopes",
    "attention",
    "compile_action",
    "data_of_classes",
    "derive",
    "empirical_order_parameters",
    "estimate_energy",
    "evaluate",
    "features_of_kernels",
    "find_classes",
    "first_order",
    "fluctuations",
    "generate_source",
    "gp_limit",
    "gradient_norm",
    "head_scores",
    "heads",
    "kernel",
    "kernel_task_alignment",
    "law_of",
    "load_action",
    "network_of_weights",
    "optimal_readout",
    "parameter_count",
    "parameter_values",
    "path_features",
    "path_kernels",
    "path_outputs",
    "path_weights",
    "predict",
    "predict_from_statistics",
    "rank_heads",
    "removable_heads",
    "render_latex",
    "render_markdown",
    "sample_network",
    "save_action",
    "score_classes",
    "search_minima",
    "sign_accuracy",
    "solve",
    "solve_from_statistics",
    "solve_matrix_free",
    "statistics_of_arrays",
    "statistics_of_batches",
    "statistics_of_files",
    "statistics_on_devices",
    "sum_over_paths",
    "without_heads",
]
