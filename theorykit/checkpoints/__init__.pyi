from .attention_heads import CheckpointHeads, LayerNorm
from .files import Checkpoint, read_checkpoint
from .published_network import read_network_weights
from .reading import read_heads

__all__ = [
    "Checkpoint",
    "CheckpointHeads",
    "LayerNorm",
    "read_checkpoint",
    "read_heads",
    "read_network_weights",
]
