from . import style
from .comparison import draw_comparison, draw_differences
from .panels import draw_landscape, draw_orbits, draw_phase_diagram
from .solution import draw_kernel_spectrum, draw_order_parameters
from .sweep import draw_over_richness, draw_scores_over_width

__all__ = [
    "draw_comparison",
    "draw_differences",
    "draw_kernel_spectrum",
    "draw_landscape",
    "draw_orbits",
    "draw_order_parameters",
    "draw_over_richness",
    "draw_phase_diagram",
    "draw_scores_over_width",
    "style",
]
