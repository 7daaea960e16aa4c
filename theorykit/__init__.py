"""theorykit: the statistical mechanics of transformers, from an architecture to a checked prediction.

    Architecture -> derive -> Action -> compile -> bind -> solve -> OrderParameters -> predict

`theorykit.bpkr` is the theory of attention paths. `theorykit.dmft` is the theory of self-attention dynamics, which is
an iterated map. Both use the expression compiler in `theorykit.symbolic` and `theorykit.codegen`.
"""

import lazy_loader

# Import each name of __init__.pyi from its module on first use, so that importing theorykit is fast.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = "0.1.0"
