"""Run a sweep on the workers of an existing dask cluster: a `dask scheduler` and its `dask worker`s.

    python plain.py ADDRESS FOLDER      # such as tcp://10.0.0.1:8786

Every solved point is kept in FOLDER. If the scheduler or this script is lost, run the same command again to resume.
"""

import argparse
from pathlib import Path

import numpy as np
from distributed import Client

import theorykit
from theorykit import bpkr
from theorykit.bpkr import sweeps

WIDTHS, TEMPERATURES = (10, 30, 100, 300), (0.01, 0.1, 1.0)


def random_data(seed: int, examples: int = 60) -> bpkr.Data:
    """Draw Gaussian features (examples, 4 paths, 30 features), with the sign of one path's first feature as label."""
    features = np.random.default_rng(seed).normal(size=(examples, 4, 30)) / np.sqrt(120)
    return bpkr.Data(features, np.sign(features[:, 0, 0]))


def solve_grid(client: Client, folder: Path) -> None:
    """Solve at every width and temperature, write `saddles.nc` to `folder`, and print a table."""
    architecture = bpkr.Architecture(layers=(2, 2), widths=1.0, temperature=1.0)
    grid = {"widths": WIDTHS, "temperatures": TEMPERATURES}
    result = sweeps.sweep(architecture, random_data(0), **grid, folder=folder / "points", executor=client)
    result.to_netcdf(folder / "saddles.nc", engine="h5netcdf")
    print(result["log_evidence"].to_pandas().round(3))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address")
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    theorykit.enable_float64()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with Client(arguments.address, timeout="10s") as client:
        solve_grid(client, arguments.folder)


if __name__ == "__main__":
    main()
