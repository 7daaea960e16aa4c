"""Labelled images from files in the published formats: zip archives of PNGs (Omniglot), and gzip IDX (MNIST).

Every function refuses a damaged file with a one-line `ValueError` that names the file. No file is read in part.
"""

import gzip
import io
import math
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from theorykit.checks import checked_path, checked_sequence, checked_text, checked_whole_number, first_line

from .images import ImageSet, checked_pixels, image_set

SIZE = 32
"""Side length in pixels of a task's images; Tiberi et al., App. H."""

_UNSIGNED_BYTES = 8  # the code for unsigned bytes in an IDX header
_WHOLE_GREY_MODES = ("1", "L", "P", "RGB")  # modes that Pillow converts to 8-bit grey without loss


def resize(pixels: UInt8[np.ndarray, "height width"], size: int = SIZE) -> UInt8[np.ndarray, "{size} {size}"]:
    """Resize a square grey image to `size` x `size` pixels, by Pillow's bicubic filter, which averages pixels.

    An image that already has this size is returned unchanged. Paper stays white if no ink is within two pixels, counted
    in the larger pixels of the two images.
    """
    pixels = checked_pixels("pixels", pixels, "height width")
    checked_whole_number("size", size, least=1)
    if pixels.size == 0 or pixels.shape[0] != pixels.shape[1]:
        raise ValueError(f"pixels must be square and not empty, got {pixels.shape[0]} x {pixels.shape[1]} of them")
    if pixels.shape == (size, size):
        return pixels
    # Lanczos filters ripple: they leave a faint ghost of the ink on blank paper, and the layer normalisation of a patch
    # makes it as strong as the ink. The only ripple of the bicubic filter is whiter than white.
    return np.array(Image.fromarray(pixels).resize((size, size), Image.Resampling.BICUBIC))


def read_omniglot(archives: Sequence[Path], *, size: int = SIZE) -> ImageSet:
    """Read the images in zip `archives` of files Alphabet/characterNN/*.png, possibly below a top folder.

    Classes are named "Alphabet/characterNN" and sorted by name, their images by file name. The order of the archives,
    and of the files in them, does not matter. Grey values come from the files, black ink on white paper in Omniglot;
    `pixels` is (images, size, size).

    Raises `FileNotFoundError` if an archive does not exist. Raises `ValueError`, which names the archive and the file
    in it, if it is not a zip, has no images, or has an image twice or outside a character's folder. The same holds for
    an image that is unreadable, not square, or not plain grey.
    """
    checked_whole_number("size", size, least=1)
    archives = [checked_path("archives", each) for each in checked_sequence("archives", archives, "paths")]
    if not archives:
        raise ValueError("there are no archives to read images from")
    found: dict[tuple[str, str], np.ndarray] = {}
    for archive in archives:
        for name, pixels in _images_in(archive, size):
            if name in found:
                raise ValueError(
                    f"{'/'.join(name)} is in {archive} a second time, or in one before it: was an archive given twice?"
                )
            found[name] = pixels
    ordered = sorted(found)
    names, classes = np.unique([character for character, _ in ordered], return_inverse=True)
    return image_set(np.stack([found[name] for name in ordered]), classes, names.tolist())


def read_idx(images: Path, labels: Path, class_names: Sequence[str], *, size: int = SIZE) -> ImageSet:
    """Read the images of one gzip IDX file, and the labels of another, counted from 0 in the order of `class_names`.

    https://yann.lecun.com/exdb/mnist describes the format. Grey values come from the file, white on black in MNIST;
    `pixels` is (images, size, size), and images of a class are in the order of the file.

    Raises `FileNotFoundError` if a file does not exist. Raises `ValueError`, which names the file, if it is not gzip,
    is cut short, or has another magic number or length than in its header. The same holds for images that are not
    square, another number of labels than images, a label without a name, and a class without images.
    """
    checked_whole_number("size", size, least=1)
    class_names = [checked_text("class_names", name) for name in checked_sequence("class_names", class_names, "names")]
    images, labels = checked_path("images", images), checked_path("labels", labels)
    pixels, numbers = _idx(images, 3), _idx(labels, 1)
    try:
        made = np.array([resize(image, size) for image in pixels], dtype=np.uint8).reshape(-1, size, size)
        return image_set(made, numbers.astype(np.int64), class_names)
    except ValueError as error:
        raise ValueError(f"{images} and {labels} do not hold labelled square images: {error}") from None


def _images_in(archive: Path, size: int) -> Iterator[tuple[tuple[str, str], np.ndarray]]:
    """Yield (character, file name) and pixels of each image in a zip archive."""
    try:
        opened = zipfile.ZipFile(archive)
    except zipfile.BadZipFile as error:
        raise ValueError(
            f"{archive} is not a zip archive ({error}): was it cut short, or another page saved in its place?"
        ) from error
    with opened:
        # macOS adds a file "__MACOSX/.../._name.png" for each "name.png"; it is not an image.
        members = [name for name in opened.namelist() if PurePosixPath(name).match("[!.]*.png")]
        if not members:
            raise ValueError(f"{archive} has no images, Alphabet/characterNN/*.png: is it another archive?")
        for member in members:
            path = PurePosixPath(member)
            if len(path.parts) < 3:
                raise ValueError(f"{archive} has {member}, which is not in a folder Alphabet/characterNN")
            try:
                pixels = resize(_grey_png(opened.read(member)), size)
            except Exception as error:  # the readers raise many kinds of errors for damaged files
                raise ValueError(
                    f"{archive} has {member}, which is not a readable PNG, square and plain grey "
                    f"({first_line(error)}): is it damaged?"
                ) from error
            yield ("/".join(path.parts[-3:-1]), path.name), pixels


def _grey_png(content: bytes) -> np.ndarray:
    """Decode the pixels of a PNG, (height, width) from 0, black, to 255."""
    with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
        image.load()
        if image.mode not in _WHOLE_GREY_MODES:
            raise ValueError(f"Pillow's mode {image.mode!r} is not plain 8-bit grey")
        return np.array(image.convert("L"))


def _idx(path: Path, dimensions: int) -> np.ndarray:
    """Read the array of unsigned bytes in a gzip IDX file with `dimensions` axes."""
    try:
        with gzip.open(path) as file:
            content = file.read()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{path} is not a whole gzip file ({error}): is it damaged, cut short, or unpacked already?"
        ) from error
    magic, end = bytes([0, 0, _UNSIGNED_BYTES, dimensions]), 4 + 4 * dimensions
    if content[:4] != magic:
        raise ValueError(
            f"{path} has the magic number {content[:4].hex() or 'none'}, but unsigned bytes in {dimensions} dimensions "
            f"have {magic.hex()}: is it another file, or were images and labels exchanged?"
        )
    shape = np.frombuffer(content[4:end].ljust(4 * dimensions, b"\0"), ">u4").tolist()
    if len(content) != end + math.prod(shape):
        raise ValueError(
            f"{path} holds {len(content)} bytes, but its header says {end} and {' x '.join(map(str, shape))}: "
            "was it cut short?"
        )
    return np.frombuffer(content, np.uint8, offset=end).reshape(shape)
