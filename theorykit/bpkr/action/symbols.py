"""The symbols in which an action is written."""

from sympy import Expr, Identity, Integer, MatrixExpr, MatrixSymbol, Symbol, expand

from ...codegen.compiled import bound_sizes
from ...symbolic import kronecker, positive_definite, sum_of
from ..specification.layers import TOKENS, NetworkForm


def size(name: str) -> Symbol:
    return Symbol(name, integer=True, positive=True)


class ActionSymbols:
    """The symbols of an action, per layer from the input side, with the readout last.

    - `power`: N_1 gamma_0^2, or 1 in the standard parameterisation.
    - `overlaps`: matrices U_1, ..., U_{L+1}; `nested` ones are blocks of the one before.
    - `order_parameters`: with a number u for U_{L+1} of one entry, as `written` maps them.
    - `free`: the order parameters that are not nested.
    - `features`, `test_features`: Phi, a column per path and N_0; `labels`: y.
    - `noises`: by layer, roots Psi and Psi_test of the noise of its nonlinear units, with
      a column per partial path after the layer and direction.
    - `numbers`, `sizes`: scalars, and those that are sizes of arrays.
    """

    def __init__(self, form: NetworkForm):
        self.form, layers = form, form.layers
        self.outputs = size("C") if form.several_outputs else Integer(1)
        self.read_tokens = TOKENS if form.every_token else Integer(1)
        rows = [expand(self.outputs * self.read_tokens)]
        for layer in reversed(layers):
            rows.insert(0, expand(layer.branches * rows[0]))
        heads = (layer.symbols.heads for layer in layers if layer.forward.has(layer.symbols.heads))
        self.heads, self.widths = tuple(heads), form.widths
        variances = (layer.symbols.variance for layer in layers)
        self.variances = (*variances, Symbol("sigma2_a", positive=True))
        parameters = frozenset().union(*(layer.parameters for layer in layers))
        self.parameters = tuple(sorted(parameters, key=str))
        self.temperature = Symbol("T", positive=True)
        self.richness = Symbol("gamma_0", positive=True) if form.has_richness else None
        self.power = self.widths[0] * self.richness**2 if form.has_richness else Integer(1)

        self.overlaps = tuple(positive_definite(f"U_{i}", count) for i, count in enumerate(rows, 1))
        pairs = zip(layers, self.overlaps[1:], strict=True)
        self.nested = tuple(outer for layer, outer in pairs if layer.has_skip)
        self.first = self.overlaps[0]
        self.matrices = self.overlaps[:-1]
        is_number = bool(layers) and rows[-1] == 1
        self.readout = Symbol("u", positive=True) if is_number else self.overlaps[-1]
        self.order_parameters = (*self.matrices, self.readout)
        self.written = dict(zip(self.overlaps, self.order_parameters, strict=True))
        self.free = tuple(self.written[u] for u in self.overlaps if u not in self.nested)

        self.input_features = size("N_0")
        self.examples = size("P")
        columns = expand(rows[0] * self.input_features)
        self.features = MatrixSymbol("Phi", self.examples * self.outputs, columns)
        self.test_features = MatrixSymbol("Phi_test", size("P_test") * self.outputs, columns)
        self.labels = MatrixSymbol("y", self.examples * self.outputs, 1)
        self.noises = {}
        for layer, _ in form.between:
            columns = expand(rows[layer] * size("D"))
            pairs = ((f"Psi_{layer}", self.examples), (f"Psi_{layer}test", size("P_test")))
            roots = [MatrixSymbol(name, count * self.outputs, columns) for name, count in pairs]
            self.noises[layer] = tuple(roots)

        richness = (self.richness,) if form.has_richness else ()
        scalars = *self.variances, self.temperature, *richness, *self.parameters
        self.numbers = (*dict.fromkeys(self.widths), *scalars)
        sizes = *self.heads, self.outputs, self.read_tokens
        self.sizes = tuple(each for each in sizes if each.is_Symbol)

    @property
    def arguments(self) -> tuple[Expr, ...]:
        return self.completed((*self.free, *self.numbers, *self.data))

    def kernel(self, one: int = 0, other: int = 0, *, written: bool = True) -> MatrixExpr:
        """Return K (Eq. 10) of training (0) or test (1) examples, in u if `written`."""
        terms = [(self.first, self.input_features, (self.features, self.test_features))]
        terms += [(self.overlaps[layer], size("D"), roots) for layer, roots in self.noises.items()]
        total = []
        for u, copies, roots in terms:
            matrix = self.written[u] if written else u
            matrix = matrix if matrix.is_Matrix else matrix * Identity(1)
            total.append(roots[one] * kronecker(matrix, Identity(copies)) * roots[other].T)
        return sum_of(total)

    @property
    def data(self) -> tuple[MatrixSymbol, ...]:
        return (self.features, *(psi for psi, _ in self.noises.values()), self.labels)

    def completed(self, arguments: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Add the sizes that the shapes of `arguments` do not determine."""
        return (*arguments, *(each for each in self.sizes if each not in bound_sizes(arguments)))
