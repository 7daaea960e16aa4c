from . import strategies
from .actions import check_action
from .layers import check_layer

__all__ = ["check_action", "check_layer", "strategies"]
