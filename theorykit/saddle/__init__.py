"""Stationary points of any action of order parameters: minima and min-max points; knows no theory.

expression, domains, parameters -> Action -> minimise, stationary, search -> Solution -> follow -> SolutionBranch
"""

import lazy_loader

# the names of __init__.pyi, each imported from its module when it is first asked for
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
