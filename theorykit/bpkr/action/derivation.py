"""From an architecture to its action: back-propagating kernel renormalisation, with symbolic sizes.

Weights are integrated out from the readout to the input. The same steps at every layer convert the readings
R_l = sum over examples of X_l q_l t of its output to the readings of its input:

    tr(M R_l^T R_l)/N_{l+1}  ->  entropy of U_{l+1}  +  tr(M' R_{l-1}^T R_{l-1})/N_l,   M' = covariance (x) U_{l+1}

The steps contain M as the symbol Lambda_l. Actions S stand for integrands exp(-S/2). derivations/notation.md lists the
symbols.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from sympy import Add, Expr, I, Identity, MatrixSymbol, S, Symbol, Trace, expand, log, sqrt
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...derivation import Derivation, Recorder, claims
from ...symbolic import (
    SquareRoot,
    entrywise,
    inverse,
    kronecker,
    latex,
    log_det,
    normal,
    positive_definite,
    sum_of,
    trace,
)
from ...symbolic.algebra import as_number, expand_products, simplify_traces
from ...symbolic.atoms import SideBySide, Stacked, beside, principal_block
from ..specification.activations import UNIT, Activation, kernel_of_covariance
from ..specification.architecture import Architecture, checked_architecture
from ..specification.layers import TOKENS, LayerForm, NetworkForm
from .action import Action, Predictor
from .prior import average_rows
from .symbols import ActionSymbols, size

_LARGE = "width ${width}$ large, the number of partial paths finite, examples proportional to the width"
_EQUIVALENCE = (
    "an ansatz, not an identity: given the weights above, readings of the ${width}$ nonlinear hidden units are "
    "Gaussian, for a number of examples proportional to the width. At a fixed number it is no more accurate than "
    "infinite width"
)
_COLD = "the likelihood $\\exp(-{power} |f - y|^2 / (2 T))$, which sharpens with the width: a cold posterior"


def derive(architecture: Architecture) -> Action:
    """Derive the action of `architecture` step by step; Eqs. (10), (12), (32).

    Widths, prior variances, numbers of heads and parameters of layers are symbols, so that the action depends on the
    kinds of layers alone, and on whether there is more than one output.

    Example:
        >>> from theorykit import bpkr
        >>> action = bpkr.derive(bpkr.Architecture(layers=(2,), widths=10, temperature=0.1))
        >>> action.derivation.verify().holds
        True
    """
    return _derive(checked_architecture(architecture).form)


@lru_cache
def _derive(form: NetworkForm) -> Action:
    if form.has_richness:
        return _with_richness(_derive(replace(form, has_richness=False, is_infinite=False)), form)
    symbols = ActionSymbols(form)
    route, y, temperature = _Route(symbols), symbols.labels, symbols.temperature
    say = route.say
    # t is the auxiliary field of the labels. j is the source of the outputs on test examples.
    t, j = MatrixSymbol("t", *y.shape), MatrixSymbol("j", symbols.test_features.shape[0], 1)
    route.section = "Gaussian equivalence"
    for layer, activation in enumerate(form.activations):
        _replace_nonlinear_units(route, layer, activation)

    route.section = "Labels"
    residual, noise = MatrixSymbol("f", *y.shape) - y, Identity(y.shape[0]) / temperature
    squares, linear = Trace(residual.T * residual) / temperature, 2 * I * Trace(t.T * residual)  # Eq. (8)
    say("Hubbard-Stratonovich", squares, linear, claims.Average(t, noise, of="after"), equations="37")
    inner = _integrate_readout(route, t)
    for layer_form in reversed(form.layers):
        inner = _integrate_layer(route, layer_form, inner)

    # The embedding's weights have unit variance here; their variance and 1/N_0 are in the features.
    route.section, inputs, paths = "Embedding", symbols.input_features, symbols.first.shape[0]
    weights, blocks = MatrixSymbol("V_0", symbols.widths[0], inputs), MatrixSymbol("Z_0", inputs, paths)
    of_order_parameter, of_blocks, _ = _integrate_weights(route, 1, weights, blocks, Identity(inputs), inner, "70")
    _state_entropies(route, 1, of_order_parameter, inner)
    phi, phi_test, metric = symbols.features, symbols.test_features, kronecker(symbols.first, Identity(inputs))
    # Eq. (10)
    kernel, between, of_test = phi * metric * phi.T, phi_test * metric * phi.T, phi_test * metric * phi_test.T
    read = phi.T * t + phi_test.T * j
    side_by_side = of_blocks.xreplace({blocks: SideBySide(read, paths)})
    after = normal(Trace(read.T * metric * read))
    of_data = say("matrices become columns", side_by_side, after, claims.Equal(), equations="10")

    route.section = "Training examples"
    resolvent = inverse(sum_of([temperature * Identity(y.shape[0]), kernel]))
    energy = log_det(inverse(resolvent)) + Trace(y.T * resolvent * y)  # Eq. (12)
    mean = between * resolvent * y  # Eqs. (9), (29)
    covariance = expand_products(of_test - between * resolvent * between.T)  # Eq. (30)
    of_source = 2 * I * Trace(j.T * mean) + normal(Trace(j.T * covariance * j))
    integrated = energy + of_source - expand(y.shape[0] * log(temperature))
    claim = claims.Average(t, noise)
    say("Gaussian integral", of_data - 2 * I * Trace(t.T * y), integrated, claim, equations="77")
    constant = claims.EqualUpToConstant((symbols.first, j))
    say("constants dropped", integrated, energy + of_source, constant, equations="12")
    route.section = "Predictor"
    claim = claims.Derivative(j, 1, -I / 2, at_zero=True)
    say("source differentiated", of_source, mean, claim, equations="9")
    claim = claims.Derivative(j, 2, S.Half, at_zero=True)
    say("source differentiated twice", of_source, covariance, claim, equations="30")
    _state_meaning(route, inner, weights, blocks)

    route.section, route.equations, last, entropies = "Entropies", "32", symbols.overlaps[-1], []
    for _, entropy in sorted(route.entropies.items()):
        variables = tuple(symbol for symbol in symbols.overlaps if entropy.has(symbol))
        kept = Add(*(term for term in Add.make_args(entropy) if term.has(*variables)))
        entropies.append(say("constants dropped", entropy, kept, claims.EqualUpToConstant(variables)))
    if symbols.readout != last:
        for i, entropy in enumerate(entropies):
            after, value = as_number(entropy, last, symbols.readout), symbols.readout * Identity(1)
            entropies[i] = route.define("1 x 1 matrix as a number", entropy, after, last, value)
    nested = {symbols.written[matrix]: route.nested[matrix] for matrix in symbols.nested}
    return Action(
        symbols=symbols,
        entropies=tuple(map(_per_width, entropies, symbols.widths)),
        nested={symbol: block if symbol.is_Matrix else trace(block) for symbol, block in nested.items()},
        energy=energy,
        kernel=kernel,
        predictor=Predictor(mean, covariance),
        derivation=Derivation(tuple(route.steps), _sizes_of_trials(symbols)),
    )


def _per_width(entropy: Expr, width: Expr) -> Expr:
    return width * Add(*(expand(term / width) for term in Add.make_args(expand(entropy))))


def _sizes_of_trials(symbols: ActionSymbols) -> tuple[Mapping[Expr, int], ...]:
    """Return sizes at which to test steps. Any two layers differ in some trial, and every width exceeds one in some."""
    layers, outputs = symbols.form.layers, symbols.outputs
    widths, heads = dict.fromkeys(symbols.widths), [layer.symbols.heads for layer in layers]
    common = {TOKENS: 3, symbols.input_features: 2, size("P_test"): 2, size("D"): 3}
    several = {symbols.examples: 1, outputs: 2} if outputs.is_Symbol else {symbols.examples: 2}
    trials = [{**common, **dict.fromkeys(widths, 1), **dict.fromkeys(heads, 2), **several}]
    for place, examples in enumerate((3, 1)):
        trial = {**common, symbols.examples: examples, **({outputs: 1} if outputs.is_Symbol else {})}
        trial |= {width: 1 + i // 3**place % 3 for i, width in enumerate(widths, 1)}
        trials.append(trial | {each: 1 + i // 2**place % 2 for i, each in enumerate(heads)})
    return tuple(trials)


class _Route(Recorder):
    """The derivation in progress.

    - `values`: the value of each Lambda_l.
    - `entropies`: by the number of their order parameter.
    - `nested`: the block that each nested order parameter is.
    - `waiting`: number, terms, Lambda_l and layer of order parameters whose entropy is known with the layer below.
    """

    def __init__(self, symbols: ActionSymbols):
        super().__init__()
        self.symbols = symbols
        self.values: dict[MatrixSymbol, MatrixExpr] = {}
        self.entropies: dict[int, Expr] = {}
        self.nested: dict[MatrixSymbol, MatrixExpr] = {}
        self.waiting: list[tuple[int, Expr, MatrixSymbol, LayerForm]] = []

    def names(self, number: int) -> tuple[Expr, MatrixSymbol, MatrixSymbol]:
        """Return the width N_l, the order parameter U_l and the overlap Q_l, whose Fourier conjugate is U_l."""
        overlap = self.symbols.overlaps[number - 1]
        return self.symbols.widths[number - 1], overlap, positive_definite(f"Q_{number}", overlap.shape[0])

    def define(self, rule: str, before: Expr, after: Expr, symbol: Expr, value: Expr, **record) -> Expr:
        defined = ((symbol, value),)
        return self.say(rule, before, after, claims.Equal(defined), definitions=defined, **record)

    def eliminate(self, before: Expr, after: Expr, symbol: MatrixSymbol, solution: MatrixExpr, **record) -> Expr:
        claim, defined = claims.Stationary(symbol, solution), ((symbol, solution),)
        return self.say("eliminated at its saddle point", before, after, claim, definitions=defined, **record)

    def readings(self, layer: int) -> MatrixSymbol:
        """Return R_l, the readings of the output of layer l (N_{l+1} x n_{l+1})."""
        return MatrixSymbol(f"R_{layer}", self.symbols.widths[layer], self.symbols.overlaps[layer].shape[0])

    def state_induction(self, layer: int, readings: MatrixSymbol, value: MatrixExpr) -> MatrixSymbol:
        """State the form with which layer l begins, tr(Lambda_l R_l^T R_l)/N_{l+1}, and return Lambda_l."""
        width, inner = self.symbols.widths[layer], positive_definite(f"Lambda_{layer}", readings.shape[1])
        before, after = (Trace(matrix * readings.T * readings) / width for matrix in (value, inner))
        self.values[inner] = value
        self.define("induction", normal(before), after, inner, value, equations="69")
        return inner


def _replace_nonlinear_units(route: _Route, layer: int, activation: Activation) -> None:
    """Replace a nonlinear layer (0 is the embedding) by linear units with the same covariance: an ansatz.

    Source: Pacelli et al., arXiv 2209.04882. A layer reads the equivalent linear units below it, and the path features
    Phi are made from the last ones.
    """
    # tr(M R^T R)/N of the tokens that are read, R = phi(V X) G.
    symbols, width, tokens = route.symbols, route.symbols.widths[layer], size("D")
    weights = MatrixSymbol(f"V_{layer}", width, symbols.input_features)
    tokens_in = MatrixSymbol(f"x_{layer}", symbols.input_features, tokens)
    units = entrywise(lambda unit: activation.function.xreplace({UNIT: unit}), weights * tokens_in)
    kernel = positive_definite(f"kappa_{layer}", tokens)
    value = kernel_of_covariance(activation, tokens_in.T * tokens_in)
    # SymPy prints the name Vtilde_0 with a tilde.
    equivalent = MatrixSymbol(f"Vtilde_{layer}", width, tokens)
    inner = positive_definite("M", symbols.first.shape[0])
    reading = MatrixSymbol("G", tokens, symbols.first.shape[0])
    of_units, of_equivalent = units * reading, equivalent * SquareRoot(kernel) * reading
    before, after = (Trace(inner * read.T * read) / width for read in (of_units, of_equivalent))
    claim, defined = claims.SameMoments(weights, equivalent, kernel, value), ((kernel, value),)
    text = _EQUIVALENCE.format(width=latex(width))
    route.say("Gaussian equivalence", before, after, claim, definitions=defined, assumptions=(text,))


def _integrate_readout(route: _Route, t: MatrixSymbol) -> MatrixSymbol:
    """Integrate out the readout weights; return the matrix between the readings of the last layer's output."""
    route.section, say, symbols = "Readout", route.say, route.symbols
    tokens, depth, width = symbols.read_tokens, len(symbols.matrices), symbols.widths[-1]
    units, variance, readings = expand(tokens * width), symbols.variances[-1], route.readings(depth)
    weights = MatrixSymbol("A", symbols.outputs, units)
    # The tokens that are read, side by side.
    hidden = Stacked(MatrixSymbol(f"X_{depth}", width, expand(tokens * symbols.examples)), tokens)
    output = Stacked(weights * hidden, symbols.examples) / sqrt(units)  # Eq. (4)
    fields = Stacked(t.T, symbols.examples)
    read = readings if tokens == 1 else MatrixSymbol(f"R_{depth}a", units, symbols.outputs)
    v, r = MatrixSymbol("v", units, 1), MatrixSymbol("r", units, 1)

    before, after = 2 * I * Trace(t.T * output), 2 * I * Trace(weights * hidden * fields) / sqrt(units)
    coupling = say("blocks unstacked", before, after, claims.Equal(), equations="4")
    after = 2 * I * Trace(weights * read) / sqrt(units)  # Eq. (43)
    named = route.define("named", coupling, after, read, hidden * fields, equations="43")
    one_row, averaged = 2 * I * Trace(v.T * r) / sqrt(units), variance * Trace(r.T * r) / units  # Eq. (44)
    total, law = variance * Trace(read.T * read) / units, claims.Average(v, variance * Identity(units))
    rows = (v, weights), (r, read.T), symbols.outputs
    average_rows(route, named, (one_row, averaged, total), rows, law, ("43", "44", "45"))
    if tokens != 1:
        stacked = total.xreplace({read: sqrt(tokens) * Stacked(readings, tokens)})
        say("blocks become path indices", stacked, variance * Trace(readings.T * readings) / width, claims.Equal())
    return route.state_induction(depth, readings, variance * Identity(readings.shape[1]))


def _integrate_layer(route: _Route, form: LayerForm, inner: MatrixSymbol) -> MatrixSymbol:
    """Integrate out the weights of layer l and introduce U_{l+1}; return the matrix between the input's readings."""
    layer, width, say = form.symbols.index, form.symbols.width, route.say
    route.section, is_last = f"Layer {layer}", layer == len(route.symbols.matrices)
    _, overlap, auxiliary = route.names(layer + 1)
    rows = overlap.shape[0]
    q = MatrixSymbol(f"q_{layer}", TOKENS, rows)
    along_paths = (
        form.weights * Stacked(form.symbols.hidden * form.block_reading(q), form.blocks) / sqrt(width)
    )  # Eq. (7)
    if form.has_skip:
        along_paths = form.gain * form.symbols.hidden * expand_products(form.skip_tokens * q) + along_paths
    say("forward map read along paths", form.forward * q, along_paths, claims.Equal(), equations="7")

    # The readings are V Z + gain R, where R is read through the skip connection.
    blocks = MatrixSymbol(f"Z_{layer}", form.weights.shape[1], rows)
    skip = MatrixSymbol(f"R_{layer - 1}s", width, rows)
    covariance, number = kronecker(form.covariance, Identity(width)), "46" if is_last else "57"
    of_order_parameter, of_blocks, of_skip = _integrate_weights(
        route, layer + 1, form.weights, blocks, covariance, inner, number, form.gain, skip
    )
    of_paths = kronecker(form.covariance, overlap)
    name = f"R_{layer - 1}b" if form.has_skip else f"R_{layer - 1}"
    through = MatrixSymbol(name, width, expand(form.blocks * rows))
    stacked = of_blocks.xreplace({blocks: Stacked(through, form.blocks) / sqrt(width)})
    of_blocks = normal(Trace(of_paths * through.T * through) / width)
    say("blocks become path indices", stacked, of_blocks, claims.Equal(), equations="56" if is_last else "67")
    if not form.has_skip:
        _state_entropies(route, layer + 1, of_order_parameter, inner)
        return route.state_induction(layer - 1, through, of_paths)
    route.waiting.append((layer + 1, of_order_parameter, inner, form))
    of_paths = BlockDiagMatrix(form.gain**2 * inverse(sum_of([inverse(inner), auxiliary])), of_paths)
    joined = route.readings(layer - 1)
    after = Trace(of_paths * joined.T * joined) / width
    route.define("branches side by side", of_skip + of_blocks, after, joined, beside(skip, through))
    return route.state_induction(layer - 1, joined, of_paths)


def _integrate_weights(
    route: _Route, number: int, weights, blocks, covariance, inner, equation="", gain=S.Zero, readings=None
) -> tuple[Expr, Expr, Expr]:
    """Average tr(M F^T F)/N over weights V with i.i.d. rows v ~ N(0, C), and introduce the order parameter U.

    F = V Z + gain R, M is `inner`, C is `covariance`, Z is `blocks`, and R is `readings`. Return the terms of U alone,
    of Z, and of R.
    """
    say, (width, overlap, auxiliary) = route.say, route.names(number)
    v, r = MatrixSymbol("v", weights.shape[1], 1), MatrixSymbol("r", expand(inner.shape[0]), 1)
    rows, whole, row = ((v, weights),), weights * blocks, blocks.T * v
    # The weights have the precision C^-1 + Z M Z^T / N. The determinant lemma replaces it by M^-1 + Z^T C Z / N.
    precision = sum_of([inverse(covariance), blocks * inner * blocks.T / width])
    product = expand_products(blocks.T * covariance * blocks / width)
    small, renewed = sum_of([inverse(inner), product]), sum_of([inverse(inner), auxiliary])
    of_row = of_small = of_readings = of_renewed = S.Zero
    if gain != 0:
        rows, whole, row = (*rows, (r, readings)), whole + gain * readings, row + gain * r
        shift = blocks * inner * r / width
        of_row = gain**2 * (Trace(r.T * inner * r) / width - Trace(shift.T * inverse(precision) * shift))
        of_small = gain**2 * Trace(r.T * inverse(small) * r) / width
        of_readings, of_renewed = (
            gain**2 * Trace(inverse(matrix) * readings.T * readings) / width for matrix in (small, renewed)
        )
    before, after = Trace(inner * whole.T * whole) / width, normal(Trace(row.T * inner * row) / width)
    one_row = say("one row at a time", before, after, claims.SumOverRows(rows, width, "after"), equations=equation)
    after = normal(log_det(covariance) + log_det(precision) + of_row)
    averaged = say("Gaussian integral", one_row, after, claims.Average(v, covariance))
    determinants = normal(log_det(inner) + log_det(small))
    lemma = say("matrix determinant lemma", averaged, determinants + normal(of_row), claims.Equal())
    lemma = say("Woodbury identity", lemma, determinants + of_small, claims.Equal())
    after = expand(width * determinants) + of_readings
    total = say("sum over rows", lemma, after, claims.SumOverRows(rows[1:], width, "before"))
    # Q = Z^T C Z / N by a delta function, whose Fourier variable is U.
    of_overlap = normal(width * (log_det(inner) + log_det(renewed) - Trace(auxiliary * overlap)))
    of_blocks = normal(width * Trace(overlap * product))
    inserted = claims.OrderParameterInserted(auxiliary, product, overlap, width)
    say("order parameter by a delta function", total, of_overlap + of_blocks + of_renewed, inserted)
    return of_overlap, of_blocks, of_renewed


def _state_entropies(route: _Route, number: int, terms: Expr, inner: MatrixSymbol) -> None:
    """State the entropy of U_l given U_{l+1}, from its `terms` with Q_l and M = `inner`, and those that waited for it.

    With a skip connection, the overlap Q_{l+1} occurs linearly and makes U_{l+1} the leading block of U_l.
    """
    assumption = _LARGE.format(width=latex(route.symbols.widths[number - 1]))
    entropy = _eliminate_overlap(route, number, terms, inner, assumptions=(assumption,))
    while route.waiting:
        above, waiting, inner, form = route.waiting.pop()
        (width, overlap, _), (_, outer, multiplier) = route.names(number), route.names(above)
        rows, rest = outer.shape[0], expand(overlap.shape[0] - outer.shape[0])
        block = principal_block(overlap, (rows, rest), 0) / form.gain**2
        of_rest, covariance = principal_block(overlap, (rows, rest), 1), kronecker(form.covariance, outer)
        own = log_det(covariance) + log_det(outer) - log_det(overlap) + Trace(inverse(covariance) * of_rest)
        own = simplify_traces(width * (own + rows * log(form.gain**2) - rest))
        before, after = normal(entropy + waiting), own + _entropy(width, outer, inner)
        constrained, defined = claims.Stationary(outer, block, multiplier), ((outer, block),)
        route.say("Lagrange multiplier", before, after, constrained, definitions=defined)
        route.nested[outer], route.entropies[number], number = block, own, above
        entropy = _eliminate_overlap(route, number, waiting, inner)
    route.entropies[number] = entropy


def _eliminate_overlap(route: _Route, number: int, terms: Expr, inner: MatrixSymbol, **record) -> Expr:
    """Integrate over the overlap Q_l at its saddle point, and return the entropy of U_l."""
    (width, overlap, auxiliary), value = route.names(number), route.values[inner]
    entropy, solution = _entropy(width, overlap, inner), sum_of([inverse(overlap), -inverse(inner)])
    route.eliminate(terms, entropy, auxiliary, solution, **record)
    return route.define("written out", entropy, simplify_traces(_entropy(width, overlap, value)), inner, value)


def _entropy(width: Expr, overlap: MatrixSymbol, inner: MatrixExpr) -> Expr:
    """Return N (logdet M - logdet U + tr(M^-1 U) - n), of U with the prior mean M = `inner`."""
    # Eq. (32)
    divergence = log_det(inner) - log_det(overlap) + Trace(inverse(inner) * overlap) - overlap.shape[0]
    return normal(width * divergence)


def _state_meaning(route: _Route, inner: MatrixExpr, weights: MatrixSymbol, blocks: MatrixSymbol) -> None:
    """Result 2: a source on the path weights shows that U_1 is their mean overlap."""
    route.section, say, (width, overlap, auxiliary) = "Meaning of U", route.say, route.names(1)
    r, w = MatrixSymbol("r", overlap.shape[0], 1), MatrixSymbol("w", overlap.shape[0], 1)
    source = positive_definite("J", overlap.shape[0])
    # The form in r is a Gaussian average over path weights w, to which the source J couples.
    form, coupling = normal(Trace(r.T * inner * r) / width), 2 * I * Trace(w.T * r) / sqrt(width)
    say("read backwards as weights", form, coupling, claims.Average(w, inner, of="after"), equations="81")
    # The average over w gives a log-determinant per hidden unit, and a form in r whose matrix depends on J.
    precision = sum_of([inverse(inner), source])
    of_unit = log_det(inner) + log_det(precision)
    sourced, after = coupling + Trace(w.T * source * w), of_unit + Trace(r.T * inverse(precision) * r) / width
    say("Gaussian integral", sourced, normal(after), claims.Average(w, inner))
    # Integrate over the layer's weights with this matrix. The derivative with respect to J gives the mean of w w^T.
    covariance = Identity(weights.shape[1])
    terms, *_ = _integrate_weights(route, 1, weights, blocks, covariance, inverse(precision))
    solution = sum_of([inverse(overlap), -precision])
    after = normal(width * log_det(inner)) + _entropy(width, overlap, inverse(precision)) + width * log_det(precision)
    of_source = route.eliminate(normal(terms + width * of_unit), normal(after), auxiliary, solution)
    say("differentiated", of_source, width * overlap, claims.Derivative(source), equations="13")  # Eq. (13)


def _with_richness(action: Action, form: NetworkForm) -> Action:
    """Return the action of the mean-field parameterisation, given the `action` of the standard one.

    The prior variance of the readout and the temperature are divided by g = N_1 gamma_0^2. In U' = g U, written without
    the prime, the prior is the standard one, and

        S = S_a + S_1 + ... + S_L + logdet(K + T I) + g y^T (K + T I)^-1 y.

    At infinite width the log-determinant is negligible. Source: Lauditi, Bordelon and Pehlevan, arXiv 2502.07998. The
    form for attention paths is ours.
    """
    symbols = ActionSymbols(form)
    power, variables = symbols.power, (*symbols.free, symbols.features, symbols.labels)
    # The order parameters and numbers of the network, in terms of U' and of the given numbers.
    scaled = {each: each / power for each in (*symbols.free, symbols.variances[-1], symbols.temperature)}
    route = Recorder(list(action.derivation.steps), "Mean-field parameterisation")
    misfit = Add(*(term for term in Add.make_args(action.energy) if term.has(symbols.labels)))
    energy = action.energy - misfit + power * misfit
    assumption = _COLD.format(power=latex(power))

    def in_units(before: Expr, after: Expr, claim) -> Expr:
        return route.say("order parameters rescaled", before.xreplace(scaled), after, claim, assumptions=(assumption,))

    in_units(action.total, action.entropy + energy, claims.EqualUpToConstant(variables))
    mean = in_units(action.predictor.mean, action.predictor.mean, claims.Equal())
    covariance = in_units(action.predictor.covariance, action.predictor.covariance / power, claims.Equal())
    if form.is_infinite:
        scale = Symbol("N", positive=True)
        route.section = "Infinite width"
        wide = (action.entropy + energy).xreplace({width: scale * width for width in dict.fromkeys(symbols.widths)})
        fixed = f"widths large in fixed ratios to ${latex(symbols.widths[0])}$, number of examples fixed"
        leading = expand(wide - wide.subs(scale, 0))
        route.say("leading order", wide, leading, claims.LeadingOrder(scale), assumptions=(fixed,))
        energy = power * misfit
    derivation, predictor = Derivation(tuple(route.steps), action.derivation.sizes), Predictor(mean, covariance)
    return replace(action, symbols=symbols, energy=energy, predictor=predictor, derivation=derivation)
