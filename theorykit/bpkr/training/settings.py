"""How long and how fast a network is trained."""

from dataclasses import dataclass

from ...checks import checked_number, checked_whole_number

# random keys are made of a step's number, of which JAX takes 32 bits
_MOST = 2**32 - 1


@dataclass(frozen=True)
class TrainingSettings:
    """Adam on the mean squared error, with fresh examples in every step.

    - `steps`: gradient steps.
    - `batch`: examples of a step.
    - `learning_rate`: Adam's, for queries and keys; for values in the units that have no root of the width in front.
    - `validate_every`: steps between two validations; the network that does best in one is the result.
    - `validation_examples`: the same in every validation.
    - `patience`: training stops before its last step when so many validations in a row were no better than the best
      before them; None: it does not.

    Raises `TypeError` or `ValueError` for what is no positive number, or no whole one.
    """

    steps: int = 1500
    batch: int = 128
    learning_rate: float = 2e-3
    validate_every: int = 100
    validation_examples: int = 1000
    patience: int | None = None

    def __post_init__(self):
        for name in ("steps", "batch", "validate_every", "validation_examples"):
            checked_whole_number(name, getattr(self, name), least=1, most=_MOST)
        if self.patience is not None:
            checked_whole_number("patience", self.patience, least=1, most=_MOST)
        checked_number("learning_rate", self.learning_rate, above=0.0)
