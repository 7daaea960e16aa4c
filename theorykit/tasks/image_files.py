"""Labelled images from files in the published formats: zip archives of PNGs (Omniglot), and gzip IDX (MNIST).

Every function refuses a damaged file with a `ValueError` of one line that names it; nothing is read in part.
"""

import gzip
import io
import math
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np
from jaxtyping import UInt8
from PIL import Image, UnidentifiedImageError

from ..arguments import checked_path, checked_sequence, checked_text, checked_whole_number
from .images import ImageSet, checked_pixels, image_set

SIZE = 32
"""Pixels on a side of the images of a task; Tiberi et al., App. H."""

_UNSIGNED_BYTES = 8  # the code of that type in an IDX header
_WHOLE_GREY_MODES = ("1", "L", "P", "RGB")  # what Pillow turns into 8-bit grey without losing depth or transparency


def resized(pixels: UInt8[np.ndarray, "height width"], size: int = SIZE) -> UInt8[np.ndarray, "{size} {size}"]:
    """The grey image at `size` x `size` pixels, by Pillow's bicubic filter, which averages where it makes smaller.

    An image of that size already is returned as it is. Paper stays white where no ink is within two pixels, of the
    larger pixels of both images.
    """
    pixels = checked_pixels("pixels", pixels, "height width")
    checked_whole_number("size", size, least=1)
    if pixels.size == 0:
        raise ValueError(f"pixels must have some height and width, got {pixels.shape}")
    if pixels.shape == (size, size):
        return pixels
    # the ripples of Lanczos filters leave a faint ghost of the ink on blank paper around it, which the layer
    # normalisation of a patch makes as strong as the ink; the bicubic filter's only ripple is whiter than white
    return np.array(Image.fromarray(pixels).resize((size, size), Image.Resampling.BICUBIC))


def read_omniglot(archives: Sequence[Path], *, size: int = SIZE) -> ImageSet:
    """The images in zip `archives` of files Alphabet/characterNN/*.png, possibly below a top folder.

    Classes are named "Alphabet/characterNN" and sorted by name, their images by file name: the order of the archives,
    and of the files in them, does not matter. Grey values are those of the files, black ink on white paper in Omniglot;
    `pixels` is (images, size, size).

    Raises `FileNotFoundError` where an archive does not exist, and `ValueError`, which names the archive and the file
    in it, for one that is not a zip, has no images, has an image twice or outside a character's folder, or has an image
    that cannot be read, is not square, or is not plain grey.
    """
    checked_whole_number("size", size, least=1)
    archives = [checked_path("archives", each) for each in checked_sequence("archives", archives, "paths")]
    if not archives:
        raise ValueError("there are no archives to read images from")
    found = [image for archive in archives for image in _images_in(archive, size)]
    found.sort(key=lambda image: image[:2])
    copies = Counter(image[:2] for image in found)
    for character, file in copies:
        if copies[character, file] > 1:
            names = ", ".join(map(str, archives))
            raise ValueError(f"{character}/{file} is in {names} more than once: was an archive given twice?")
    names = sorted({character for character, _, _ in found})
    number = {name: i for i, name in enumerate(names)}
    classes = np.array([number[character] for character, _, _ in found])
    return image_set(np.stack([pixels for _, _, pixels in found]), classes, names)


def read_idx(images: Path, labels: Path, class_names: Sequence[str], *, size: int = SIZE) -> ImageSet:
    """The images of one gzip IDX file, with the labels of another, counted from 0 in the order of `class_names`.

    The format is that of https://yann.lecun.com/exdb/mnist. Grey values are those of the file, white on black in MNIST;
    `pixels` is (images, size, size), and images of a class are in the order of the file.

    Raises `FileNotFoundError` where a file does not exist, and `ValueError`, which names the file, for one that is not
    gzip, is cut short, has another magic number or length than its header says, images that are not square, as many
    labels as there are not images, a label without a name, or a class without images.
    """
    checked_whole_number("size", size, least=1)
    class_names = [checked_text("class_names", name) for name in checked_sequence("class_names", class_names, "names")]
    images, labels = checked_path("images", images), checked_path("labels", labels)
    pixels, numbers = _idx(images, 3), _idx(labels, 1)
    count, height, width = pixels.shape
    if count == 0 or height == 0 or height != width:
        raise ValueError(f"{images} holds {count} images of {height} x {width} pixels; some, and square, are needed")
    if count != len(numbers):
        raise ValueError(
            f"{images} holds {count} images, but {labels} {len(numbers)} labels: are they of the same part of the set?"
        )
    if numbers.max() >= len(class_names):
        raise ValueError(
            f"{labels} holds the label {numbers.max()}, but labels go from 0 to {len(class_names) - 1}: "
            "is it of another set?"
        )
    counts = np.bincount(numbers, minlength=len(class_names))
    if not counts.all():
        raise ValueError(f"{labels} holds no label {np.argmin(counts)} ({class_names[int(np.argmin(counts))]!r})")
    return image_set(np.stack([resized(image, size) for image in pixels]), numbers.astype(np.int64), class_names)


def _images_in(archive, size):
    """(character, file name, pixels) of each image in a zip archive."""
    try:
        opened = zipfile.ZipFile(archive)
    except zipfile.BadZipFile as error:
        raise ValueError(
            f"{archive} is not a zip archive ({error}): was it cut short, or another page saved in its place?"
        ) from error
    with opened:
        members = [name for name in opened.namelist() if _is_image(PurePosixPath(name))]
        if not members:
            raise ValueError(f"{archive} has no images, Alphabet/characterNN/*.png: is it another archive?")
        return [(*_named(archive, name), resized(_grey_png(opened, archive, name), size)) for name in members]


def _is_image(path):
    # macOS packs a file "__MACOSX/.../._name.png", which is no image, beside each "name.png"
    return path.suffix == ".png" and not path.name.startswith(".")


def _named(archive, member):
    """The character and the file name of an image in an archive."""
    parts = PurePosixPath(member).parts
    if len(parts) < 3:
        raise ValueError(f"{archive} has {member}, which is not in a folder Alphabet/characterNN")
    return "/".join(parts[-3:-1]), parts[-1]


def _grey_png(opened, archive, member):
    """The pixels of a square PNG in the archive, (height, width) from 0, black, to 255."""
    try:
        with Image.open(io.BytesIO(opened.read(member)), formats=["PNG"]) as image:
            image.load()
            mode, pixels = image.mode, np.array(image.convert("L"))
    except UnidentifiedImageError as error:
        raise ValueError(f"{archive} has {member}, which does not begin as a PNG does: is it damaged?") from error
    except (
        zipfile.BadZipFile,
        zlib.error,
        struct.error,
        Image.DecompressionBombError,
        # of which EOFError, encryption and unknown compression in the archive, and PNGs cut short or malformed
        *(EOFError, RuntimeError, OSError, SyntaxError, ValueError),
    ) as error:
        raise ValueError(f"{archive} has {member}, which is not a readable PNG ({error}): is it damaged?") from error
    if mode not in _WHOLE_GREY_MODES:
        raise ValueError(f"{archive} has {member}, of Pillow's mode {mode!r}, which is not plain 8-bit grey")
    if pixels.shape[0] != pixels.shape[1]:
        raise ValueError(
            f"{archive} has {member}, of {pixels.shape[0]} x {pixels.shape[1]} pixels, which is not square"
        )
    return pixels


def _idx(path, dimensions):
    """The array of unsigned bytes in a gzip IDX file of so many dimensions."""
    try:
        with gzip.open(path) as file:
            content = file.read()
    except EOFError as error:
        raise ValueError(f"{path} ends too early: was it cut short while it was copied?") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is not a sound gzip file ({error}): is it damaged, or unpacked already?") from error
    magic = bytes([0, 0, _UNSIGNED_BYTES, dimensions])
    if content[:4] != magic:
        raise ValueError(
            f"{path} has the magic number {content[:4].hex() or 'none'}, but unsigned bytes in {dimensions} dimensions "
            f"have {magic.hex()}: is it another file, or were images and labels exchanged?"
        )
    header = 4 + 4 * dimensions
    if len(content) < header:
        raise ValueError(f"{path} has {len(content)} bytes, fewer than the {header} of its header: was it cut short?")
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    if len(content) - header != math.prod(shape):
        raise ValueError(
            f"{path} holds {len(content) - header} bytes of data, but its header says {' x '.join(map(str, shape))} = "
            f"{math.prod(shape)}: was it cut short?"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)
