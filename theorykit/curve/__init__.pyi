from .events import BRANCH_POINT, FOLD, refine
from .tracing import System, describe, trace

__all__ = ["BRANCH_POINT", "FOLD", "System", "describe", "refine", "trace"]
