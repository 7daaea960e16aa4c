from . import strategies
from .actions import check_action
from .explain import Finding, Report
from .layers import check_layer

__all__ = ["Finding", "Report", "check_action", "check_layer", "strategies"]
