"""One-shot image classification in context; Tiberi et al., Sec. 4.2 and App. H.

A sequence shows three images, each cut into patches: two of different classes, labelled + and - in random order, and a
third, labelled "?", of one of the two classes. The network has to decide which, +1 or -1, from the context alone.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from theorykit._compat import require_float64
from theorykit._jit import usual_settings
from theorykit.checks import (
    Requirement,
    checked_array,
    checked_instance,
    checked_key,
    checked_number,
    checked_whole_number,
    require,
    shown,
)

from . import Examples
from .images import ImageSet, cut_into_patches

_IMAGES = 3  # two labelled images, and the image in question
_PLUS, _MINUS, _UNKNOWN = range(3)


@dataclass(frozen=True)
class OneShotTask:
    """How images and labels become tokens; the defaults are the paper's.

    - `image_size`, `patch_size`: sides in pixels; an image is cut into (image_size / patch_size)^2 square patches.
    - `channels`: colours, all with the same grey.
    - `pixel_mean`, `pixel_deviation`: normalise pixels between 0 and 1, before patches are normalised.
    - `label_seed`: seed of the fixed random vectors that stand for the labels +, - and ?.
    """

    image_size: int = 32
    patch_size: int = 8
    channels: int = 3
    pixel_mean: float = 0.922
    pixel_deviation: float = 0.084
    label_seed: int = 0

    def __post_init__(self):
        for name in ("image_size", "patch_size", "channels"):
            checked_whole_number(name, getattr(self, name), least=1)
        checked_whole_number("label_seed", self.label_seed)
        checked_number("pixel_mean", self.pixel_mean)
        checked_number("pixel_deviation", self.pixel_deviation, above=0.0)
        if self.image_size % self.patch_size:
            raise ValueError(f"image_size={self.image_size} is not a multiple of patch_size={self.patch_size}")
        if self.input_features % 2:
            raise ValueError(
                f"a patch must have an even number of features, got {self.input_features} of patch_size="
                f"{self.patch_size} and channels={self.channels}"
            )

    @property
    def patches(self) -> int:
        """Number of patches in an image."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def tokens(self) -> int:
        """Number of tokens in a sequence: the patches of three images."""
        return _IMAGES * self.patches

    @property
    def input_features(self) -> int:
        """Number of features of a token: the pixels of a patch, in all colours."""
        return self.channels * self.patch_size**2


class Episodes(eqx.Module):
    """Random sequences of the task from a set of images. A call with a number and a key draws that many examples.

    A JAX pytree with images as leaves, made by `episodes`.
    """

    task: OneShotTask = eqx.field(static=True)
    images: ImageSet

    @usual_settings()
    def __call__(self, examples: int, *, key: PRNGKeyArray) -> Examples:
        """Draw `examples` labelled sequences (examples, tokens, features)."""
        require_float64()
        checked_whole_number("examples", examples, least=1)
        checked_key("key", key)
        keys = jax.random.split(key, examples)
        shown, labels, answers = jax.vmap(lambda key: _draw(self.images, key))(keys)
        return Examples(tokens(self.task, self.images.pixels[shown], labels), answers)


def episodes(task: OneShotTask, images: ImageSet) -> Episodes:
    """Make random sequences of `task` from `images`.

    Raises `ValueError` for images of another size, fewer than two classes, or a class with fewer than two images: the
    third image always differs from the labelled image of its class.
    """
    checked_instance("task", task, OneShotTask)
    checked_instance("images", images, ImageSet, "which image_set returns")
    if images.pixels.shape[1:] != (task.image_size, task.image_size):
        raise ValueError(f"images of {images.pixels.shape[1:]} pixels do not fit image_size={task.image_size}")
    if len(images.class_names) < 2:
        raise ValueError(f"the task needs at least 2 classes, got {len(images.class_names)}")
    counts = np.asarray(images.counts)
    if counts.min() < 2:
        name = images.class_names[int(np.argmin(counts))]
        raise ValueError(f"class {name!r} has {counts.min()} image; each needs at least 2, one to show and one to ask")
    return Episodes(task, images)


@usual_settings()
def tokens(
    task: OneShotTask, pixels: Array, labels: Int[Array, "examples images"]
) -> Float[Array, "examples tokens features"]:
    """Make tokens from `pixels` (examples, images, height, width), 0 to 255, and labels 0, 1, 2: +, -, ?.

    A token is the sum of a patch, layer-normalised with no learned scale; its position in the sequence, as sinusoids of
    mean square one; and the label of its image, a fixed random normal vector. All have as many features as a patch.
    """
    require_float64()
    checked_instance("task", task, OneShotTask)
    pixels, labels = _checked_images(task, pixels, labels)
    normalised = (pixels / 255 - task.pixel_mean) / task.pixel_deviation
    patches = _layer_normalise(_patches(task, normalised))
    vectors = jax.random.normal(jax.random.key(task.label_seed), (3, task.input_features))
    labelled = patches + vectors[labels][:, :, None]
    return labelled.reshape(len(labels), -1, task.input_features) + _positions(task)


def _checked_images(task: OneShotTask, pixels: Array, labels: Array) -> tuple[Array, Array]:
    """Check that pixels and labels fit the task; make pixels float64."""
    grey, kinds = jnp.asarray(checked_array("pixels", pixels)), checked_array("labels", labels)
    if grey.ndim != 4 or grey.shape[2:] != (task.image_size, task.image_size):
        sides = f"{task.image_size}, {task.image_size}"
        raise ValueError(f"pixels must have shape (examples, images, {sides}) for the task, got {grey.shape}")
    if kinds.shape != grey.shape[:2] or kinds.shape[1] != _IMAGES:
        raise ValueError(f"labels must have shape (examples, {_IMAGES}), one an image, got {kinds.shape}")
    message = "labels must be 0 (+), 1 (-) or 2 (?)"
    are_kinds = (kinds == _PLUS) | (kinds == _MINUS) | (kinds == _UNKNOWN)
    kinds = require(kinds, [Requirement(message, are_kinds, lambda: f"{message}, got {shown(labels)}")])
    return grey, jnp.asarray(kinds, dtype=int)


def _draw(images: ImageSet, key: PRNGKeyArray):
    """Draw one sequence: three images, their labels, and the answer."""
    class_key, image_key, answer_key, label_key = jax.random.split(key, 4)
    classes = _two_of(jnp.array(len(images.class_names)), class_key)
    # Draw two images per class: one is shown with its label, and the other may be the one in question.
    image_keys = jax.random.split(image_key)
    pairs = images.starts[classes][:, None] + jax.vmap(_two_of)(images.counts[classes], image_keys)
    asked = jax.random.bernoulli(answer_key).astype(int)
    plus = jax.random.bernoulli(label_key).astype(int)
    shown = jnp.array([pairs[0, 0], pairs[1, 0], pairs[asked, 1]])
    labels = jnp.where(jnp.arange(2) == plus, _PLUS, _MINUS)
    return shown, jnp.append(labels, _UNKNOWN), jnp.where(asked == plus, 1.0, -1.0)


def _two_of(count: Int[Array, ""], key: PRNGKeyArray) -> Int[Array, "2"]:
    """Draw two different whole numbers below `count`."""
    first_key, step_key = jax.random.split(key)
    first = jax.random.randint(first_key, (), 0, count)
    return jnp.stack([first, (first + jax.random.randint(step_key, (), 1, count)) % count])


def _patches(task: OneShotTask, pixels: Float[Array, "*batch size size"]) -> Float[Array, "*batch patches features"]:
    """Cut into patches row by row; the features of a patch are its pixels, once per colour."""
    return jnp.tile(cut_into_patches(pixels, task.patch_size), task.channels)


def _layer_normalise(values: Float[Array, "*batch features"]) -> Float[Array, "*batch features"]:
    """Normalise to mean zero and variance one over the features; a patch of one colour becomes zero."""
    centred = values - values.mean(axis=-1, keepdims=True)
    return centred / jnp.sqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-5)


def _positions(task: OneShotTask) -> Float[Array, "tokens features"]:
    pairs = jnp.arange(task.input_features // 2)
    angles = jnp.arange(task.tokens)[:, None] / 10_000 ** (2 * pairs / task.input_features)
    waves = jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1)
    return jnp.sqrt(2.0) * waves.reshape(task.tokens, task.input_features)
