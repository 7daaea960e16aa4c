from . import learned_attention as learned_attention
