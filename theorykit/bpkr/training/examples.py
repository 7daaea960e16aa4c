"""Labelled sequences: what every task makes, and every network is trained and tried on."""

import equinox as eqx
from jaxtyping import Array, Float


class Examples(eqx.Module):
    """Sequences (examples, tokens, features) and their classes, +1 or -1 (examples,)."""

    inputs: Float[Array, "examples tokens features"]
    labels: Float[Array, " examples"]
