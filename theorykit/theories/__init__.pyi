from . import empirical_risk, learned_attention

__all__ = ["empirical_risk", "learned_attention"]
