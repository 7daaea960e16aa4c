"""Settings of the experiment: a size for two processor cores, and the published size."""

from dataclasses import dataclass, field
from typing import Literal

from theorykit.checks import check_fields, checked_number, checked_whole_number

from ..tasks.one_shot import OneShotTask
from ..training import TrainingSettings

UNSEEN = ("digits", "mnist", "fashion-mnist")


@dataclass(frozen=True)
class Variant:
    """A network: heads of each layer, and the dimension G of queries and keys."""

    name: str
    heads: tuple[int, ...]
    head_dimension: int

    def __post_init__(self):
        check_fields(self)
        if not self.heads:
            raise ValueError("heads must have at least one layer, got none")
        for i, count in enumerate(self.heads):
            checked_whole_number(f"heads[{i}]", count, least=1)
        checked_whole_number("head_dimension", self.head_dimension, least=1)


@dataclass(frozen=True)
class Strokes:
    """The numbers of generated characters; see `tasks.strokes`."""

    training: int = 600
    validation: int = 100
    test: int = 200
    drawings: int = 20
    seed: int = 0

    def __post_init__(self):
        for name, least in {"training": 1, "validation": 1, "test": 1, "drawings": 2, "seed": 0}.items():
            checked_whole_number(name, getattr(self, name), least=least)


@dataclass(frozen=True)
class OneShot:
    """One-shot image classification in context (Figs. 3 b-f, 6 and 7 of Tiberi et al.)."""

    variants: tuple[Variant, ...]
    """The networks: the first is from Fig. 3, the others from Figs. 6 and 7."""
    images: Strokes | Literal["omniglot"] = field(default_factory=Strokes)
    """Images to train on. Their unseen classes are used for testing."""
    unseen: tuple[str, ...] = ("digits",)
    """Images of a different kind, for tests out of distribution: some of `UNSEEN`."""
    task: OneShotTask = field(default_factory=lambda: OneShotTask(channels=1))
    """How images become tokens. One colour has a third of the features of three identical colours."""
    width: int = 64
    """Hidden units per layer of the trained network."""
    training: TrainingSettings = field(default_factory=lambda: TrainingSettings(steps=20_000, patience=10))
    training_seeds: int = 3
    """Number of independent trainings of every variant, with separate initial weights and examples."""
    widths: tuple[int, ...] = (10, 30, 100, 300, 1000)
    """Widths N of the theory."""
    temperatures: tuple[float, ...] = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
    """Variances T of the labels' noise. The best one is selected at every width."""
    seeds: int = 5
    """Number of independent draws of the theory's training and test examples, for the same queries and keys."""
    training_examples: int = 200
    test_examples: int = 1000
    chains: int = 4
    warmup: int = 250
    draws: int = 1000
    """Draws of the weights by the sampler, at the smallest width and for every seed."""
    check_warmup: int = 250
    check_draws: int = 500
    """Draws of the order-parameter sampler, with as many chains. It checks the weight sampler at the first seed."""
    orders: int = 10
    """Number of random removal orders of heads."""

    def __post_init__(self):
        check_fields(self)
        for i, width in enumerate(self.widths):
            checked_whole_number(f"widths[{i}]", width, least=1)
        for i, temperature in enumerate(self.temperatures):
            checked_number(f"temperatures[{i}]", temperature, above=0.0)
        counts = (
            "width",
            "training_seeds",
            "seeds",
            "training_examples",
            "test_examples",
            "chains",
            "draws",
            "check_draws",
            "orders",
        )
        least_zero = ("warmup", "check_warmup")
        for name, least in {**dict.fromkeys(counts, 1), **dict.fromkeys(least_zero, 0)}.items():
            checked_whole_number(name, getattr(self, name), least=least)
        if not self.variants or not self.widths or not self.temperatures:
            raise ValueError("nothing to run: variants, widths and temperatures must not be empty")
        if len({variant.name for variant in self.variants}) < len(self.variants):
            raise ValueError(f"variants must have different names, got {[variant.name for variant in self.variants]}")
        if unknown := sorted(set(self.unseen) - set(UNSEEN)):
            raise ValueError(f"unknown images in unseen, {unknown[0]!r}; there are {', '.join(UNSEEN)}")


SMALL = OneShot(variants=(Variant("L2H4", (4, 4), 32), Variant("L3H3", (3, 3, 3), 32), Variant("L2H8", (8, 8), 16)))
"""A size for two processor cores, with generated characters."""

PAPER = OneShot(
    variants=(Variant("L2H4", (4, 4), 128), Variant("L3H3", (3, 3, 3), 170), Variant("L2H8", (8, 8), 64)),
    images="omniglot",
    unseen=("fashion-mnist", "mnist"),
    task=OneShotTask(),
    width=512,
    # Ten epochs, each with one validation; the paper does not give their length.
    training=TrainingSettings(steps=10_000, batch=128, learning_rate=3e-4, validate_every=1000),
    warmup=1000,
    draws=4000,
    check_warmup=1000,
    check_draws=1000,
    widths=(10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000),
    training_examples=600,
    temperatures=(0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5),
)
"""The published size: Omniglot, with MNIST and Fashion-MNIST for tests."""
