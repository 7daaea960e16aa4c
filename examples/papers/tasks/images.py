"""Labelled grey images from any source, the data of image tasks."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, UInt8

from theorykit._compat import require_float64
from theorykit.checks import (
    checked_array,
    checked_sequence,
    checked_text,
    checked_whole_number,
    real_array,
    shown,
)


class ImageSet(eqx.Module):
    """Grey images in classes, sorted by class; made by `image_set`.

    - `pixels` (images, height, width): 0 is black, 255 white.
    - `starts`, `counts` (classes,): index of the first image of each class, and number of its images.
    - `class_names`: one per class.
    """

    pixels: UInt8[Array, "images height width"]
    starts: Int[Array, " classes"]
    counts: Int[Array, " classes"]
    class_names: tuple[str, ...] = eqx.field(static=True)

    def of_classes(self, chosen: Sequence[int]) -> "ImageSet":
        """Select the images of the `chosen` classes only, in that order."""
        chosen = checked_sequence("chosen", chosen, "numbers of classes, from 0")
        last = len(self.class_names) - 1
        chosen = [checked_whole_number(f"chosen[{i}]", each, least=0, most=last) for i, each in enumerate(chosen)]
        if not chosen:
            raise ValueError("chosen has no classes")
        starts, counts = np.asarray(self.starts), np.asarray(self.counts)
        rows = np.concatenate([np.arange(starts[i], starts[i] + counts[i]) for i in chosen])
        classes = np.repeat(np.arange(len(chosen)), counts[list(chosen)])
        return image_set(np.asarray(self.pixels)[rows], classes, [self.class_names[i] for i in chosen])


def cut_into_patches(images: ArrayLike, size: int) -> Float[Array, "... patches pixels"]:
    """Cut `images` (..., height, width) into square patches of `size` x `size` pixels, row by row.

    Raises `ValueError` if patches do not tile the images.
    """
    require_float64()
    size = checked_whole_number("size", size, least=1)
    pixels = jnp.asarray(checked_array("images", images))
    if pixels.ndim < 2 or not pixels.size or pixels.shape[-2] % size or pixels.shape[-1] % size:
        raise ValueError(
            f"images of shape {pixels.shape} (..., height, width) are not tiled by patches of {size} x {size} pixels"
        )
    *leading, height, width = pixels.shape
    cut = pixels.reshape(*leading, height // size, size, width // size, size)
    return jnp.moveaxis(cut, -3, -2).reshape(*leading, -1, size**2)


def image_set(
    pixels: UInt8[np.ndarray, "_ height width"], classes: Int[np.ndarray, " _"], class_names: Sequence[str]
) -> ImageSet:
    """Make a set of the images in `pixels`; `classes` has the class of each, counted from 0.

    Raises `ValueError` if a class has no image, or an image has a class without a name.
    """
    pixels = checked_pixels("pixels", pixels, "images height width")
    classes = checked_numbers_of_classes("classes", classes)
    class_names = [checked_text("class_names", name) for name in checked_sequence("class_names", class_names, "names")]
    if len(pixels) != len(classes):
        raise ValueError(f"pixels: {len(pixels)} images do not fit {len(classes)} classes of images")
    if len(pixels) == 0:
        raise ValueError("there are no images: pixels is empty")
    if classes.min() < 0 or classes.max() >= len(class_names):
        raise ValueError(
            f"classes: images are of the classes {classes.min()} to {classes.max()}, but there are names for "
            f"0 to {len(class_names) - 1}"
        )
    counts = np.bincount(classes, minlength=len(class_names))
    if not counts.all():
        raise ValueError(f"class {class_names[int(np.argmin(counts))]!r} has no images")
    order = np.argsort(classes, kind="stable")
    return ImageSet(
        jnp.asarray(pixels[order]),
        jnp.asarray(np.cumsum(counts) - counts),
        jnp.asarray(counts),
        tuple(class_names),
    )


def checked_pixels(name: str, value: Any, axes: str) -> np.ndarray:
    """Check grey values, whole numbers from 0 to 255; return an array of unsigned bytes with the given axes."""
    count = len(axes.split())
    is_grey = isinstance(value, (np.ndarray, jax.Array)) and value.dtype == np.uint8
    grey = np.asarray(value) if is_grey and not isinstance(value, np.ma.MaskedArray) else real_array(name, value)
    if grey.ndim != count:
        raise ValueError(f"{name} must have shape ({', '.join(axes.split())}), got {grey.shape}")
    if not np.all((grey >= 0) & (grey <= 255) & (grey == np.floor(grey))):
        raise ValueError(f"{name} must be grey values, whole numbers from 0, black, to 255, got {shown(value)}")
    return np.asarray(grey, dtype=np.uint8)


def checked_numbers_of_classes(name: str, value: Any) -> np.ndarray:
    """Check that these are non-negative whole numbers (images,)."""
    numbers = real_array(name, value)
    if numbers.ndim != 1 or not np.all(np.isfinite(numbers) & (numbers == np.floor(numbers))):
        raise ValueError(f"{name} must be whole numbers of shape (images), got {shown(value)}")
    return numbers.astype(np.int64)
