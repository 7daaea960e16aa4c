"""Tests that images are read exactly from published formats, and that errors name a damaged file."""

import gzip
import re
from pathlib import Path

import numpy as np
import pytest

from papers.tasks.image_files import read_idx, read_omniglot, resize

from .image_writers import (
    ALPHABETS,
    DIGIT_LABELS,
    DIGITS,
    RANDOM,
    idx,
    images_of,
    one_line,
    png,
    write_alphabets,
    write_zip,
    written,
)

NAMES = tuple("0123456789")


@pytest.fixture
def alphabets(tmp_path) -> list[Path]:
    return write_alphabets(tmp_path)


def test_omniglot_images_are_those_of_the_files_sorted_by_name(alphabets):
    images = read_omniglot(alphabets, size=6)
    folders = sorted({name.rsplit("/", 1)[0] for name in ALPHABETS})
    assert images.class_names == tuple(folders) and len(folders) == 6
    np.testing.assert_array_equal(images.pixels, [ALPHABETS[name] for name in sorted(ALPHABETS)])
    np.testing.assert_array_equal(images.counts, [2] * 6)


def test_a_character_in_two_archives_is_one_class_whatever_their_order(tmp_path):
    halves = [
        write_zip(tmp_path / f"{i}.zip", {name: png(ALPHABETS[name]) for name in sorted(ALPHABETS)[i::2]})
        for i in range(2)
    ]
    images, turned = read_omniglot(halves, size=6), read_omniglot(halves[::-1], size=6)
    assert len(images.class_names) == 6
    assert images.class_names == turned.class_names
    np.testing.assert_array_equal(images.pixels, turned.pixels)
    np.testing.assert_array_equal(images.pixels, [ALPHABETS[name] for name in sorted(ALPHABETS)])


def test_omniglot_images_are_brought_to_size(tmp_path):
    ink = np.full((105, 105), 255, dtype=np.uint8)
    ink[:52] = 0
    archive = write_zip(tmp_path / "a.zip", {"Greek/character01/1.png": png(ink, "1")})
    (pixels,) = np.asarray(read_omniglot([archive]).pixels)
    assert pixels.shape == (32, 32)
    # No ghost of the ink is on the paper: layer normalisation of a blank patch would magnify it.
    assert not pixels[:14].any() and (pixels[18:] == 255).all()
    assert pixels.mean() == pytest.approx(ink.mean(), rel=0.02)


def test_making_smaller_averages_and_the_same_size_changes_nothing():
    # A chequered board looks grey from afar; subsampling pixels would leave it black and white.
    board = ((np.indices((96, 96)).sum(0) % 2) * 255).astype(np.uint8)
    inside = resize(board, 32)[4:-4, 4:-4].astype(float)
    assert np.abs(inside - 127.5).max() < 40
    np.testing.assert_array_equal(resize(board, 96), board)


def damaged(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]


NOISE = png(RANDOM.integers(0, 256, (20, 20), dtype=np.uint8))
LARGE = png(RANDOM.integers(0, 256, (300, 300), dtype=np.uint8))
BAD_MEMBERS = {
    "cut short": ("Greek/character01/1.png", NOISE[:80], "not a readable PNG"),
    "header only": ("Greek/character01/1.png", NOISE[:20], "not a readable PNG"),
    "changed header": ("Greek/character01/1.png", damaged(NOISE, 18), "not a readable PNG"),
    "changed length": ("Greek/character01/1.png", damaged(LARGE, 36), "not a readable PNG"),
    "changed pixels": ("Greek/character01/1.png", damaged(NOISE, len(NOISE) // 2), "not a readable PNG"),
    "not a PNG": ("Greek/character01/1.png", b"GIF89a and so on", "not a readable PNG"),
    "empty": ("Greek/character01/1.png", b"", "not a readable PNG"),
    "transparent": ("Greek/character01/1.png", png(DIGITS[0], "RGBA"), "not plain 8-bit grey"),
    "not square": ("Greek/character01/1.png", png(DIGITS[0, :4]), "square and not empty, got 4 x 6"),
    "no folder": ("1.png", png(DIGITS[0]), "not in a folder"),
}


@pytest.mark.parametrize("case", BAD_MEMBERS)
def test_a_bad_image_is_named_with_its_archive(tmp_path, case):
    member, content, complaint = BAD_MEMBERS[case]
    good = {"Greek/character02/1.png": png(DIGITS[1])}
    archive = write_zip(tmp_path / "a.zip", good | {member: content})
    with pytest.raises(ValueError, match=complaint) as error:
        read_omniglot([archive])
    assert str(archive) in str(error.value) and member in str(error.value) and one_line(error)


def test_a_damaged_archive_is_named(tmp_path):
    good = write_zip(tmp_path / "good.zip", {"Greek/character01/1.png": NOISE}).read_bytes()
    middle = good.index(NOISE[60:70]) if NOISE[60:70] in good else good.index(b"1.png") + 100
    for name, content, complaint in (
        ("page.zip", b"<html>404</html>", "not a zip archive"),
        ("cut.zip", good[: len(good) // 2], "not a zip archive"),
        ("empty.zip", b"", "not a zip archive"),
        ("changed.zip", damaged(good, middle), "1.png, which is not a readable PNG"),
    ):
        archive = written(tmp_path / name, content)
        with pytest.raises(ValueError, match=complaint) as error:
            read_omniglot([archive])
        assert str(archive) in str(error.value) and one_line(error)


def test_archives_without_images_or_with_one_twice_are_refused(tmp_path, alphabets):
    empty = write_zip(tmp_path / "texts.zip", {"Greek/read me.txt": b"no image"})
    with pytest.raises(ValueError, match=re.escape(f"{empty} has no images")):
        read_omniglot([*alphabets, empty])
    with pytest.raises(ValueError, match=r"Greek/character.*\.png is in .* a second time"):
        read_omniglot([alphabets[0], alphabets[0]])
    with pytest.raises(ValueError, match="no archives"):
        read_omniglot([])
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_omniglot([tmp_path / "nowhere.zip"])


@pytest.fixture
def digits(tmp_path) -> tuple[Path, Path]:
    return (
        written(tmp_path / "images.gz", gzip.compress(idx(DIGITS))),
        written(tmp_path / "labels.gz", gzip.compress(idx(DIGIT_LABELS))),
    )


def test_idx_images_are_those_of_the_file_with_their_labels(digits):
    images = read_idx(*digits, NAMES, size=6)
    assert images.class_names == NAMES
    for label in range(10):
        np.testing.assert_array_equal(images_of(images, str(label)), DIGITS[label == DIGIT_LABELS])
    assert read_idx(*digits, NAMES).pixels.shape == (12, 32, 32)


BAD_IDX = {
    "images not gzip": ("images", idx(DIGITS), "not a whole gzip file"),
    "images cut short": ("images", gzip.compress(idx(DIGITS))[:-30], "cut short"),
    "images changed": ("images", damaged(gzip.compress(idx(DIGITS)), 200), "not a whole gzip file"),
    "images empty": ("images", b"", "magic number none"),
    "labels in place of images": ("images", gzip.compress(idx(DIGIT_LABELS)), "magic number 00000801, but .* 00000803"),
    "images of floats": ("images", gzip.compress(idx(DIGITS, b"\0\0\x0d\3")), "magic number 00000d03"),
    "half a header": ("images", gzip.compress(idx(DIGITS)[:9]), "9 bytes, but its header says 16 and "),
    "too few pixels": ("images", gzip.compress(idx(DIGITS)[:-1]), "447 bytes, but its header says 16 and 12 x 6 x 6"),
    "too many pixels": ("images", gzip.compress(idx(DIGITS) + b"\0"), "449 bytes, but .* 16 and 12 x 6 x 6"),
    "no images": ("images", gzip.compress(idx(DIGITS[:0])), "0 images do not fit 12 classes"),
    "images not square": ("images", gzip.compress(idx(DIGITS[:, :3])), "square and not empty, got 3 x 6"),
    "more images than labels": ("labels", gzip.compress(idx(DIGIT_LABELS[:-1])), "12 images do not fit 11 classes"),
    "images in place of labels": ("labels", gzip.compress(idx(DIGITS)), "magic number 00000803, but .* 00000801"),
    "label without a name": ("labels", gzip.compress(idx(DIGIT_LABELS + np.uint8(1))), "classes 1 to 10, .* 0 to 9"),
    "no image of a class": (
        "labels",
        gzip.compress(idx(np.minimum(DIGIT_LABELS, np.uint8(8)))),
        "class '9' has no images",
    ),
}


@pytest.mark.parametrize("case", BAD_IDX)
def test_a_bad_idx_file_is_named(digits, case):
    which, content, complaint = BAD_IDX[case]
    damaged_file = written(digits[0].with_name(f"{which}.gz"), content)
    with pytest.raises(ValueError, match=complaint) as error:
        read_idx(*digits, NAMES)
    assert str(damaged_file) in str(error.value) and one_line(error)
