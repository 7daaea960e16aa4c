"""Labelled grey images, whatever they were drawn or scanned for: what tasks on images are made of."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, UInt8


class ImageSet(eqx.Module):
    """Grey images in classes, sorted by class; made by `image_set`.

    - `pixels` (images, height, width): 0 is black, 255 white.
    - `starts`, `counts` (classes,): where the images of each class begin, and how many they are.
    - `class_names`: one a class.
    """

    pixels: UInt8[Array, "images height width"]
    starts: Int[Array, " classes"]
    counts: Int[Array, " classes"]
    class_names: tuple[str, ...] = eqx.field(static=True)

    def of_classes(self, chosen: Sequence[int]) -> "ImageSet":
        """The images of the `chosen` classes only, in that order."""
        starts, counts = np.asarray(self.starts), np.asarray(self.counts)
        rows = np.concatenate([np.arange(starts[i], starts[i] + counts[i]) for i in chosen])
        classes = np.repeat(np.arange(len(chosen)), counts[list(chosen)])
        return image_set(np.asarray(self.pixels)[rows], classes, [self.class_names[i] for i in chosen])


def image_set(
    pixels: UInt8[np.ndarray, "_ height width"], classes: Int[np.ndarray, " _"], class_names: Sequence[str]
) -> ImageSet:
    """The images in `pixels`, each of the class, counted from 0, that `classes` says.

    Raises `ValueError` where a class has no image, or an image a class that has no name.
    """
    if len(pixels) != len(classes):
        raise ValueError(f"{len(pixels)} images do not fit {len(classes)} classes of images")
    if len(pixels) == 0:
        raise ValueError("there are no images")
    if classes.min() < 0 or classes.max() >= len(class_names):
        raise ValueError(
            f"images are of the classes {classes.min()} to {classes.max()}, but there are names for "
            f"0 to {len(class_names) - 1}"
        )
    counts = np.bincount(classes, minlength=len(class_names))
    if not counts.all():
        raise ValueError(f"class {class_names[int(np.argmin(counts))]!r} has no images")
    order = np.argsort(classes, kind="stable")
    return ImageSet(
        jnp.asarray(np.asarray(pixels, dtype=np.uint8)[order]),
        jnp.asarray(np.cumsum(counts) - counts),
        jnp.asarray(counts),
        tuple(class_names),
    )
