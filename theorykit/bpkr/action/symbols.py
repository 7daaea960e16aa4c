"""The symbols that an action is written in."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sympy import Expr, MatrixSymbol, Symbol

from ...codegen.program import bound_sizes


@dataclass(frozen=True)
class ActionSymbols:
    """The symbols of an action, layer by layer from the input side; readout last.

    `parameters` are the layers' own, such as a skip's gain; `overlaps` the matrices U_1, ..., U_{L+1}, and `nested`
    those that are a block of the one before, across a skip connection, and so not arguments of the action. Of the data:
    path features Phi (labels x paths N_0), one row of Phi and one label an example and output; those of test examples;
    N_0, the outputs, and how many examples there are. `read_tokens` is how many tokens the readout has weights of its
    own for.
    """

    heads: tuple[Symbol, ...]
    widths: tuple[Symbol, ...]
    variances: tuple[Symbol, ...]
    parameters: tuple[Symbol | MatrixSymbol, ...]
    temperature: Symbol
    overlaps: tuple[MatrixSymbol, ...]
    nested: tuple[MatrixSymbol, ...]
    features: MatrixSymbol
    labels: MatrixSymbol
    test_features: MatrixSymbol
    input_features: Symbol
    outputs: Expr
    examples: Symbol
    read_tokens: Expr

    @property
    def first(self) -> MatrixSymbol:
        """U_1, which the kernel is made of: of the first layer, or of the readout where there is no layer."""
        return self.overlaps[0]

    @cached_property
    def matrices(self) -> tuple[MatrixSymbol, ...]:
        """(U_1, ..., U_L)."""
        return self.overlaps[:-1]

    @cached_property
    def readout(self) -> Symbol | MatrixSymbol:
        """U_{L+1}, or the number u that it is for one output of one token above layers."""
        is_number = bool(self.matrices) and self.overlaps[-1].shape[0] == 1
        return Symbol("u", positive=True) if is_number else self.overlaps[-1]

    @cached_property
    def order_parameters(self) -> tuple[Expr, ...]:
        """(U_1, ..., U_L, u)."""
        return (*self.matrices, self.readout)

    @cached_property
    def written(self) -> Mapping[MatrixSymbol, Expr]:
        """Each of `overlaps`, and the order parameter that it is written as."""
        return dict(zip(self.overlaps, self.order_parameters, strict=True))

    @cached_property
    def free(self) -> tuple[Expr, ...]:
        """The order parameters that the action is a function of: all but those nested in another."""
        return tuple(symbol for matrix, symbol in self.written.items() if matrix not in self.nested)

    @cached_property
    def numbers(self) -> tuple[Expr, ...]:
        """Widths, variances, temperature, and the layers' own parameters."""
        return (*dict.fromkeys(self.widths), *self.variances, self.temperature, *self.parameters)

    @cached_property
    def sizes(self) -> tuple[Symbol, ...]:
        """Head counts, the number of outputs, and that of the tokens read."""
        return (*self.heads, *(size for size in (self.outputs, self.read_tokens) if isinstance(size, Symbol)))

    @property
    def arguments(self) -> tuple[Expr, ...]:
        """Everything that the action is a function of, in the order of the generated function's arguments."""
        return self.completed((*self.free, *self.numbers, self.features, self.labels))

    def completed(self, arguments: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """`arguments`, and those of the sizes that their shapes do not determine."""
        return (*arguments, *(size for size in self.sizes if size not in bound_sizes(arguments)))
