"""Read attention heads of trained transformers from safetensors and npz files. Pickles are never read.

file -> Checkpoint -> CheckpointHeads -> attention of one layer on the inputs of this layer
"""

import lazy_loader

# Import each name of __init__.pyi from its module on first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
