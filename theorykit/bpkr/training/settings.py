"""How long and how fast a network is trained."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from ...checks import Positive, check_fields, checked_whole_number

# a random key is made of each step's number, of which JAX takes 32 bits
Number = Annotated[int, partial(checked_whole_number, least=1, most=2**32 - 1)]


@dataclass(frozen=True)
class TrainingSettings:
    """Adam on the mean squared error, with fresh examples in every step.

    - `steps`: gradient steps. `batch`: examples per step.
    - `learning_rate`: Adam's, for queries and keys; for values in the units that have no root of the width in front.
    - `validate_every`: steps between two validations. `validation_examples`: the same in every validation.
    - `patience`: training stops early if so many validations in a row were no better than the best before them.
    """

    steps: Number = 1500
    batch: Number = 128
    learning_rate: Positive = 2e-3
    validate_every: Number = 100
    validation_examples: Number = 1000
    patience: Number | None = None

    def __post_init__(self):
        check_fields(self)
