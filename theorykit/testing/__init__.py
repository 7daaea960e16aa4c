"""Check your own layers and actions for mistakes, and generate cases for your own tests."""

import lazy_loader

# Import each name of __init__.pyi from its module on first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
