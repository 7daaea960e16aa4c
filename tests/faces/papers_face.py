"""The parameters of the papers' tasks and settings."""

import types

import jax
import numpy as np

from papers import hidden_markov, one_shot, self_attention_dynamics, tasks
from papers.one_shot.settings import UNSEEN
from papers.tasks.hidden_markov import HiddenMarkovTask
from papers.tasks.images import image_set
from papers.tasks.one_shot import Episodes, OneShotTask
from papers.tasks.strokes import Pen
from theorykit import dmft
from theorykit.bpkr.training import TrainingSettings

from .engine import Face
from .values import BATCHES, EMPTY, FOLDER, KEY, NONE, NUMBERS, TEXTS, Kind, number, of, text, whole_number

EVERY = types.ModuleType("papers")
EVERY.__all__ = ["tasks", "hidden_markov", "one_shot", "self_attention_dynamics"]
EVERY.tasks, EVERY.one_shot = tasks, one_shot
EVERY.hidden_markov, EVERY.self_attention_dynamics = hidden_markov, self_attention_dynamics

PIXELS, NAMES = np.arange(6 * 64, dtype=np.uint8).reshape(6, 8, 8), ["a", "b", "c"]
CLASSES = np.array([0, 0, 1, 1, 2, 2])
IMAGES = image_set(PIXELS, CLASSES, NAMES)
GREY = Kind(lambda: PIXELS, also=lambda: {"of halves": PIXELS + 0.5, "too bright": PIXELS + 200.0, "flat": PIXELS[0]})
HIDDEN = HiddenMarkovTask(length=6, dimension=8)
TASK = OneShotTask(image_size=8, patch_size=4, channels=1)
VARIANT = one_shot.Variant("L2H22", (2, 2), 4)
DYNAMICS = self_attention_dynamics.SelfAttentionDynamics()
WEIGHTS = dmft.iid_weights(3, 5, 2, key=jax.random.key(0))
POSITIVE = of((1,), zero=(0,), half=(1.5,))

FACE = Face(
    EVERY,
    {
        "task": of(TASK, hidden=HIDDEN),
        " ".join(
            f"tasks.hidden_markov.{name}.task"
            for name in ("sample_examples", "good_head", "uniform_head", "random_head", "good_and_random_heads")
        ): of(HIDDEN, images=TASK),
        "key": KEY,
        "length": 6,
        "tasks.hidden_markov.HiddenMarkovTask.dimension": of(8, odd=7),
        "stay_probability": number(0.7, least=0.0, most=1.0),
        "parallel_noise orthogonal_noise": number(1.0, least=0.0),
        "tasks.image_files.resize.pixels": of(Kind(lambda: PIXELS[0]), wide=PIXELS[0, :4], several=PIXELS),
        "hardness": number(5.0),
        # text is the name of a file that is not there
        "archives": of([FOLDER / "a.zip"], admits=(*TEXTS, "with one that is text")),
        "tasks.image_files.read_idx.images tasks.image_files.read_idx.labels": FOLDER / "a.gz",
        "tasks.images.image_set.class_names": of(NAMES, "names", one=["a"]),
        "class_names": of(NAMES, admits=(*TEXTS, *EMPTY)),
        "classes": of(Kind(lambda: CLASSES), below_zero=CLASSES - 1, halves=CLASSES / 2, fewer=CLASSES[1:]),
        "images": of(IMAGES, pixels=PIXELS),
        "tasks.images.cut_into_patches.images": of(PIXELS.astype(float), admits=("with an infinity",)),
        "tasks.images.cut_into_patches.size": of(4, "patches", no_divisor=3),
        "pixels": GREY,
        "chosen": of([0], absent=[3], twice=[0.5]),
        "training validation": 1,
        "tasks.published_images.split_by_name.training tasks.published_images.split_by_name.validation": of(1, all=3),
        "tasks.one_shot.tokens.pixels": of(np.ones((2, 3, 8, 8)), "labels"),
        "labels": np.ones((2, 3), dtype=int),
        "tasks.one_shot.OneShotTask.image_size": of(32, no_multiple=33),
        "patch_size": of(4, no_divisor=5),
        "pixel_mean": number(0.5),
        "label_seed": whole_number(0, least=-1),
        "strokes": of((1, 2), none=(0, 2), descending=(3, 2), one=(1,)),
        "jitter warp shift thickness_spread": number(0.1, least=0.0),
        "thickness": number(0.1, above=0.0, below=1.0),
        "tasks.strokes.stroke_characters.classes": 2,
        "pen": of(Pen(), admits=NONE, strokes=(1, 2)),
        "name": text("L2"),
        "heads": of((2, 2), of_none=(2, 0), admits=()),
        "hidden_markov.Variant.settings": HIDDEN,
        "hidden_markov.Variant.heads": of((1, 2), three=(1, 2, 2), zero=(0, 1)),
        "second_head": "random",
        "widths": POSITIVE,
        "temperatures": of((0.5,), zero=(0.0,)),
        "first_seed seed warmup check_warmup transient": whole_number(1, least=0),
        "variants": of((VARIANT,), twice=(VARIANT, VARIANT)),
        "one_shot.OneShot.images": of(one_shot.Strokes(), another="emnist"),
        "unseen": of(UNSEEN[:1], admits=EMPTY, another=("cats",)),
        "drawings": 2,
        "one_shot.Strokes.drawings": whole_number(2, least=2),
        "one_shot.OneShot.training": TrainingSettings(steps=1),
        "betas": of((1.0,), zero=(0.0,)),
        "lowest": number(0.0, least=0.0, below=2.0),
        "highest": number(2.0, above=0.0),
        "values exponents": whole_number(3, least=2),
        "recorded": 400,
        "measured": 100,
        "self_attention_dynamics.SelfAttentionDynamics.recorded": of(whole_number(8000, least=2), too_few=399),
        "shown": of(100, more_than_recorded=10**9),
        "self_attention_dynamics.SelfAttentionDynamics.transient": of(whole_number(100, least=4), too_few=3),
        "diagram zoom": DYNAMICS.diagram,
        "phases": DYNAMICS.phases,
        "attention start": number(1.0, least=0.0),
        "epsilon": number(0.1, least=0.0, most=1.0),
        "beta": of(np.array([1.0]), admits=(*NUMBERS, *BATCHES, "True")),
        "model": dmft.self_attention_limit(WEIGHTS, 4),
    },
    instances={
        "tasks.images.ImageSet": IMAGES,
        "tasks.one_shot.Episodes": Episodes(TASK, IMAGES),
        "hidden_markov.Variant": hidden_markov.VARIANTS[0],
        "self_attention_dynamics.SelfAttentionDynamics": DYNAMICS,
    },
    made="tasks.images.ImageSet tasks.one_shot.Episodes tasks.published_images.OmniglotSplit",
    untried={
        "tasks.images.checked_pixels tasks.images.checked_numbers_of_classes": "checks of other functions' arguments",
        " ".join(
            f"tasks.published_images.{name}" for name in ("omniglot", "mnist", "fashion_mnist", "fetch")
        ): "a download",
        "one_shot.run hidden_markov.run self_attention_dynamics.run hidden_markov.run_seed": "the commands try them",
        "self_attention_dynamics.settle_window self_attention_dynamics.orbit": "parts of a run",
    },
    examples={"tasks.image_files.read_omniglot tasks.image_files.read_idx": "its files are written by their own tests"},
)
