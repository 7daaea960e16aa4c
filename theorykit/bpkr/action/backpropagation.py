"""Back-propagating kernel renormalisation: the weights integrated out block by block, from the readout to the input.

Part of stage 1 of `Architecture -> derive -> Action -> compile -> bind -> solve -> predict`.
At every layer the same sequence of rules turns the readings R_l = sum over examples of X_l q_l t, of the layer's
output, into those of its input:

    tr(M R_l^T R_l)/N_{l+1}  ->  entropy of U_{l+1}  +  tr(M' R_{l-1}^T R_{l-1})/N_l,   M' = covariance (x) U_{l+1}

Equation numbers are those of Tiberi et al., arXiv 2405.15926. Actions S stand for integrands exp(-S/2).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sympy import Expr, Identity, MatrixSymbol, S, Symbol, Trace, expand, sqrt
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...derivation import Recorder, Step, rules
from ...derivation.claims import Equal
from ...symbolic import SideBySide, Stacked, expand_products, kronecker, latex, normal, positive_definite
from ..specification.layer_form import LayerForm, network_widths

_LARGE = "width ${width}$ large, the number of partial paths finite, examples proportional to the width"


@dataclass(frozen=True)
class DataSymbols:
    """The symbols of the data: path features Phi (labels x paths N_0), labels, temperature; those of test examples.

    One row of Phi and one label an example and output; `outputs` is their number an example.
    """

    features: MatrixSymbol
    labels: MatrixSymbol
    test_features: MatrixSymbol
    temperature: Symbol
    outputs: Expr
    examples: Expr
    input_features: Symbol


@dataclass(frozen=True)
class Backpropagated:
    """What the route arrives at, with every step on the way.

    - `entropies`: (S_1, ..., S_L, S_{L+1}), each of one order parameter given the next, constants dropped.
    - `nested`: order parameters that are a block of the one before, by a skip connection.
    - `energy`, `kernel`, `test_kernel`, `mean`, `covariance`: of the data, given U_1.
    """

    steps: tuple[Step, ...]
    entropies: tuple[Expr, ...]
    nested: Mapping[MatrixSymbol, MatrixExpr]
    energy: Expr
    kernel: MatrixExpr
    test_kernel: MatrixExpr
    mean: MatrixExpr
    covariance: MatrixExpr


@dataclass
class _Route(Recorder):
    """The route under way: its steps, and what later steps need of them."""

    order_parameters: tuple[MatrixSymbol, ...] = ()  # (U_1, ..., U_{L+1})
    widths: tuple[Expr, ...] = ()  # (N_1, ..., N_{L+1})
    entropies: dict[int, Expr] = field(default_factory=dict)
    pending: dict[int, Expr] = field(default_factory=dict)  # terms of order parameters that await the next layer
    nested: dict[MatrixSymbol, MatrixExpr] = field(default_factory=dict)

    def auxiliary(self, layer: int) -> MatrixSymbol:
        """Q_l, the overlap whose Fourier conjugate is U_l."""
        return positive_definite(f"Q_{layer}", self.order_parameters[layer - 1].shape[0])

    def readings(self, layer: int) -> MatrixSymbol:
        """R_l, the readings of the output of layer l (N_{l+1} x n_{l+1})."""
        return MatrixSymbol(f"R_{layer}", self.widths[layer], self.order_parameters[layer].shape[0])


def backpropagate(
    forms: tuple[LayerForm, ...],
    order_parameters: tuple[MatrixSymbol, ...],
    readout_variance: Symbol,
    data: DataSymbols,
) -> Backpropagated:
    """Integrate all weights out of the posterior, Eq. (8), of a network with the layers `forms`."""
    widths = network_widths(forms)
    route = _Route(order_parameters=order_parameters, widths=widths)
    _labels(route, data)
    inner = _readout(route, readout_variance, data)
    for layer, form in reversed(list(enumerate(forms, 1))):
        inner = _layer(route, layer, form, inner)
    of_data = _embedding(route, inner, data)
    kernel, test_kernel = _kernels(of_data, data)
    with_sources = _training_examples(route, of_data, data)
    energy, mean, covariance = _predictor(route, with_sources, data)
    _meaning(route, inner, data)
    entropies = tuple(_drop_constants(route, layer) for layer in range(1, len(widths) + 1))
    return Backpropagated(
        steps=tuple(route.steps),
        entropies=entropies,
        nested={symbol: route.nested[symbol] for symbol in order_parameters if symbol in route.nested},
        energy=energy,
        kernel=kernel,
        test_kernel=test_kernel,
        mean=mean,
        covariance=covariance,
    )


def _auxiliary_field(data: DataSymbols) -> MatrixSymbol:
    return MatrixSymbol("t", *data.labels.shape)


def _labels(route: _Route, data: DataSymbols) -> None:
    route.section = "Labels"
    residual = MatrixSymbol("f", *data.labels.shape) - data.labels
    squares = Trace(residual.T * residual) / data.temperature  # Eq. (8)
    route.apply(rules.linearise_square, squares, _auxiliary_field(data), equations="37-40")


def _readout(route: _Route, variance: Symbol, data: DataSymbols) -> MatrixExpr:
    """The readout weights integrated out; what is left between the readings of the last layer's output."""
    route.section, width = "Readout", route.widths[-1]
    depth = len(route.widths) - 1
    weights = MatrixSymbol("A", data.outputs, width)
    hidden = MatrixSymbol(f"X_{depth}", width, data.examples)
    field_ = _auxiliary_field(data)
    output = Stacked(weights * hidden, data.examples) / sqrt(width)  # Eq. (4)
    coupling = route.apply(rules.unstack, 2 * S.ImaginaryUnit * Trace(field_.T * output), equations="4, 40")
    readings = route.readings(depth)
    value = hidden * Stacked(field_.T, data.examples)
    coupling = route.apply(rules.name, coupling, readings, value, equations="43")
    row, column = MatrixSymbol("v", width, 1), MatrixSymbol("r", width, 1)
    rows = [(row, weights), (column, readings.T)]
    one_row = route.apply(rules.split_into_rows, coupling, rows, equations="43")
    integrated = route.apply(rules.gaussian_average, one_row, row, variance * Identity(width), equations="44")
    total = route.apply(rules.sum_over_rows, integrated, data.outputs, [(column, readings.T)], equations="45")
    return _next_inner(route, depth + 1, total, readings)


def _layer(route: _Route, layer: int, form: LayerForm, inner: MatrixExpr) -> MatrixExpr:
    """The weights of layer l integrated out, U_{l+1} introduced; what is left between the readings of its input."""
    route.section = f"Layer {layer}"
    depth = len(route.widths) - 1
    route.equations = "46-56" if layer == depth else "57-69"
    _forward(route, layer, form)
    width, outer = form.symbols.width, route.order_parameters[layer].shape[0]
    blocks = MatrixSymbol(f"Z_{layer}", form.weights.shape[1], outer)
    skip = MatrixSymbol(f"R_{layer - 1}s", width, outer)
    columns = expand(form.blocks * outer)
    through = MatrixSymbol(f"R_{layer - 1}b" if form.has_skip else f"R_{layer - 1}", width, columns)
    covariance = kronecker(form.covariance, Identity(width))
    rest = _integrate_weights(route, layer + 1, form.weights, blocks, covariance, inner, (form.gain, skip))
    stacked = rules.terms_with(rest, blocks).xreplace({blocks: Stacked(through, form.blocks) / sqrt(width)})
    remaining = route.apply(rules.gather_blocks, stacked)
    if form.has_skip:
        whole = remaining + rules.terms_with(rest, skip)
        joined = route.readings(layer - 1)
        remaining, through = route.apply(rules.join_branches, whole, (skip, through), joined, width), joined
        route.pending[layer + 1] = rules.terms_without(rest, blocks, skip)
    else:
        route.entropies[layer + 1] = _entropy(route, layer + 1, rules.terms_without(rest, blocks))
    return _next_inner(route, layer, remaining, through)


def _next_inner(route: _Route, layer: int, remaining: Expr, readings: MatrixSymbol) -> MatrixExpr:
    """The matrix between the readings of a layer's input, as its output had one: the induction over layers."""
    inner = positive_definite(f"Lambda_{layer - 1}", readings.shape[1])
    route.apply(rules.same_form, remaining, readings, inner, route.widths[layer - 1], equations="68-69")
    ((_, value),) = route.steps[-1].definitions
    return value


def _forward(route: _Route, layer: int, form: LayerForm) -> None:
    outer = route.order_parameters[layer].shape[0]
    reading = MatrixSymbol(f"q_{layer}", form.symbols.tokens, outer)
    route.apply(_read_along_paths, form.forward * reading, form, reading, equations="2, 6, 7")


def _read_along_paths(before: MatrixExpr, form: LayerForm, reading: MatrixSymbol, **record) -> Step:
    """X_l q as V times stacked readings X_{l-1} q', plus the skip connection's."""
    through = Stacked(form.hidden * form.block_reading(reading), form.blocks)
    after = form.weights * through / sqrt(form.symbols.width)
    if form.has_skip:
        after = form.gain * form.hidden * form.skip_reading(reading) + after
    return Step("forward map read along paths", before, after, Equal(), **record)


def _integrate_weights(route, number, weights, blocks, covariance, inner, skip) -> Expr:
    """From tr(M R^T R)/N, R = V Z + gain R_s, to the order parameter U of `number`; rows of V are alike."""
    gain, readings = skip
    width = route.widths[number - 1]
    row, column = MatrixSymbol("v", weights.shape[1], 1), MatrixSymbol("r", expand(inner.shape[0]), 1)
    whole = weights * blocks + gain * readings if gain != 0 else weights * blocks
    rows = [(row, weights), *([(column, readings)] if gain != 0 else [])]
    exponent = Trace(inner * whole.T * whole) / width
    one_row = route.apply(rules.split_into_rows, exponent, rows)
    integrated = route.apply(rules.gaussian_average, one_row, row, covariance)
    small = route.apply(rules.determinant_lemma, integrated, covariance, inner)
    if gain != 0:
        small = route.apply(rules.woodbury, small, covariance, inner)
    total = route.apply(rules.sum_over_rows, small, width, rows[1:])
    overlap = expand_products(blocks.T * covariance * blocks / width)
    names = route.auxiliary(number), route.order_parameters[number - 1]
    return route.apply(rules.insert_order_parameter, total, overlap, *names, width)


def _entropy(route: _Route, number: int, terms: Expr) -> Expr:
    """The entropy of U_l given U_{l+1}: its auxiliary overlap taken at the saddle point."""
    assumptions = (_LARGE.format(width=latex(route.widths[number - 1])),)
    entropy = route.apply(rules.eliminate, terms, route.auxiliary(number), assumptions=assumptions)
    return _settle(route, number, route.apply(rules.reduce_traces, entropy))


def _settle(route: _Route, number: int, entropy: Expr) -> Expr:
    """The part of `entropy` that is of U_l; where U_l contains U_{l+1} on a skip connection, the rest is settled too.

    The overlap Q_{l+1} then occurs linearly, and makes U_{l+1} the leading block of U_l.
    """
    if number + 1 not in route.pending:
        return entropy
    waiting, multiplier = route.pending.pop(number + 1), route.auxiliary(number + 1)
    nested = route.order_parameters[number]
    both = route.apply(rules.constrain, normal(entropy + waiting), multiplier, nested)
    ((_, route.nested[nested]),) = route.steps[-1].definitions
    alone = route.apply(rules.reduce_traces, route.apply(rules.eliminate, waiting, multiplier))
    route.entropies[number + 1] = _settle(route, number + 1, alone)
    return normal(both - alone)


def _embedding(route: _Route, inner: MatrixExpr, data: DataSymbols) -> Expr:
    """The embedding's weights integrated out, in units of their deviation: variance and 1/N_0 are in the features."""
    route.section, route.equations = "Embedding", "70-72"
    weights, blocks = _embedding_weights(route, data)
    rest = _integrate_weights(route, 1, weights, blocks, Identity(data.input_features), inner, (S.Zero, None))
    route.entropies[1] = _entropy(route, 1, rules.terms_without(rest, blocks))
    read = data.features.T * _auxiliary_field(data) + data.test_features.T * _source(data)
    of_features = rules.terms_with(rest, blocks).xreplace({blocks: SideBySide(read, blocks.shape[1])})
    return route.apply(rules.vectorise, of_features, data.input_features, equations="10, 72")


def _embedding_weights(route: _Route, data: DataSymbols) -> tuple[MatrixSymbol, MatrixSymbol]:
    """V_0, and the readings of the tokens that it multiplies."""
    paths = route.order_parameters[0].shape[0]
    weights = MatrixSymbol("V_0", route.widths[0], data.input_features)
    return weights, MatrixSymbol("Z_0", data.input_features, paths)


def _kernels(of_data: Expr, data: DataSymbols) -> tuple[MatrixExpr, MatrixExpr]:
    """K among training examples, and between these and test examples: coefficients of the form that is left."""
    field_, source = _auxiliary_field(data), _source(data)
    kernel = rules.inner_of_form(rules.terms_without(of_data, source), field_)  # Eq. (10)
    coupling = rules.terms_with(rules.terms_with(of_data, source), field_)
    return kernel, rules.bilinear_matrix(coupling, field_, source)


def _source(data: DataSymbols) -> MatrixSymbol:
    return MatrixSymbol("j", data.test_features.shape[0], 1)


def _training_examples(route: _Route, of_data: Expr, data: DataSymbols) -> Expr:
    route.section = "Training examples"
    field_ = _auxiliary_field(data)
    coupled = normal(of_data - 2 * S.ImaginaryUnit * Trace(field_.T * data.labels))
    covariance = Identity(data.labels.shape[0]) / data.temperature
    integrated = route.apply(rules.gaussian_average, coupled, field_, covariance, equations="73-77")
    varied = (route.order_parameters[0], _source(data))
    return route.apply(rules.drop_constants, integrated, varied, equations="12, 77")


def _predictor(route: _Route, with_sources: Expr, data: DataSymbols):
    """The energy, without the source; mean and covariance of the outputs on test examples, by its derivatives."""
    route.section, source = "Predictor", _source(data)
    energy = rules.terms_without(with_sources, source)  # Eq. (12)
    of_source = rules.terms_with(with_sources, source)
    first, second = -S.ImaginaryUnit / 2, S.Half
    # Eqs. (9), (29)
    mean = route.apply(rules.source_derivative, of_source, source, first, equations="9, 29, 39")
    # Eq. (30)
    covariance = route.apply(rules.source_derivative, of_source, source, second, order=2, equations="30, 40")
    return energy, mean, covariance


def _meaning(route: _Route, inner: MatrixExpr, data: DataSymbols) -> None:
    """Result 2: U_1 is the mean overlap of path weights, by a source on them."""
    route.section, route.equations = "Meaning of U", "13, 81-99"
    width, order_parameter = route.widths[0], route.order_parameters[0]
    size = order_parameter.shape[0]
    column, path_weights = MatrixSymbol("r", size, 1), MatrixSymbol("w", size, 1)
    source = positive_definite("J", size)
    coupling = route.apply(rules.linearise_form, Trace(column.T * inner * column) / width, column, path_weights, width)
    sourced = normal(coupling + Trace(path_weights.T * source * path_weights))
    integrated = route.apply(rules.gaussian_average, sourced, path_weights, inner)
    left = rules.terms_without(integrated, column)
    renewed = expand_products(width * rules.inner_of_form(rules.terms_with(integrated, column), column))
    weights, blocks = _embedding_weights(route, data)
    rest = _integrate_weights(route, 1, weights, blocks, Identity(data.input_features), renewed, (S.Zero, None))
    with_source = normal(rules.terms_without(rest, blocks) + width * left)
    eliminated = route.apply(rules.eliminate, with_source, route.auxiliary(1))
    route.apply(rules.derivative, eliminated, source)


def _drop_constants(route: _Route, number: int) -> Expr:
    route.section, route.equations = "Entropies", "32"
    entropy = route.entropies[number]
    variables = tuple(symbol for symbol in route.order_parameters if entropy.has(symbol))
    return route.apply(rules.drop_constants, entropy, variables)
