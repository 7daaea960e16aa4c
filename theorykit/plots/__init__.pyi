from . import comparison, solution, style, sweep
from .actions import draw_curve, draw_landscape, draw_phase_diagram
from .comparison import draw_comparison
from .panels import draw_head_costs, draw_kernel_spectrum, draw_orbits, draw_order_parameters
from .sweep import draw_order_parameters_over_width, draw_over_richness, draw_scores_over_width

__all__ = [
    "comparison",
    "draw_comparison",
    "draw_curve",
    "draw_head_costs",
    "draw_kernel_spectrum",
    "draw_landscape",
    "draw_orbits",
    "draw_order_parameters",
    "draw_order_parameters_over_width",
    "draw_over_richness",
    "draw_phase_diagram",
    "draw_scores_over_width",
    "solution",
    "style",
    "sweep",
]
