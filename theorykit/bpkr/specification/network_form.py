"""What the action of a network depends on: everything about its structure, and none of its numbers."""

from dataclasses import dataclass

from sympy import Expr, Integer, Symbol, expand

from .activations import Activation
from .layer_form import LayerForm

TOKENS = Symbol("N_tokens", integer=True, positive=True)
"""How many tokens a readout reads that has weights of its own for each."""


@dataclass(frozen=True)
class NetworkForm:
    """The forms of the layers, from the input side, and of what is before and after them.

    - `several_outputs`: whether there is more than one output.
    - `every_token`: whether the readout reads every token with weights of its own.
    - `activations`: phi of the embedding and of the dense layers above it, up to the last that is not linear; empty
      where all are linear.
    """

    layers: tuple[LayerForm, ...]
    several_outputs: bool = False
    every_token: bool = False
    activations: tuple[Activation, ...] = ()

    @property
    def outputs(self) -> Expr:
        """C, the number of outputs: a symbol where there are several."""
        return Symbol("C", integer=True, positive=True) if self.several_outputs else Integer(1)

    @property
    def readings(self) -> Expr:
        """How many numbers the readout makes of the last hidden layer: one an output, and one a token that is read."""
        return expand(TOKENS * self.outputs) if self.every_token else self.outputs

    @property
    def widths(self) -> tuple[Expr, ...]:
        """(N_1, ..., N_L, N_a): the hidden units before every layer, and before the readout."""
        if not self.layers:
            return (width_symbol("a"),)
        return (*(form.symbols.width for form in self.layers), self.layers[-1].symbols.next_width)


def width_symbol(name: str) -> Symbol:
    """N_name, the hidden units before the layer of that name; "a" is the readout."""
    return Symbol(f"N_{name}", positive=True)
