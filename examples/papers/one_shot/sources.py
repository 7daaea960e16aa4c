"""Sources of the sequences: training images, unseen classes, and images of another kind."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
import xarray as xr

from theorykit.runs import Folder

from ..tasks.digits import handwritten_digits
from ..tasks.images import ImageSet, image_set
from ..tasks.one_shot import Episodes, episodes
from ..tasks.published_images import fashion_mnist, mnist, omniglot
from ..tasks.strokes import stroke_characters
from .settings import OneShot, Strokes

# Increase this number whenever the same settings draw different characters.
_VERSION = 1
IN_DISTRIBUTION = "in distribution"
_UNSEEN = {"digits": handwritten_digits, "mnist": mnist, "fashion-mnist": fashion_mnist}


@dataclass(frozen=True)
class Sources:
    """Sequences of disjoint classes for training and validation, and of test classes by distribution."""

    training: Episodes
    validation: Episodes
    tests: Mapping[str, Episodes]


def sources(settings: OneShot, folder: Path) -> Sources:
    """Return the sequences of `settings`. Generated characters are drawn once and kept in `folder`.

    Raises `ConnectionError` if published images cannot be downloaded.
    """
    if settings.images == "omniglot":
        split = omniglot()
        parts = split.training, split.validation, split.test
    else:
        parts = _split(settings.images, _characters(settings.images, folder / "characters"))
    training, validation, test = (episodes(settings.task, part) for part in parts)
    unseen = {name: episodes(settings.task, _UNSEEN[name]()) for name in settings.unseen}
    return Sources(training, validation, {IN_DISTRIBUTION: test, **unseen})


def _characters(strokes: Strokes, folder: Path) -> ImageSet:
    place = Folder.of(folder, "drawing of characters", _VERSION, strokes=strokes)
    kept = place.read("characters")
    if kept is None:
        classes = strokes.training + strokes.validation + strokes.test
        images = stroke_characters(classes, strokes.drawings, key=jax.random.key(strokes.seed))
        pixels = (("drawing", "row", "column"), images.pixels)
        place.write("characters", xr.Dataset({"pixels": pixels, "counts": ("character", images.counts)}))
        return images
    names = [f"character {number}" for number in range(1, len(kept["counts"]) + 1)]
    return image_set(kept["pixels"].values, np.repeat(np.arange(len(names)), kept["counts"].values), names)


def _split(strokes: Strokes, images: ImageSet) -> tuple[ImageSet, ImageSet, ImageSet]:
    ends = np.cumsum([strokes.training, strokes.validation, strokes.test])
    training, validation, test = np.split(np.arange(ends[-1]), ends[:-1])
    return tuple(images.of_classes(part) for part in (training.tolist(), validation.tolist(), test.tolist()))
