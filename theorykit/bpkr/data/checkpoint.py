"""A pass over a training set that was cut short: the sums so far in a file, whole or not at all, and how to go on."""

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ... import atomic_files
from .batches import BatchSums

# raised whenever the sums of the same batches come to be other numbers
_VERSION = 1
_DIGEST = 32


@dataclass(frozen=True)
class Progress:
    """How far a pass has come: `batches` done, and their `total` with the digest of each."""

    batches: int = 0
    total: BatchSums | None = None

    def after(self, sums: BatchSums) -> "Progress":
        """With one batch more; raises `ValueError` if it is of another shape than those before."""
        if self.total is None:
            return Progress(1, sums)
        if sums.kind != self.total.kind:
            raise ValueError(
                f"batch {self.batches} has (paths, features, outputs) = {sums.kind}, the batches before it "
                f"{self.total.kind}"
            )
        return Progress(self.batches + 1, self.total.plus(sums))

    def check(self, number: int, digest: bytes, path: Path) -> None:
        """Raise `ValueError` unless `digest` is that of the batch that was summed before."""
        if self.total.digests[number] != digest:
            raise ValueError(f"batch {number} is not what it was when the checkpoint {path} was written: other data")


def save_progress(path: Path, described: str, done: Progress) -> None:
    """Write `done` to `path`, of the job that `described` says. A crash in between leaves what was there before."""
    digests = np.frombuffer(b"".join(done.total.digests), dtype=np.uint8).reshape(-1, _DIGEST)
    values = {**vars(done.total), "digests": digests, "batches": done.batches, "version": _VERSION}
    atomic_files.write(atomic_files.npz({"described": np.array(described), **values}), path, overwrite=True)


def load_progress(path: Path, described: str) -> Progress:
    """The progress in `path`, refused unless it is of the job that `described` says."""
    refusal = f"{path} is not a checkpoint of feature statistics that this version wrote, or it is damaged: remove it"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} is not a checkpoint of feature statistics ({error.strerror}): remove it") from error
    if not atomic_files.is_whole(content):
        raise ValueError(refusal)
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        values = {name: stored[name] for name in stored.files}
    if "digests" not in values or int(values["version"]) != _VERSION:
        raise ValueError(refusal)
    total = BatchSums(
        gram=values["gram"],
        projection=values["projection"],
        label_square=float(values["label_square"]),
        examples=int(values["examples"]),
        paths=int(values["paths"]),
        digests=tuple(digest.tobytes() for digest in values["digests"]),
    )
    found = str(values["described"])
    if found != described:
        raise ValueError(f"the checkpoint {path} is of another job: {found}, not {described}")
    return Progress(int(values["batches"]), total)
