from . import strategies
from .actions import check_action
from .layers import check_layer
from .report import Finding, Report

__all__ = ["Finding", "Report", "check_action", "check_layer", "strategies"]
