"""theorykit: the statistical mechanics of transformers, from an architecture to a checked prediction.

    Architecture -> derive -> Action -> compile -> bind -> solve -> OrderParameters -> predict

`theorykit.bpkr` is the theory of attention paths, `theorykit.dmft` the theory of self-attention dynamics, a map to
iterate. `theorykit.symbolic` and `theorykit.codegen` are the expression compiler underneath both.
`theorykit.checkpoints` reads the attention heads of trained transformers.
"""

import lazy_loader

# the names of __init__.pyi, each imported from its module when it is first asked for
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = "0.1.0.dev0"
