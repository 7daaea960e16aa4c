"""Settings of training: length, batch, learning rate and validation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from ...checks import Positive, check_fields, checked_whole_number

# The number of each step is folded into a random key, and JAX takes 32 bits of it.
Number = Annotated[int, partial(checked_whole_number, least=1, most=2**32 - 1)]


@dataclass(frozen=True)
class TrainingSettings:
    """Adam on the mean squared error, with fresh examples in every step.

    - `steps`: gradient steps. `batch`: examples per step.
    - `learning_rate`: Adam's learning rate for queries and keys, and for values in units without a root of the width.
    - `validate_every`: steps between two validations. `validation_examples`: their number; they stay the same.
    - `patience`: training stops early after this many validations in a row without a new best accuracy.
    """

    steps: Number = 1500
    batch: Number = 128
    learning_rate: Positive = 2e-3
    validate_every: Number = 100
    validation_examples: Number = 1000
    patience: Number | None = None

    def __post_init__(self):
        check_fields(self)
