"""How long and how fast a network is trained."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TrainingSettings:
    """Adam on the mean squared error, with fresh examples in every step.

    - `steps`: gradient steps.
    - `batch`: examples of a step.
    - `learning_rate`: Adam's, for queries and keys; for values in the units that have no root of the width in front.
    - `validate_every`: steps between two validations; the network that does best in one is the result.
    - `validation_examples`: the same in every validation.
    """

    steps: int = 1500
    batch: int = 128
    learning_rate: float = 2e-3
    validate_every: int = 100
    validation_examples: int = 1000

    def __post_init__(self):
        for name in ("steps", "batch", "validate_every", "validation_examples"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 < self.learning_rate < float("inf"):
            raise ValueError(f"learning_rate must be finite and positive, got {self.learning_rate}")
