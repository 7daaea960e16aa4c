"""theorykit: the statistical mechanics of transformers, from an architecture to a checked prediction.

    Architecture -> derive -> Action -> compile -> bind -> solve -> OrderParameters -> predict

`theorykit.bpkr` is the theory of attention paths, `theorykit.tasks` the data it is tried on; `theorykit.dmft` is the
theory of self-attention dynamics, a map to iterate. `theorykit.symbolic` and `theorykit.codegen` are the expression
compiler underneath both.
"""

from .precision import enable_float64

__all__ = ["enable_float64"]
__version__ = "0.1.0"
