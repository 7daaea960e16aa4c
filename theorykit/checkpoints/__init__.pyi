from .attention_heads import CheckpointHeads, LayerNorm
from .files import Checkpoint, read_checkpoint
from .reading import read_heads, read_network_weights

__all__ = ["Checkpoint", "CheckpointHeads", "LayerNorm", "read_checkpoint", "read_heads", "read_network_weights"]
