"""Read attention heads of trained transformers from checkpoint files: safetensors and npz, never pickles.

file -> Checkpoint -> CheckpointHeads -> attention of one layer on that layer's own inputs
"""

import lazy_loader

# Import each name of __init__.pyi from its module on first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
