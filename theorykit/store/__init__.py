"""Results and runs on disk: files that are whole or not there, and runs known by what determines them."""

import lazy_loader

# the names of __init__.pyi, each imported from its module when it is first asked for
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
