from .events import BRANCH_POINT, FOLD, refine
from .system import System
from .tracing import trace

__all__ = ["BRANCH_POINT", "FOLD", "System", "refine", "trace"]
