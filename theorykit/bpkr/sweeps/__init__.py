"""Labelled results: one solve, or a grid of widths, temperatures and seeds."""

from .datasets import best, best_temperatures, label, order_parameters_of
from .run import sweep

__all__ = ["best", "best_temperatures", "label", "order_parameters_of", "sweep"]
