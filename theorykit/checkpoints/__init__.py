"""Attention heads of trained transformers, read from their checkpoint files: safetensors and npz, never pickles.

file -> Checkpoint -> CheckpointHeads -> attention of one layer on that layer's own inputs
"""

import lazy_loader

# the names of __init__.pyi, each imported from its module when it is first asked for
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
