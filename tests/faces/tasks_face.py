"""What the parameters of the tasks' public callables are."""

from functools import cache
from pathlib import Path

import jax
import numpy as np

from theorykit import tasks
from theorykit.tasks import hidden_markov, images, one_shot, published_images, strokes

from .engine import Face
from .values import Kind, array, instance, number, path, text, whole_number

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 8)).astype(np.uint8)
CLASSES = np.array([0, 0, 1, 1, 2, 2])
NAMES = ("a", "b", "c")
SMALL = {"image_size": 8, "patch_size": 4}
MISSING = Path("there-is-no-such-file")


@cache
def image_set():
    return images.image_set(PIXELS, CLASSES, NAMES)


@cache
def one_shot_task():
    return one_shot.OneShotTask(**SMALL)


@cache
def markov_task():
    return hidden_markov.HiddenMarkovTask(length=3, dimension=4)


def grey(right):
    """What is no image."""
    return {
        "negative": right.astype(int) - 300,
        "beyond white": right.astype(int) + 300,
        "with halves": right / 2 + 0.25,
    }


NAME_LISTS = {"with a number": ("a", 1, "c"), "text": "abc"}
PATHS_OF_TEXT = dict.fromkeys(("a list of text", "an array of text"), "names")
EMPTY = dict.fromkeys(("an empty list", "an empty array"), "how many there must be is known from the files")
POSITIVE = number(1.0, least=0.0)
A_FILE = path(lambda: MISSING, {"text": "a name of a file"})

FACE = Face(
    tasks,
    {
        "size": whole_number(8, least=1),
        "key": instance(lambda: jax.random.key(0), also=lambda: {"two keys": jax.random.split(jax.random.key(0))}),
        "examples": whole_number(2, least=1),
        "task": instance(markov_task, also=lambda: {"another task": one_shot_task()}),
        "images": instance(image_set, also=lambda: {"pixels": PIXELS, "of another size": other_size()}),
        "pixels": array(lambda: PIXELS, also=lambda: grey(PIXELS)),
        "classes": array(
            lambda: CLASSES,
            also=lambda: {"with halves": CLASSES + 0.5, "without a name": CLASSES + 1, "fewer": CLASSES[1:]},
        ),
        "class_names": Kind(lambda: NAMES, also=lambda: NAME_LISTS, called=("classes",)),
        "layer": whole_number(1, least=1, most=2),
        "part": text("test"),
        "cache": Kind(lambda: None, {"text": "a name of a folder"}),
        "training": whole_number(1, least=1, most=1),
        "validation": whole_number(1, least=1, most=1),
        "strokes.Pen.strokes": Kind(
            lambda: (2, 4), also=lambda: {"of halves": (1.5, 2), "falling": (3, 2), "three": (1, 2, 3)}
        ),
        **{f"strokes.Pen.{name}": POSITIVE for name in ("jitter", "warp", "shift", "thickness_spread")},
        "strokes.Pen.thickness": number(0.03, above=0.0, most=0.99),
        "strokes.stroke_characters.classes": whole_number(1, least=1),
        "strokes.stroke_characters.drawings": whole_number(1, least=1),
        "pen": instance(strokes.Pen, also=lambda: {"the class": strokes.Pen}),
        "hidden_markov.HiddenMarkovTask.length": whole_number(3, least=1),
        "hidden_markov.HiddenMarkovTask.dimension": whole_number(4, least=2),
        "hidden_markov.HiddenMarkovTask.stay_probability": number(0.7, least=0.0, most=1.0),
        "hidden_markov.HiddenMarkovTask.parallel_noise": POSITIVE,
        "hidden_markov.HiddenMarkovTask.orthogonal_noise": POSITIVE,
        "hidden_markov.HiddenMarkovTask.hardness": number(10.0),
        "one_shot.OneShotTask.image_size": whole_number(32, least=32, most=32),
        "one_shot.OneShotTask.patch_size": whole_number(8, least=8, most=8),
        "one_shot.OneShotTask.channels": whole_number(4, least=1),
        "one_shot.OneShotTask.pixel_mean": number(0.9),
        "one_shot.OneShotTask.pixel_deviation": number(0.1, above=0.0),
        "one_shot.OneShotTask.label_seed": whole_number(0),
        "one_shot.episodes.task": instance(one_shot_task, also=lambda: {"another task": markov_task()}),
        "one_shot.tokens.task": instance(one_shot_task, also=lambda: {"another task": markov_task()}),
        "one_shot.tokens.pixels": array(
            lambda: PIXELS[None, :3], "labels", also=lambda: {"of another size": PIXELS[None, :3, 1:]}
        ),
        "one_shot.tokens.labels": array(
            lambda: np.array([[0, 1, 2]]),
            also=lambda: {"of another kind": np.array([[0, 1, 3]]), "with halves": np.array([[0.5, 1, 2]])},
        ),
        "images.ImageSet.of_classes.chosen": Kind(
            lambda: [0, 1], also=lambda: {"that are not": [3], "of halves": [0.5], "negative": [-1]}
        ),
        "image_files.resize.pixels": array(lambda: PIXELS[0], also=lambda: grey(PIXELS[0])),
        "image_files.read_omniglot.archives": Kind(lambda: [MISSING], PATHS_OF_TEXT, lambda: {"one path": MISSING}),
        "image_files.read_idx.images": A_FILE,
        "image_files.read_idx.labels": A_FILE,
        "image_files.read_idx.class_names": Kind(lambda: NAMES, {**PATHS_OF_TEXT, **EMPTY}, lambda: NAME_LISTS),
        "images.cut_into_patches.images": array(
            lambda: PIXELS, also=lambda: {"a row": PIXELS[0, 0], "odd": PIXELS[:, 1:]}
        ),
        "images.cut_into_patches.size": whole_number(4, least=1, most=1),
        "published_images.split_by_name.images": instance(image_set, also=lambda: {"pixels": PIXELS}),
        "published_images.fetch.source": instance(lambda: published_images.MNIST),
        "published_images.fetch.file": text("t10k-labels-idx1-ubyte.gz"),
    },
    instances={
        "images.ImageSet": image_set,
        "one_shot.Episodes": lambda: one_shot.episodes(one_shot_task(), image_set()),
    },
    records={
        "examples.Examples": "a task makes it",
        "images.ImageSet": "image_set makes it",
        "one_shot.Episodes": "episodes makes it",
        "published_images.OmniglotSplit": "split_by_name makes it",
    },
    untried={
        "images.checked_pixels": "it is a check itself",
        "images.checked_numbers_of_classes": "it is a check itself",
    },
    examples={
        **dict.fromkeys(
            [f"published_images.{name}" for name in ("omniglot", "mnist", "fashion_mnist", "fetch")],
            "needs a network",
        ),
        "image_files.read_omniglot": "needs a file",
        "image_files.read_idx": "needs files",
        "digits.handwritten_digits": "draws 1797 images",
    },
)


def other_size():
    return images.image_set(PIXELS[:, 1:, 1:], CLASSES, NAMES)
