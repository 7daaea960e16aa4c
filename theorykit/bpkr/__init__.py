"""Theory 1: attention paths and the action of their order parameters, by back-propagating kernel renormalisation.

Source: L. Tiberi, F. Mignacco, K. Irie, H. Sompolinsky, "Dissecting the Interplay of Attention Paths in a Statistical
Mechanics Theory of Transformers" (arXiv 2405.15926), whose equation numbers the code carries.

    Architecture -> derive -> Action -> compiled function -> evaluate / solve -> OrderParameters -> predict, observables
"""

from .action import Action, Predictor
from .architecture import Architecture
from .attention import AbstractHeads, KeyQueryHeads, ProjectionHeads, attention, heads
from .derive import derive
from .diagnosis import ConvergenceWarning
from .dual import DualForm
from .evaluate import ActionTerms, evaluate, first_order, optimal_readout
from .expansion import FirstOrder
from .finite_width import FiniteWidthPrior
from .finite_width_law import FiniteWidthLaw, law_of
from .fluctuations import Fluctuations, fluctuations
from .layers import AbstractLayer, Attention, Dense, LayerSymbols, Skip
from .matrix_free import EnergyEstimate, MatrixFreeOptions, MatrixFreeWarning, Slopes, estimate_energy
from .matrix_free_saddle import MatrixFreeSaddle, solve_matrix_free
from .minima import Minima, search_minima
from .network import (
    Network,
    empirical_order_parameters,
    network_of_weights,
    path_outputs,
    path_weights,
    sample_network,
    sum_over_paths,
)
from .observables import KernelTaskAlignment, head_scores, kernel_task_alignment
from .order_parameters import OrderParameters, gp_limit
from .paths import Readout, path_features
from .predict import Prediction, kernel, predict, predict_from_statistics
from .pruning import Head, parameter_count, ranked_heads, removable_heads, without_heads
from .saddle import Saddle, gradient_norm, solve, solve_from_statistics
from .solvers import AcceleratedSweeps, Newton
from .statistics import FeatureStatistics
from .streaming import statistics_of_arrays, statistics_of_batches, statistics_of_loader

__all__ = [
    "AbstractHeads",
    "AbstractLayer",
    "AcceleratedSweeps",
    "Action",
    "ActionTerms",
    "Architecture",
    "Attention",
    "ConvergenceWarning",
    "Dense",
    "DualForm",
    "EnergyEstimate",
    "FeatureStatistics",
    "FiniteWidthLaw",
    "FiniteWidthPrior",
    "FirstOrder",
    "Fluctuations",
    "Head",
    "KernelTaskAlignment",
    "KeyQueryHeads",
    "LayerSymbols",
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
    "derive",
    "empirical_order_parameters",
    "estimate_energy",
    "evaluate",
    "first_order",
    "fluctuations",
    "gp_limit",
    "gradient_norm",
    "head_scores",
    "heads",
    "kernel",
    "kernel_task_alignment",
    "law_of",
    "network_of_weights",
    "optimal_readout",
    "parameter_count",
    "path_features",
    "path_outputs",
    "path_weights",
    "predict",
    "predict_from_statistics",
    "ranked_heads",
    "removable_heads",
    "sample_network",
    "search_minima",
    "solve",
    "solve_from_statistics",
    "solve_matrix_free",
    "statistics_of_arrays",
    "statistics_of_batches",
    "statistics_of_loader",
    "sum_over_paths",
    "without_heads",
]
