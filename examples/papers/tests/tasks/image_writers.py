"""Small files in the formats of published images, and their contents."""

import io
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np
import pytest
from PIL import Image

from papers.tasks.images import ImageSet

RANDOM = np.random.default_rng(0)
ALPHABETS = {
    f"{alphabet}/character{i:02d}/{i:04d}_{j:02d}.png": RANDOM.integers(0, 2, (6, 6), dtype=np.uint8) * np.uint8(255)
    for alphabet in ("Greek", "Anglo-Saxon_Futhorc")
    for i in (1, 2, 3)
    for j in (1, 2)
}
DIGITS = RANDOM.integers(0, 256, (12, 6, 6), dtype=np.uint8)
DIGIT_LABELS = np.array([3, 0, 1, 2, 4, 9, 8, 7, 6, 5, 3, 0], dtype=np.uint8)


def png(pixels: np.ndarray, mode: str = "L") -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, "PNG")
    return file.getvalue()


def write_zip(
    path: Path | IO[bytes], members: Mapping[str, bytes], top: str = "images_background/"
) -> Path | IO[bytes]:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        if top:
            archive.writestr(top, b"")
        for name, content in members.items():
            archive.writestr(top + name, content)
    return path


def idx(values: np.ndarray, magic: bytes | None = None) -> bytes:
    """Make an IDX file of unsigned bytes, not yet compressed."""
    magic = bytes([0, 0, 8, values.ndim]) if magic is None else magic
    return magic + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def images_of(images: ImageSet, name: str) -> np.ndarray:
    i = images.class_names.index(name)
    return np.asarray(images.pixels)[int(images.starts[i]) : int(images.starts[i] + images.counts[i])]


def one_line(error: pytest.ExceptionInfo) -> bool:
    return "\n" not in str(error.value)


def write_alphabets(folder: Path) -> list[Path]:
    """Write two archives with unsorted files, the second without a top folder and with leftovers of macOS."""
    names = sorted(ALPHABETS, reverse=True)
    first = {name: png(ALPHABETS[name], "1") for name in names if name.startswith("Greek")}
    second = {name: png(ALPHABETS[name]) for name in names if not name.startswith("Greek")}
    rubbish = {"__MACOSX/Greek/character01/._0001_01.png": b"no image", "Greek/read me.txt": b"no image"}
    return [write_zip(folder / "a.zip", first), write_zip(folder / "b.zip", second | rubbish, top="")]
