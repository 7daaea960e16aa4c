"""`python examples/papers`, from any folder: the papers' experiments as commands."""

import sys
from pathlib import Path

# the folder of this package is first, whose modules must not be found by their bare names; processes that are spawned
# have the path of this one, and find the functions that they are to call
sys.path[0] = str(Path(__file__).resolve().parents[1])

if __name__ == "__main__":
    from papers.cli import main

    main()
