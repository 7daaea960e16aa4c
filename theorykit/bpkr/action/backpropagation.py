"""Back-propagating kernel renormalisation: integrate out the weights block by block, from the readout to the input.

At every layer the same sequence of rules converts the readings R_l = sum over examples of X_l q_l t of the layer's
output to the readings of its input:

    tr(M R_l^T R_l)/N_{l+1}  ->  entropy of U_{l+1}  +  tr(M' R_{l-1}^T R_{l-1})/N_l,   M' = covariance (x) U_{l+1}

Equation numbers refer to Tiberi et al., arXiv 2405.15926. Actions S stand for integrands exp(-S/2).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sympy import Expr, Identity, MatrixSymbol, S, Symbol, Trace, expand, sqrt
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...derivation import Derivation, Recorder, Step, rules
from ...derivation.claims import Equal
from ...symbolic import entrywise, kronecker, latex, normal, positive_definite
from ...symbolic.algebra import expand_products
from ...symbolic.atoms import SideBySide, Stacked
from ..specification.activations import UNIT, kernel_of_covariance
from ..specification.layer_form import LayerForm, NetworkForm
from .action import Action, Predictor
from .symbols import ActionSymbols

_LARGE = "width ${width}$ large, the number of partial paths finite, examples proportional to the width"

_EQUIVALENCE = (
    "an ansatz, not an identity: given the weights above, readings of the ${width}$ nonlinear hidden units are "
    "Gaussian, for a number of examples proportional to the width. It preserves mean and covariance of the outputs "
    "under the prior, and is an identity for linear units. At a fixed number of examples it is no more accurate than "
    "infinite width"
)


@dataclass(kw_only=True)
class _Route(Recorder):
    """The derivation in progress: its steps, and expressions for later steps.

    `pending` holds terms of order parameters that can only be completed at the next layer.
    """

    symbols: ActionSymbols
    entropies: dict[int, Expr] = field(default_factory=dict)
    pending: dict[int, Expr] = field(default_factory=dict)
    nested: dict[MatrixSymbol, MatrixExpr] = field(default_factory=dict)

    def auxiliary(self, layer: int) -> MatrixSymbol:
        """Return Q_l, the overlap whose Fourier conjugate is U_l."""
        return positive_definite(f"Q_{layer}", self.symbols.overlaps[layer - 1].shape[0])

    def readings(self, layer: int) -> MatrixSymbol:
        """Return R_l, the readings of the output of layer l (N_{l+1} x n_{l+1})."""
        return MatrixSymbol(f"R_{layer}", self.symbols.widths[layer], self.symbols.overlaps[layer].shape[0])

    @property
    def defined(self) -> Expr:
        ((_, value),) = self.steps[-1].definitions
        return value


def backpropagate(form: NetworkForm, symbols: ActionSymbols, sizes: tuple[Mapping[Expr, int], ...]) -> Action:
    """Integrate all weights out of the posterior, Eq. (8), of a network with this form.

    Every step can be tested at each of `sizes`.
    """
    route = _Route(symbols=symbols)
    # t is the auxiliary field of the labels. j is the source of the outputs on test examples.
    labels, (inputs, hidden) = symbols.labels, (symbols.input_features, symbols.overlaps[0].shape[0])
    fields, source = MatrixSymbol("t", *labels.shape), MatrixSymbol("j", symbols.test_features.shape[0], 1)

    # Replace every nonlinear layer, starting with the embedding, by linear units with the same covariance: an ansatz.
    # Source: Pacelli et al., Nature Machine Intelligence (2023), arXiv 2209.04882. For several layers we use the form
    # in which the kernels are nested, as in the infinitely wide network. The token features X that a layer reads belong
    # to the equivalent linear units below the layer. The path features Phi are made from the last X.
    route.section = "Gaussian equivalence"
    for layer, activation in enumerate(form.activations):
        # tr(M R^T R)/N of the tokens that are read, R = phi(V X) G.
        width, tokens = symbols.widths[layer], Symbol("D", integer=True, positive=True)
        weights = MatrixSymbol(f"V_{layer}", width, symbols.input_features)
        tokens_in = MatrixSymbol(f"x_{layer}", symbols.input_features, tokens)
        units = entrywise(lambda unit, phi=activation.function: phi.xreplace({UNIT: unit}), weights * tokens_in)
        read = units * MatrixSymbol("G", tokens, symbols.first.shape[0])
        before = Trace(positive_definite("M", symbols.first.shape[0]) * read.T * read) / width
        kernel = positive_definite(f"kappa_{layer}", tokens), kernel_of_covariance(activation, tokens_in.T * tokens_in)
        text = _EQUIVALENCE.format(width=latex(width))
        route.apply(rules.gaussian_equivalence, before, units, weights, kernel, assumptions=(text,))

    route.section = "Labels"
    residual = MatrixSymbol("f", *labels.shape) - labels
    squares = Trace(residual.T * residual) / symbols.temperature  # Eq. (8)
    route.apply(rules.linearise_square, squares, fields, equations="37-40")
    inner = _readout(route, fields)
    for layer, layer_form in reversed(list(enumerate(form.layers, 1))):
        inner = _layer(route, layer, layer_form, inner)

    # The embedding's weights have unit variance here; their variance and 1/N_0 are in the features.
    route.section, route.equations = "Embedding", "70-72"
    weights, blocks = MatrixSymbol("V_0", symbols.widths[0], inputs), MatrixSymbol("Z_0", inputs, hidden)
    rest = _integrate_weights(route, 1, weights, blocks, Identity(inputs), inner)
    route.entropies[1] = _entropy(route, 1, rules.terms_without(rest, blocks))
    read = SideBySide(symbols.features.T * fields + symbols.test_features.T * source, hidden)
    of_features = rules.terms_with(rest, blocks).xreplace({blocks: read})
    of_data = route.apply(rules.vectorise, of_features, inputs, equations="10, 72")
    kernel = rules.inner_of_form(rules.terms_without(of_data, source), fields)  # Eq. (10)
    test_kernel = rules.bilinear_matrix(rules.terms_with(rules.terms_with(of_data, source), fields), fields, source)

    route.section = "Training examples"
    coupled = normal(of_data - 2 * S.ImaginaryUnit * Trace(fields.T * labels))
    covariance = Identity(labels.shape[0]) / symbols.temperature
    integrated = route.apply(rules.gaussian_average, coupled, fields, covariance, equations="73-77")
    total = route.apply(rules.drop_constants, integrated, (symbols.overlaps[0], source), equations="12, 77")
    energy = rules.terms_without(total, source)  # Eq. (12)

    route.section, of_source = "Predictor", rules.terms_with(total, source)
    # Eqs. (9), (29)
    mean = route.apply(rules.source_derivative, of_source, source, -S.ImaginaryUnit / 2, equations="9, 29, 39")
    # Eq. (30)
    covariance = route.apply(rules.source_derivative, of_source, source, S.Half, order=2, equations="30, 40")
    _meaning(route, inner, weights, blocks)
    route.section, route.equations, last = "Entropies", "32", symbols.overlaps[-1]
    entropies = []
    for _, entropy in sorted(route.entropies.items()):
        variables = tuple(symbol for symbol in symbols.overlaps if entropy.has(symbol))
        entropies.append(route.apply(rules.drop_constants, entropy, variables))
    # For one output, write u for U_{L+1}.
    for entropy in entropies if symbols.readout != last else ():
        if entropy.has(last):
            route.apply(rules.write_as_number, entropy, last, symbols.readout)
    return Action(
        form=form,
        symbols=symbols,
        overlap_entropies=tuple(entropies),
        overlap_blocks={symbol: route.nested[symbol] for symbol in symbols.nested},
        energy=energy,
        kernel=kernel,
        test_kernel=test_kernel,
        predictor=Predictor(mean, covariance),
        derivation=Derivation(tuple(route.steps), sizes),
    )


def _readout(route: _Route, fields: MatrixSymbol) -> MatrixExpr:
    """Integrate out the readout weights; return the matrix between the readings of the last layer's output."""
    route.section, symbols = "Readout", route.symbols
    tokens, depth = symbols.read_tokens, len(symbols.matrices)
    units = expand(tokens * symbols.widths[-1])
    weights = MatrixSymbol("A", symbols.outputs, units)
    # The tokens that are read, side by side.
    hidden = Stacked(MatrixSymbol(f"X_{depth}", symbols.widths[-1], expand(tokens * symbols.examples)), tokens)
    output = Stacked(weights * hidden, symbols.examples) / sqrt(units)  # Eq. (4)
    coupling = route.apply(rules.unstack, 2 * S.ImaginaryUnit * Trace(fields.T * output), equations="4, 40")
    readings = route.readings(depth)
    read = readings if tokens == 1 else MatrixSymbol(f"R_{depth}a", units, symbols.outputs)
    value = hidden * Stacked(fields.T, symbols.examples)
    coupling = route.apply(rules.name, coupling, read, value, equations="43")
    row, column = MatrixSymbol("v", units, 1), MatrixSymbol("r", units, 1)
    one_row = route.apply(rules.split_into_rows, coupling, [(row, weights), (column, read.T)], equations="43")
    covariance = symbols.variances[-1] * Identity(units)
    integrated = route.apply(rules.gaussian_average, one_row, row, covariance, equations="44")
    total = route.apply(rules.sum_over_rows, integrated, symbols.outputs, [(column, read.T)], equations="45")
    if tokens != 1:
        total = route.apply(rules.gather_blocks, total.xreplace({read: sqrt(tokens) * Stacked(readings, tokens)}))
    return _next_inner(route, depth + 1, total, readings)


def _layer(route: _Route, layer: int, form: LayerForm, inner: MatrixExpr) -> MatrixExpr:
    """Integrate out the weights of layer l and introduce U_{l+1}; return the matrix between the input's readings."""
    route.section = f"Layer {layer}"
    route.equations = "46-56" if layer == len(route.symbols.matrices) else "57-69"
    width, outer = form.symbols.width, route.symbols.overlaps[layer].shape[0]
    reading = MatrixSymbol(f"q_{layer}", form.symbols.tokens, outer)
    route.apply(_read_along_paths, form.forward * reading, form, reading, equations="2, 6, 7")
    blocks = MatrixSymbol(f"Z_{layer}", form.weights.shape[1], outer)
    skip = MatrixSymbol(f"R_{layer - 1}s", width, outer)
    columns = expand(form.blocks * outer)
    through = MatrixSymbol(f"R_{layer - 1}b" if form.has_skip else f"R_{layer - 1}", width, columns)
    covariance = kronecker(form.covariance, Identity(width))
    rest = _integrate_weights(route, layer + 1, form.weights, blocks, covariance, inner, form.gain, skip)
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
    """Return the matrix between the readings of the layer's input: the induction step over layers."""
    inner = positive_definite(f"Lambda_{layer - 1}", readings.shape[1])
    route.apply(rules.same_form, remaining, readings, inner, route.symbols.widths[layer - 1], equations="68-69")
    return route.defined


def _read_along_paths(before: MatrixExpr, form: LayerForm, reading: MatrixSymbol, **record) -> Step:
    through = Stacked(form.hidden * form.block_reading(reading), form.blocks)
    after = form.weights * through / sqrt(form.symbols.width)
    if form.has_skip:
        after = form.gain * form.hidden * form.skip_reading(reading) + after
    return Step("forward map read along paths", before, after, Equal(), **record)


def _integrate_weights(route, number, weights, blocks, covariance, inner, gain=S.Zero, readings=None) -> Expr:
    """Go from tr(M R^T R)/N with R = V Z + gain R_s to the order parameter U of `number`. The rows of V are i.i.d."""
    width = route.symbols.widths[number - 1]
    row, column = MatrixSymbol("v", weights.shape[1], 1), MatrixSymbol("r", expand(inner.shape[0]), 1)
    rows, whole = [(row, weights)], weights * blocks
    if gain != 0:
        rows, whole = [*rows, (column, readings)], whole + gain * readings
    one_row = route.apply(rules.split_into_rows, Trace(inner * whole.T * whole) / width, rows)
    integrated = route.apply(rules.gaussian_average, one_row, row, covariance)
    small = route.apply(rules.determinant_lemma, integrated, covariance, inner)
    if gain != 0:
        small = route.apply(rules.woodbury, small, covariance, inner)
    total = route.apply(rules.sum_over_rows, small, width, rows[1:])
    overlap = expand_products(blocks.T * covariance * blocks / width)
    names = route.auxiliary(number), route.symbols.overlaps[number - 1]
    return route.apply(rules.insert_order_parameter, total, overlap, *names, width)


def _entropy(route: _Route, number: int, terms: Expr) -> Expr:
    """Return the entropy of U_l given U_{l+1}, with its auxiliary overlap at the saddle point."""
    assumptions = (_LARGE.format(width=latex(route.symbols.widths[number - 1])),)
    entropy = route.apply(rules.eliminate, terms, route.auxiliary(number), assumptions=assumptions)
    return _settle(route, number, route.apply(rules.reduce_traces, entropy))


def _settle(route: _Route, number: int, entropy: Expr) -> Expr:
    """Return the part of `entropy` that depends on U_l.

    If a skip connection nests U_{l+1} in U_l, the overlap Q_{l+1} occurs linearly and makes U_{l+1} the leading block
    of U_l. Then also find the entropy of U_{l+1}.
    """
    if number + 1 not in route.pending:
        return entropy
    waiting, multiplier = route.pending.pop(number + 1), route.auxiliary(number + 1)
    nested = route.symbols.overlaps[number]
    both = route.apply(rules.constrain, normal(entropy + waiting), multiplier, nested)
    route.nested[nested] = route.defined
    alone = route.apply(rules.reduce_traces, route.apply(rules.eliminate, waiting, multiplier))
    route.entropies[number + 1] = _settle(route, number + 1, alone)
    return normal(both - alone)


def _meaning(route: _Route, inner: MatrixExpr, weights: MatrixSymbol, blocks: MatrixSymbol) -> None:
    """Result 2: a source on the path weights shows that U_1 is their mean overlap."""
    route.section, route.equations = "Meaning of U", "13, 81-99"
    width, size = route.symbols.widths[0], route.symbols.overlaps[0].shape[0]
    column, path_weights = MatrixSymbol("r", size, 1), MatrixSymbol("w", size, 1)
    source = positive_definite("J", size)
    # Write the form in r as a Gaussian average over path weights w, to which the source J couples.
    coupling = route.apply(rules.linearise_form, Trace(column.T * inner * column) / width, column, path_weights, width)
    sourced = normal(coupling + Trace(path_weights.T * source * path_weights))
    # The average over w gives a log-determinant per hidden unit, and a form in r whose matrix depends on J.
    integrated = route.apply(rules.gaussian_average, sourced, path_weights, inner)
    left = rules.terms_without(integrated, column)
    renewed = expand_products(width * rules.inner_of_form(rules.terms_with(integrated, column), column))
    # Integrate over the layer's weights with this matrix. The derivative with respect to J gives the mean of w w^T.
    rest = _integrate_weights(route, 1, weights, blocks, Identity(weights.shape[1]), renewed)
    with_source = normal(rules.terms_without(rest, blocks) + width * left)
    route.apply(rules.derivative, route.apply(rules.eliminate, with_source, route.auxiliary(1)), source)
