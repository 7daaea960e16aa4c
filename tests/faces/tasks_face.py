"""The parameters of tasks."""

from pathlib import Path

import numpy as np

from theorykit import tasks
from theorykit.tasks import hidden_markov, images, one_shot, published_images, strokes

from .engine import Face
from .values import EMPTY, KEY, TEXTS, number, of, whole_number

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 8)).astype(np.uint8)
CLASSES = np.array([0, 0, 1, 1, 2, 2])
NAMES = ("a", "b", "c")
MISSING = Path("there-is-no-such-file")
IMAGES = images.image_set(PIXELS, CLASSES, NAMES)
ONE_SHOT = one_shot.OneShotTask(image_size=8, patch_size=4)
MARKOV = hidden_markov.HiddenMarkovTask(length=3, dimension=4)
OF_ONE_SHOT = of(ONE_SHOT, another_task=MARKOV)
NAME_LISTS = {"with_a_number": ("a", 1, "c"), "text": "abc"}
TASK, SHOT = "hidden_markov.HiddenMarkovTask", "one_shot.OneShotTask"


def grey(right):
    """Pixels, and what is no image."""
    negative, beyond_white = right.astype(int) - 300, right.astype(int) + 300
    return of(right, negative=negative, beyond_white=beyond_white, with_halves=right / 2 + 0.25)


def names(*parts):
    """The names of several parameters of one callable."""
    return " ".join(f"{parts[0]}.{part}" for part in parts[1:])


FACE = Face(
    tasks,
    {
        "size": 8,
        "key": KEY,
        "examples": 2,
        "task": of(MARKOV, another_task=ONE_SHOT),
        "images": of(IMAGES, pixels=PIXELS, of_another_size=images.image_set(PIXELS[:, 1:, 1:], CLASSES, NAMES)),
        "pixels": grey(PIXELS),
        "classes": of(CLASSES, with_halves=CLASSES + 0.5, without_a_name=CLASSES + 1, fewer=CLASSES[1:]),
        "class_names": of(NAMES, "classes", **NAME_LISTS),
        "layer": whole_number(1, least=1, most=2),
        "part": "test",
        "cache": of(None, admits=("text",)),
        "training validation": whole_number(1, least=1, most=1),
        "strokes.Pen.strokes": of((2, 4), of_halves=(1.5, 2), falling=(3, 2), three=(1, 2, 3)),
        names("strokes.Pen", "jitter", "warp", "shift", "thickness_spread"): number(1.0, least=0.0),
        "strokes.Pen.thickness": number(0.03, above=0.0, most=0.99),
        names("strokes.stroke_characters", "classes", "drawings"): 1,
        "pen": of(strokes.Pen(), the_class=strokes.Pen),
        f"{TASK}.length": 3,
        f"{TASK}.dimension": whole_number(4, least=2),
        f"{TASK}.stay_probability": number(0.7, least=0.0, most=1.0),
        names(TASK, "parallel_noise", "orthogonal_noise"): number(1.0, least=0.0),
        f"{TASK}.hardness": number(10.0),
        f"{SHOT}.image_size": whole_number(32, least=32, most=32),
        f"{SHOT}.patch_size": whole_number(8, least=8, most=8),
        f"{SHOT}.channels": 4,
        f"{SHOT}.pixel_mean": number(0.9),
        f"{SHOT}.pixel_deviation": 0.1,
        f"{SHOT}.label_seed": whole_number(0),
        "one_shot.episodes.task one_shot.tokens.task": OF_ONE_SHOT,
        "one_shot.tokens.pixels": of(PIXELS[None, :3], "labels", of_another_size=PIXELS[None, :3, 1:]),
        "one_shot.tokens.labels": of(
            np.array([[0, 1, 2]]), of_another_kind=np.array([[0, 1, 3]]), with_halves=np.array([[0.5, 1, 2]])
        ),
        "images.ImageSet.of_classes.chosen": of([0, 1], absent=[3], half=[0.5], negative=[-1]),
        "image_files.resize.pixels": grey(PIXELS[0]),
        "image_files.read_omniglot.archives": of([MISSING], admits=(*TEXTS, "with one that is text")),
        names("image_files.read_idx", "images", "labels"): MISSING,
        # how many names there must be is known from the files
        "image_files.read_idx.class_names": of(NAMES, admits=(*TEXTS, *EMPTY), **NAME_LISTS),
        "images.cut_into_patches.images": of(PIXELS, row=PIXELS[0, 0], odd=PIXELS[:, 1:]),
        "images.cut_into_patches.size": whole_number(4, least=1, most=1),
        "published_images.split_by_name.images": of(IMAGES, pixels=PIXELS),
        "published_images.fetch.source": published_images.MNIST,
        "published_images.fetch.file": "t10k-labels-idx1-ubyte.gz",
    },
    instances={"images.ImageSet": IMAGES, "one_shot.Episodes": one_shot.episodes(ONE_SHOT, IMAGES)},
    records={
        "examples.Examples": "a task makes it",
        "images.ImageSet": "image_set makes it",
        "one_shot.Episodes": "episodes makes it",
        "published_images.OmniglotSplit": "split_by_name makes it",
    },
    untried={names("images", "checked_pixels", "checked_numbers_of_classes"): "they are checks themselves"},
    examples={
        names("published_images", "omniglot", "mnist", "fashion_mnist", "fetch"): "needs a network",
        names("image_files", "read_omniglot", "read_idx"): "needs files",
        "digits.handwritten_digits": "draws 1797 images",
    },
)
