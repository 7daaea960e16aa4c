"""Scripts of the repository, run as a reader would."""

import os
import subprocess
import sys
from pathlib import Path


def run_script(script: Path, *arguments: str) -> str:
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    finished = subprocess.run(
        [sys.executable, script, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout
