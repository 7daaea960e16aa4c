"""The symbols in which an action is written."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sympy import Expr, Integer, MatrixSymbol, Symbol

from ...codegen.compiled import bound_sizes


@dataclass(frozen=True)
class ActionSymbols:
    """The symbols of an action. Symbols per layer are in order from the input side, with the readout last.

    - `heads`: number of heads H_l of each layer with attention.
    - `widths`: number of hidden units before each layer and before the readout.
    - `variances`: prior variances of the weights of each layer and of the readout.
    - `parameters`: further parameters of layers, such as the gain of a skip connection.
    - `temperature`: T, the variance of the labels' noise.
    - `richness`: gamma_0 of the mean-field parameterisation; None in the standard parameterisation.
    - `overlaps`: the matrices U_1, ..., U_{L+1}.
    - `nested`: overlaps that a skip connection makes a block of the previous overlap. The action does not depend on
      them.
    - `features`, `test_features`: path features Phi (labels x paths N_0), with one row per example and output.
    - `labels`: y (labels x 1).
    - `input_features`: N_0, the number of features of a token.
    - `outputs`: the number of outputs, or 1.
    - `examples`: the number of training examples P.
    - `read_tokens`: the number of tokens with separate readout weights, or 1.
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
    richness: Symbol | None = None

    @property
    def first(self) -> MatrixSymbol:
        """U_1, which determines the kernel: from the first layer, or from the readout if there are no layers."""
        return self.overlaps[0]

    @cached_property
    def matrices(self) -> tuple[MatrixSymbol, ...]:
        """(U_1, ..., U_L)."""
        return self.overlaps[:-1]

    @cached_property
    def readout(self) -> Symbol | MatrixSymbol:
        """U_{L+1}, or the number u if there is one output, one token is read and there are layers."""
        is_number = bool(self.matrices) and self.overlaps[-1].shape[0] == 1
        return Symbol("u", positive=True) if is_number else self.overlaps[-1]

    @cached_property
    def order_parameters(self) -> tuple[Expr, ...]:
        """(U_1, ..., U_L, u)."""
        return (*self.matrices, self.readout)

    @cached_property
    def written(self) -> Mapping[MatrixSymbol, Expr]:
        """The order parameter that replaces each of `overlaps` in expressions."""
        return dict(zip(self.overlaps, self.order_parameters, strict=True))

    @cached_property
    def free(self) -> tuple[Expr, ...]:
        """The order parameters on which the action depends: all that are not nested in another one."""
        return tuple(symbol for matrix, symbol in self.written.items() if matrix not in self.nested)

    @property
    def power(self) -> Expr:
        """N_1 gamma_0^2, the power of the likelihood in the mean-field parameterisation; 1 in the standard one."""
        return Integer(1) if self.richness is None else self.widths[0] * self.richness**2

    @cached_property
    def numbers(self) -> tuple[Expr, ...]:
        """Widths, variances, temperature, richness, and parameters of layers."""
        richness = () if self.richness is None else (self.richness,)
        return (*dict.fromkeys(self.widths), *self.variances, self.temperature, *richness, *self.parameters)

    @cached_property
    def sizes(self) -> tuple[Symbol, ...]:
        """Head counts, the number of outputs, and the number of tokens read."""
        return (*self.heads, *(size for size in (self.outputs, self.read_tokens) if isinstance(size, Symbol)))

    @property
    def arguments(self) -> tuple[Expr, ...]:
        """All arguments of the action, in the order of the generated function."""
        return self.completed((*self.free, *self.numbers, self.features, self.labels))

    def completed(self, arguments: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Return `arguments` followed by the sizes that their shapes do not determine."""
        return (*arguments, *(size for size in self.sizes if size not in bound_sizes(arguments)))
