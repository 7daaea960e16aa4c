"""A cluster of dask on this machine."""

from collections.abc import Iterator
from contextlib import contextmanager

import distributed


@contextmanager
def dask_client(workers: int) -> Iterator[distributed.Client]:
    """Yield a client of a scheduler on this machine, with workers that have one thread each and use TCP."""
    cluster = distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, protocol="tcp", dashboard_address=":0", silence_logs=50
    )
    with cluster, distributed.Client(cluster) as client:
        yield client
