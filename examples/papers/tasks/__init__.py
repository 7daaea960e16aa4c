"""Tasks that provide data for the theory."""

from typing import NamedTuple

from jaxtyping import Array, Float


class Examples(NamedTuple):
    """Sequences `inputs` (examples, tokens, features), and their `labels` +1 or -1 (examples,)."""

    inputs: Float[Array, "examples tokens features"]
    labels: Float[Array, " examples"]
