"""From an architecture to its action: back-propagating kernel renormalisation.

Weights are integrated out from the readout to the input. Each layer converts
readings R_l = sum over examples of X_l q_l t of its output to those of its input:

    tr(M R_l^T R_l)/N_{l+1}  ->  entropy of U_{l+1}  +  tr(M' R_{l-1}^T R_{l-1})/N_l

with M' = covariance (x) U_{l+1}. Steps contain M as the symbol Lambda_l, and
actions S stand for integrands exp(-S/2).
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from sympy import Add, Expr, I, Identity, MatrixSymbol, S, Symbol, Trace, expand, log, sqrt
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix
from sympy.matrices.expressions.diagonal import DiagMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...derivation import Derivation
from ...derivation.claims import (
    Average,
    Derivative,
    Equal,
    EqualUpToConstant,
    LeadingOrder,
    OrderParameterInserted,
    SameMoments,
    Stationary,
    SumOverRows,
)
from ...derivation.step import Recorder
from ...symbolic import (
    Diagonal,
    SquareRoot,
    entrywise,
    inverse,
    kronecker,
    log_det,
    normal,
    positive_definite,
    sum_of,
    trace,
)
from ...symbolic.algebra import as_number, expand_products, simplify_traces
from ...symbolic.atoms import SideBySide, Stacked, below, beside, principal_block
from ...symbolic.documents.rendering import latex
from ..specification.activations import OWN, UNIT, Activation, kernel_of_covariance
from ..specification.architecture import Architecture, checked_architecture
from ..specification.layers import TOKENS, LayerForm, NetworkForm
from .action import Action, Predictor
from .prior import average_rows
from .symbols import ActionSymbols, size

_LARGE = "width ${width}$ large, the number of partial paths finite, examples proportional to the width"
_EQUIVALENCE = (
    "an ansatz: given the weights above, readings of the ${width}$ nonlinear "
    "hidden units are Gaussian, for examples proportional to the width"
)
_BRANCH = f"{_EQUIVALENCE}; the units are a linear part and independent noise of the covariance at infinite width"
_COLD = "the likelihood $\\exp(-{power} |f - y|^2 / (2 T))$, a cold posterior"


def derive(architecture: Architecture) -> Action:
    """Derive the action of `architecture` step by step; Eqs. (10), (12), (32).

    Numbers of the architecture become symbols.
    """
    return _derive(checked_architecture(architecture).form)


@lru_cache
def _derive(form: NetworkForm) -> Action:
    if form.has_richness:
        standard = replace(form, has_richness=False, is_infinite=False)
        return _with_richness(_derive(standard), form)
    symbols = ActionSymbols(form)
    route = _Route(symbols)
    y = symbols.labels
    temperature = symbols.temperature
    say = route.say
    # t is the auxiliary field of the labels, and j the source of test outputs.
    t = MatrixSymbol("t", *y.shape)
    j = MatrixSymbol("j", symbols.test_features.shape[0], 1)
    route.section = "Gaussian equivalence"
    for layer, activation in enumerate(form.activations):
        _replace_nonlinear_units(route, layer, activation, symbols.first)
    for layer, activation in form.between:
        u = symbols.overlaps[layer]
        _replace_nonlinear_units(route, layer, activation, u, splits=True)

    route.section = "Labels"
    residual = MatrixSymbol("f", *y.shape) - y
    noise = Identity(y.shape[0]) / temperature
    squares = Trace(residual.T * residual) / temperature  # Eq. (8)
    linear = 2 * I * Trace(t.T * residual)
    say("Hubbard-Stratonovich", squares, linear, Average(t, noise, of="after"), equations="37")
    inner = _integrate_readout(route, t)
    for layer in reversed(form.layers):
        inner = _integrate_layer(route, layer, inner)

    # Features contain the variance of the embedding's weights and 1/N_0.
    route.section = "Embedding"
    inputs = symbols.input_features
    paths = symbols.first.shape[0]
    weights = MatrixSymbol("V_0", symbols.widths[0], inputs)
    blocks = MatrixSymbol("Z_0", inputs, paths)
    of_u, of_blocks, _ = _integrate_weights(route, 1, weights, blocks, Identity(inputs), inner, "70")
    _state_entropies(route, 1, of_u, inner)
    read = symbols.features.T * t + symbols.test_features.T * j
    side_by_side = of_blocks.xreplace({blocks: SideBySide(read, paths)})
    after = Trace(read.T * kronecker(symbols.first, Identity(inputs)) * read)
    for layer, (readings, term) in route.noises.items():
        root, root_of_test = symbols.noises[layer]
        read = root.T * t + root_of_test.T * j
        u = symbols.overlaps[layer]
        side_by_side += term.xreplace({readings: SideBySide(read, u.shape[0])})
        after += Trace(read.T * kronecker(u, Identity(size("D"))) * read)
    of_data = say("matrices become columns", side_by_side, normal(after), Equal(), equations="10")

    route.section = "Training examples"
    energy, mean, covariance = _of_data(symbols, written=False)
    of_source = 2 * I * Trace(j.T * mean) + normal(Trace(j.T * covariance * j))
    before = of_data - 2 * I * Trace(t.T * y)
    after = energy + of_source - expand(y.shape[0] * log(temperature))
    say("Gaussian integral", before, after, Average(t, noise), equations="77")
    kept = (symbols.first, *(symbols.overlaps[layer] for layer in symbols.noises), j)
    say("constants dropped", after, energy + of_source, EqualUpToConstant(kept), equations="12")
    route.section = "Predictor"
    claim = Derivative(j, 1, -I / 2, at_zero=True)
    say("source differentiated", of_source, mean, claim, equations="9")
    claim = Derivative(j, 2, S.Half, at_zero=True)
    say("source differentiated twice", of_source, covariance, claim, equations="30")
    _state_meaning(route, inner, weights, blocks)

    route.section = "Entropies"
    route.equations = "32"
    entropies = []
    for _, entropy in sorted(route.entropies.items()):
        variables = tuple(u for u in symbols.overlaps if entropy.has(u))
        kept = Add(*(term for term in Add.make_args(entropy) if term.has(*variables)))
        entropies.append(say("constants dropped", entropy, kept, EqualUpToConstant(variables)))
    last = symbols.overlaps[-1]
    readout = symbols.readout
    if readout != last:
        rule = "1 x 1 matrix as a number"
        value = readout * Identity(1)
        numbers = [as_number(entropy, last, readout) for entropy in entropies]
        for before, after in zip(entropies, numbers, strict=True):
            route.define(rule, before, after, last, value)
        before, entropies = energy, numbers
        energy, mean, covariance = _of_data(symbols)
        route.define(rule, before, energy, last, value)
    nested = {symbols.written[u]: route.nested[u] for u in symbols.nested}
    return Action(
        symbols=symbols,
        entropies=tuple(map(_per_width, entropies, symbols.widths)),
        nested={u: block if u.is_Matrix else trace(block) for u, block in nested.items()},
        energy=energy,
        kernel=symbols.kernel(),
        predictor=Predictor(mean, covariance),
        derivation=Derivation(tuple(route.steps), _sizes_of_trials(symbols)),
    )


def _of_data(symbols: ActionSymbols, *, written: bool = True) -> tuple[Expr, ...]:
    pairs = ((0, 0), (1, 0), (1, 1))
    y = symbols.labels
    kernel, between, of_test = (symbols.kernel(*pair, written=written) for pair in pairs)
    resolvent = inverse(sum_of([symbols.temperature * Identity(y.shape[0]), kernel]))
    energy = log_det(inverse(resolvent)) + Trace(y.T * resolvent * y)  # Eq. (12)
    mean = between * resolvent * y  # Eqs. (9), (29)
    covariance = of_test - between * resolvent * between.T  # Eq. (30)
    return energy, mean, covariance if symbols.noises else expand_products(covariance)


def _per_width(entropy: Expr, width: Expr) -> Expr:
    return width * Add(*(expand(term / width) for term in Add.make_args(expand(entropy))))


def _sizes_of_trials(symbols: ActionSymbols) -> tuple[Mapping[Expr, int], ...]:
    """Return sizes at which to test steps; any two of four layers, and outputs, differ in some."""
    widths = dict.fromkeys(symbols.widths)
    heads = [layer.symbols.heads for layer in symbols.form.layers]
    common = {TOKENS: 3, symbols.input_features: 2, size("P_test"): 2, size("D"): 3}
    outputs = [symbols.outputs] if symbols.outputs.is_Symbol else []
    several = {symbols.examples: 1 if outputs else 2, **dict.fromkeys(outputs, 3)}
    trials = [{**common, **dict.fromkeys(widths, 1), **dict.fromkeys(heads, 2), **several}]
    for place, examples in enumerate((3, 1)):
        trial = {**common, symbols.examples: examples, **dict.fromkeys(outputs, 1)}
        trial |= {width: 1 + i // 3**place % 3 for i, width in enumerate(widths, 1)}
        trials.append(trial | {each: 1 + i // 2**place % 2 for i, each in enumerate(heads, 1)})
    return tuple(trials)


class _Route(Recorder):
    """The derivation in progress.

    - `values`: of each Lambda_l.
    - `entropies`: by the number of their order parameter.
    - `nested`: the block that each nested order parameter is.
    - `waiting`: entropies that need the layer below.
    - `noises`: by layer, how the noise of its nonlinear units is read, and its action.
    """

    def __init__(self, symbols: ActionSymbols):
        super().__init__()
        self.symbols = symbols
        self.values: dict[MatrixSymbol, MatrixExpr] = {}
        self.entropies: dict[int, Expr] = {}
        self.nested: dict[MatrixSymbol, MatrixExpr] = {}
        self.waiting: list[tuple[int, Expr, MatrixSymbol, LayerForm]] = []
        self.noises: dict[int, tuple[MatrixSymbol, Expr]] = {}

    def names(self, number: int) -> tuple[Expr, ...]:
        """Return N_l, U_l, and the overlap Q_l, whose Fourier conjugate is U_l."""
        u = self.symbols.overlaps[number - 1]
        return self.symbols.widths[number - 1], u, positive_definite(f"Q_{number}", u.shape[0])

    def define(self, rule, before, after, symbol: Expr, value: Expr, **record) -> Expr:
        defined = ((symbol, value),)
        return self.say(rule, before, after, Equal(defined), definitions=defined, **record)

    def eliminate(self, before, after, symbol, solution: MatrixExpr, **record) -> Expr:
        record["definitions"] = ((symbol, solution),)
        claim = Stationary(symbol, solution)
        return self.say("eliminated at its saddle point", before, after, claim, **record)

    def readings(self, layer: int) -> MatrixSymbol:
        """Return R_l (N_{l+1} x n_{l+1})."""
        columns = self.symbols.overlaps[layer].shape[0]
        return MatrixSymbol(f"R_{layer}", self.symbols.widths[layer], columns)

    def state_induction(self, layer: int, readings, value: MatrixExpr) -> MatrixSymbol:
        width = self.symbols.widths[layer]
        inner = positive_definite(f"Lambda_{layer}", readings.shape[1])
        before, after = (Trace(m * readings.T * readings) / width for m in (value, inner))
        self.values[inner] = value
        self.define("induction", normal(before), after, inner, value, equations="69")
        return inner


def _replace_nonlinear_units(
    route: _Route, layer: int, activation: Activation, u: MatrixSymbol, *, splits: bool = False
) -> None:
    """Replace a nonlinear layer (0 is the embedding) by linear units, an ansatz.

    If it `splits` them, their linear part goes on, and independent noise ends here.
    Source: Pacelli et al., arXiv 2209.04882; `splits` is ours.
    """
    # tr(M R^T R)/N of the tokens that are read, R = phi(V X) G.
    width = route.symbols.widths[layer]
    tokens = size("D")
    weights = MatrixSymbol(f"V_{layer}", width, route.symbols.input_features)
    inputs = MatrixSymbol(f"x_{layer}", weights.shape[1], tokens)
    covariance = inputs.T * inputs
    units = entrywise(lambda unit: activation.function.xreplace({UNIT: unit}), weights * inputs)
    kernel = positive_definite(f"{'chi' if splits else 'kappa'}_{layer}", tokens)
    value = kernel_of_covariance(activation, covariance, noise=splits)
    root, text = SquareRoot(kernel), _EQUIVALENCE
    if splits:
        slopes = entrywise(lambda own: activation.slope.xreplace({OWN: own}), Diagonal(covariance))
        root = below(inputs * DiagMatrix(slopes), root)
        text = _BRANCH
    # SymPy prints this name with a tilde.
    linear = MatrixSymbol(f"Vtilde_{layer}", width, root.shape[0])
    inner = positive_definite("M", u.shape[0])
    reading = MatrixSymbol("G", tokens, u.shape[0])
    reads = units * reading, linear * root * reading
    before, after = (Trace(inner * read.T * read) / width for read in reads)
    # Linear units are Gaussian.
    assumptions = () if activation.is_linear else (text.format(width=latex(width)),)
    record = {"definitions": ((kernel, value),), "assumptions": assumptions}
    claim = SameMoments(weights, linear, kernel, value)
    route.say("Gaussian equivalence", before, after, claim, **record)


def _integrate_readout(route: _Route, t: MatrixSymbol) -> MatrixSymbol:
    route.section = "Readout"
    say, symbols = route.say, route.symbols
    tokens = symbols.read_tokens
    depth = len(symbols.matrices)
    width = symbols.widths[-1]
    variance = symbols.variances[-1]
    units = expand(tokens * width)
    readings = route.readings(depth)
    weights = MatrixSymbol("A", symbols.outputs, units)
    # The tokens that are read, side by side.
    hidden = Stacked(MatrixSymbol(f"X_{depth}", width, expand(tokens * symbols.examples)), tokens)
    output = Stacked(weights * hidden, symbols.examples) / sqrt(units)  # Eq. (4)
    fields = Stacked(t.T, symbols.examples)
    read = readings if tokens == 1 else MatrixSymbol(f"R_{depth}a", units, symbols.outputs)
    v, r = (MatrixSymbol(name, units, 1) for name in "vr")

    before = 2 * I * Trace(t.T * output)
    after = 2 * I * Trace(weights * hidden * fields) / sqrt(units)
    coupling = say("blocks unstacked", before, after, Equal(), equations="4")
    after = 2 * I * Trace(weights * read) / sqrt(units)  # Eq. (43)
    named = route.define("named", coupling, after, read, hidden * fields, equations="43")
    one_row = 2 * I * Trace(v.T * r) / sqrt(units)
    averaged = variance * Trace(r.T * r) / units  # Eq. (44)
    total = variance * Trace(read.T * read) / units
    law = Average(v, variance * Identity(units))
    rows = ((v, weights), (r, read.T), symbols.outputs)
    average_rows(route, named, (one_row, averaged, total), rows, law, ("43", "44", "45"))
    if tokens != 1:
        stacked = total.xreplace({read: sqrt(tokens) * Stacked(readings, tokens)})
        of_paths = variance * Trace(readings.T * readings) / width
        say("blocks become path indices", stacked, of_paths, Equal())
    return route.state_induction(depth, readings, variance * Identity(readings.shape[1]))


def _integrate_layer(route: _Route, form: LayerForm, inner: MatrixSymbol) -> MatrixSymbol:
    """Integrate out the weights of layer l, introduce U_{l+1}, and return Lambda_{l-1}."""
    layer = form.symbols.index
    width = form.symbols.width
    hidden = form.symbols.hidden
    say = route.say
    route.section = f"Layer {layer}"
    is_last = layer == len(route.symbols.matrices)
    _, u, overlap = route.names(layer + 1)
    rows = u.shape[0]
    q = MatrixSymbol(f"q_{layer}", TOKENS, rows)
    # Eq. (7)
    along_paths = form.weights * Stacked(hidden * form.block_reading(q), form.blocks) / sqrt(width)
    if form.has_skip:
        along_paths = form.gain * hidden * expand_products(form.skip_tokens * q) + along_paths
    say("forward map read along paths", form.forward * q, along_paths, Equal(), equations="7")

    # The readings are V Z + gain R, where R is read through the skip connection.
    weights = form.weights
    covariance = kronecker(form.covariance, Identity(width))
    name = f"R_{layer - 1}b" if form.has_skip else f"R_{layer - 1}"
    through = MatrixSymbol(name, width, expand(form.blocks * rows))
    read = Stacked(through, form.blocks) / sqrt(width)
    if layer in route.symbols.noises:
        # Noise has its own weights, with readings E.
        noise = MatrixSymbol(f"E_{layer}", size("D"), rows)
        weights = MatrixSymbol(f"Vtilde_{layer}", weights.shape[0], weights.shape[1] + size("D"))
        covariance = BlockDiagMatrix(covariance, Identity(size("D")))
        read = below(read, noise)
        route.noises[layer] = noise, normal(Trace(u * noise.T * noise))
    blocks = MatrixSymbol(f"Z_{layer}", weights.shape[1], rows)
    skip = MatrixSymbol(f"R_{layer - 1}s", width, rows)
    number = "46" if is_last else "57"
    block = weights, blocks, covariance
    of_u, of_blocks, of_skip = _integrate_weights(route, layer + 1, *block, inner, number, form.gain, skip)
    of_paths = kronecker(form.covariance, u)
    of_noise = route.noises[layer][1] if layer in route.noises else S.Zero
    stacked = of_blocks.xreplace({blocks: read})
    of_blocks = normal(Trace(of_paths * through.T * through) / width)
    number = "56" if is_last else "67"
    say("blocks become path indices", stacked, of_blocks + of_noise, Equal(), equations=number)
    if not form.has_skip:
        _state_entropies(route, layer + 1, of_u, inner)
        return route.state_induction(layer - 1, through, of_paths)
    route.waiting.append((layer + 1, of_u, inner, form))
    of_paths = BlockDiagMatrix(form.gain**2 * inverse(sum_of([inverse(inner), overlap])), of_paths)
    joined = route.readings(layer - 1)
    after = Trace(of_paths * joined.T * joined) / width
    route.define("branches side by side", of_skip + of_blocks, after, joined, beside(skip, through))
    return route.state_induction(layer - 1, joined, of_paths)


def _integrate_weights(
    route: _Route, number, weights, blocks, covariance, inner, equation="", gain=S.Zero, readings=None
) -> tuple[Expr, ...]:
    """Average tr(M F^T F)/N over V, and introduce U; return terms of U alone, Z and R.

    F = V Z + gain R with Z = `blocks`, R = `readings` and M = `inner`. The rows of V
    are N(0, `covariance`).
    """
    say, (width, u, overlap) = route.say, route.names(number)
    v = MatrixSymbol("v", weights.shape[1], 1)
    r = MatrixSymbol("r", expand(inner.shape[0]), 1)
    rows = ((v, weights),)
    whole = weights * blocks
    row = blocks.T * v
    # The determinant lemma replaces C^-1 + Z M Z^T / N by M^-1 + Z^T C Z / N.
    precision = sum_of([inverse(covariance), blocks * inner * blocks.T / width])
    product = expand_products(blocks.T * covariance * blocks / width)
    small = sum_of([inverse(inner), product])
    renewed = sum_of([inverse(inner), overlap])
    of_row = of_small = of_readings = of_renewed = S.Zero
    if gain != 0:
        rows = (*rows, (r, readings))
        whole = whole + gain * readings
        row = row + gain * r
        shift = blocks * inner * r / width
        of_row = Trace(r.T * inner * r) / width - Trace(shift.T * inverse(precision) * shift)
        of_row = gain**2 * of_row
        of_small = gain**2 * Trace(r.T * inverse(small) * r) / width
        traces = (Trace(inverse(m) * readings.T * readings) for m in (small, renewed))
        of_readings, of_renewed = (gain**2 * each / width for each in traces)
    before = Trace(inner * whole.T * whole) / width
    after = normal(Trace(row.T * inner * row) / width)
    claim = SumOverRows(rows, width, "after")
    one_row = say("one row at a time", before, after, claim, equations=equation)
    after = normal(log_det(covariance) + log_det(precision) + of_row)
    averaged = say("Gaussian integral", one_row, after, Average(v, covariance))
    determinants = normal(log_det(inner) + log_det(small))
    lemma = say("matrix determinant lemma", averaged, determinants + normal(of_row), Equal())
    lemma = say("Woodbury identity", lemma, determinants + of_small, Equal())
    after = expand(width * determinants) + of_readings
    total = say("sum over rows", lemma, after, SumOverRows(rows[1:], width, "before"))
    # Q = Z^T C Z / N by a delta function, whose Fourier variable is U.
    of_u = normal(width * (log_det(inner) + log_det(renewed) - Trace(overlap * u)))
    of_blocks = normal(width * Trace(u * product))
    inserted = OrderParameterInserted(overlap, product, u, width)
    say("order parameter by a delta function", total, of_u + of_blocks + of_renewed, inserted)
    return of_u, of_blocks, of_renewed


def _state_entropies(route: _Route, number: int, terms: Expr, inner: MatrixSymbol) -> None:
    """State the entropy of U_l given U_{l+1}, and entropies that waited for it.

    With a skip connection, Q_{l+1} occurs linearly: U_{l+1} is a block of U_l.
    """
    large = (_LARGE.format(width=latex(route.symbols.widths[number - 1])),)
    entropy = _eliminate_overlap(route, number, terms, inner, assumptions=large)
    while route.waiting:
        above, waiting, inner, form = route.waiting.pop()
        (width, u, _), (_, outer, multiplier) = route.names(number), route.names(above)
        rows = outer.shape[0]
        rest = expand(u.shape[0] - outer.shape[0])
        block = principal_block(u, (rows, rest), 0) / form.gain**2
        of_rest = principal_block(u, (rows, rest), 1)
        covariance = kronecker(form.covariance, outer)
        own = log_det(covariance) + log_det(outer) - log_det(u) + Trace(inverse(covariance) * of_rest)
        own = simplify_traces(width * (own + rows * log(form.gain**2) - rest))
        after = own + _entropy(width, outer, inner)
        record = {"claim": Stationary(outer, block, multiplier), "definitions": ((outer, block),)}
        route.say("Lagrange multiplier", normal(entropy + waiting), after, **record)
        route.nested[outer] = block
        route.entropies[number] = own
        number = above
        entropy = _eliminate_overlap(route, number, waiting, inner)
    route.entropies[number] = entropy


def _eliminate_overlap(route: _Route, number: int, terms: Expr, inner, **record) -> Expr:
    (width, u, overlap), value = route.names(number), route.values[inner]
    entropy = _entropy(width, u, inner)
    solution = sum_of([inverse(u), -inverse(inner)])
    route.eliminate(terms, entropy, overlap, solution, **record)
    return route.define("written out", entropy, simplify_traces(_entropy(width, u, value)), inner, value)


def _entropy(width: Expr, u: MatrixSymbol, mean: MatrixExpr) -> Expr:
    """Return the entropy of U with its prior mean; Eq. (32)."""
    return normal(width * (log_det(mean) - log_det(u) + Trace(inverse(mean) * u) - u.shape[0]))


def _state_meaning(route: _Route, inner, weights, blocks) -> None:
    """Result 2: a source J on path weights w shows that U_1 is their mean overlap."""
    route.section, say, (width, u, overlap) = "Meaning of U", route.say, route.names(1)
    r, w = (MatrixSymbol(name, u.shape[0], 1) for name in "rw")
    source = positive_definite("J", u.shape[0])
    form = normal(Trace(r.T * inner * r) / width)
    coupling = 2 * I * Trace(w.T * r) / sqrt(width)
    claim = Average(w, inner, of="after")
    say("read backwards as weights", form, coupling, claim, equations="81")
    precision = sum_of([inverse(inner), source])
    of_unit = log_det(inner) + log_det(precision)
    before = coupling + Trace(w.T * source * w)
    after = of_unit + Trace(r.T * inverse(precision) * r) / width
    say("Gaussian integral", before, normal(after), Average(w, inner))
    # The derivative with respect to J gives the mean of w w^T.
    covariance = Identity(weights.shape[1])
    terms, *_ = _integrate_weights(route, 1, weights, blocks, covariance, inverse(precision))
    solution = sum_of([inverse(u), -precision])
    after = normal(width * log_det(inner)) + _entropy(width, u, inverse(precision))
    after += width * log_det(precision)
    of_source = route.eliminate(normal(terms + width * of_unit), normal(after), overlap, solution)
    say("differentiated", of_source, width * u, Derivative(source), equations="13")  # Eq. (13)


def _with_richness(action: Action, form: NetworkForm) -> Action:
    """Return the action of the mean-field parameterisation, from the standard one.

    It divides the readout's variance and the temperature by g = N_1 gamma_0^2. In
    U' = g U, written without the prime, the entropies are the standard ones, and the
    misfit is g y^T (K + T I)^-1 y. Source: Lauditi, Bordelon, Pehlevan, arXiv
    2502.07998; the form for attention paths is ours.
    """
    symbols = ActionSymbols(form)
    power = symbols.power
    variables = (*symbols.free, symbols.features, symbols.labels)
    quantities = *symbols.free, symbols.variances[-1], symbols.temperature
    scaled = {each: each / power for each in quantities}
    route = Recorder(list(action.derivation.steps), "Mean-field parameterisation")
    misfit = Add(*(term for term in Add.make_args(action.energy) if term.has(symbols.labels)))
    energy = action.energy - misfit + power * misfit
    assumptions = (_COLD.format(power=latex(power)),)

    def rescale(before: Expr, after: Expr, claim) -> Expr:
        before = before.xreplace(scaled)
        return route.say("order parameters rescaled", before, after, claim, assumptions=assumptions)

    mean, covariance = action.predictor
    rescale(action.total, action.entropy + energy, EqualUpToConstant(variables))
    rescale(mean, mean, Equal())
    covariance = rescale(covariance, covariance / power, Equal())
    if form.is_infinite:
        scale = Symbol("N", positive=True)
        route.section = "Infinite width"
        wide = (action.entropy + energy).xreplace({width: scale * width for width in symbols.widths})
        fixed = f"widths large in fixed ratios to ${latex(symbols.widths[0])}$, number of examples fixed"
        leading = expand(wide - wide.subs(scale, 0))
        route.say("leading order", wide, leading, LeadingOrder(scale), assumptions=(fixed,))
        energy = power * misfit
    derivation = Derivation(tuple(route.steps), action.derivation.sizes)
    changed = {"predictor": Predictor(mean, covariance), "derivation": derivation}
    return replace(action, symbols=symbols, energy=energy, **changed)
