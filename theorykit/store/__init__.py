"""Results and runs on disk: files that are whole or not there, and runs known by what determines them."""

import lazy_loader

# the names of __init__.pyi, imported when they are first asked for; those of runs are for this package alone
__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
__all__ = ["read", "write", "write_document", "write_source", "write_text"]
