"""Save results and runs on disk. Files are written atomically, and runs are identified by their settings."""

import lazy_loader

# Import the names of __init__.pyi on first use. Names of runs are internal, so they are not in `__all__`.
__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
__all__ = ["read", "write", "write_document", "write_source", "write_text"]
