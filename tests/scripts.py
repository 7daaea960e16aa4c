"""Scripts of the repository, run as a reader would."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run_script(script: Path, *arguments: str) -> str:
    # examples are run as copies of themselves, away from what they import
    path = os.pathsep.join([str(ROOT), str(ROOT / "examples"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "MPLBACKEND": "Agg", "PYTHONPATH": path}
    finished = subprocess.run(
        [sys.executable, script, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout
