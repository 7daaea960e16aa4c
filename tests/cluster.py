"""A dask cluster on this machine, reached as one elsewhere is."""

from collections.abc import Iterator
from contextlib import contextmanager

import distributed


@contextmanager
def dask_client(workers: int) -> Iterator[distributed.Client]:
    """A scheduler on this machine and workers that reach it by TCP, one thread each."""
    cluster = distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, protocol="tcp", dashboard_address=":0", silence_logs=50
    )
    with cluster, distributed.Client(cluster) as client:
        yield client
