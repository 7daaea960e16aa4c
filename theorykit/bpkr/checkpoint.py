"""A pass over a training set that was cut short: the sums so far in a file, whole or not at all, and how to go on."""

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from .. import atomic_files
from .batches import BatchSums

# largest difference, relative, by which a batch summed again is still the same: sums depend on the processor's order
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Progress:
    """How far a pass has come: `batches` done, their `total`, and fingerprints of the first and the last of them."""

    batches: int = 0
    total: BatchSums | None = None
    first: Float[np.ndarray, " numbers"] | None = None
    last: Float[np.ndarray, " numbers"] | None = None

    def after(self, sums: BatchSums) -> "Progress":
        """With one batch more; raises `ValueError` if it is of another shape than those before."""
        if self.total is None:
            return Progress(1, sums, sums.fingerprint, sums.fingerprint)
        if sums.kind != self.total.kind:
            raise ValueError(
                f"batch {self.batches} has (paths, features, outputs) = {sums.kind}, the batches before it "
                f"{self.total.kind}"
            )
        return Progress(self.batches + 1, self.total.plus(sums), self.first, sums.fingerprint)

    def check(self, number: int, sums: BatchSums, path: Path) -> None:
        """Raise `ValueError` unless `sums` are of the batch, first or last, that was summed before."""
        known, again = self.first if number == 0 else self.last, sums.fingerprint
        if known.shape != again.shape or np.max(np.abs(again - known)) > _ROUNDING * np.max(np.abs(known)):
            raise ValueError(f"batch {number} is not what it was when the checkpoint {path} was written: other data")


def save_progress(path: Path, described: str, done: Progress) -> None:
    """Write `done` to `path`, of the job that `described` says. A crash in between leaves what was there before."""
    total = done.total
    arrays = {
        "described": np.array(described),
        "batches": done.batches,
        "gram": total.gram,
        "projection": total.projection,
        "label_square": total.label_square,
        "examples": total.examples,
        "paths": total.paths,
        "first": done.first,
        "last": done.last,
    }
    atomic_files.write(atomic_files.npz(arrays), path, overwrite=True)


def load_progress(path: Path, described: str) -> Progress:
    """The progress in `path`, refused unless it is of the job that `described` says."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            values = {name: stored[name] for name in stored.files}
        total = BatchSums(
            gram=values["gram"],
            projection=values["projection"],
            label_square=float(values["label_square"]),
            examples=int(values["examples"]),
            paths=int(values["paths"]),
        )
        done = Progress(int(values["batches"]), total, values["first"], values["last"])
        found = str(values["described"])
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a checkpoint of feature statistics: {error}") from error
    if found != described:
        raise ValueError(f"the checkpoint {path} is of another job: {found}, not {described}")
    return done
