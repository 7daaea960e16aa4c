from . import empirical_risk, in_context, learned_attention

__all__ = ["empirical_risk", "in_context", "learned_attention"]
