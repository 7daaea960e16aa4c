"""Saddle points as labelled datasets: one solve, a grid of widths and temperatures, or several data sets."""

from .datasets import best_temperatures, label_saddle, order_parameters_of
from .run import sweep, sweep_seeds

__all__ = ["best_temperatures", "label_saddle", "order_parameters_of", "sweep", "sweep_seeds"]
