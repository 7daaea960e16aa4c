"""Chains on disk, from where a run goes on: one file, whole or not at all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ... import store

_FILE = "chains.npz"


@dataclass(frozen=True)
class StoredChains:
    """Chains as they were after `steps` steps: `leaves` of their states, and what they had drawn."""

    leaves: Sequence[np.ndarray]
    record: Mapping[str, np.ndarray]
    stats: Mapping[str, np.ndarray]
    steps: int
    warmup_seconds: float
    seconds: float


def save_chains(folder: Path, settings: Mapping[str, str], chains: StoredChains) -> None:
    """Keep `chains`, of the run that `settings` describe, in `folder`, in the place of what was there."""
    arrays = {f"leaf {i}": leaf for i, leaf in enumerate(chains.leaves)}
    arrays |= {f"record {name}": values for name, values in chains.record.items()}
    arrays |= {f"stats {name}": values for name, values in chains.stats.items()}
    numbers = {name: getattr(chains, name) for name in ("steps", "warmup_seconds", "seconds")}
    store.write_arrays({**numbers, **arrays}, settings, folder / _FILE)


def load_chains(folder: Path, settings: Mapping[str, str]) -> StoredChains | None:
    """The chains in `folder`, or None where there are none.

    Raises `FileExistsError` where they are of another run than `settings` describe, saying what differs.
    """
    values = store.read_arrays(folder / _FILE, "run of chains", settings)
    if values is None:
        return None

    def named(kind: str) -> dict[str, np.ndarray]:
        return {name.removeprefix(f"{kind} "): value for name, value in values.items() if name.startswith(f"{kind} ")}

    return StoredChains(
        leaves=list(named("leaf").values()),
        record=named("record"),
        stats=named("stats"),
        steps=int(values["steps"]),
        warmup_seconds=float(values["warmup_seconds"]),
        seconds=float(values["seconds"]),
    )
