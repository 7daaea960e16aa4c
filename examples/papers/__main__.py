"""Run the papers' experiments with `python examples/papers`, from any folder."""

import sys
from pathlib import Path

# Import this package as `papers`: its folder comes first on the path, and its modules must not be found by their bare
# names. Spawned processes inherit this path and find the functions that they call.
sys.path[0] = str(Path(__file__).resolve().parents[1])

if __name__ == "__main__":
    from papers.cli import main

    main()
