from . import empirical_risk

__all__ = ["empirical_risk"]
