"""The compiled action: functions of arrays, generated from the expressions of an action when they are first asked for.

Stage 2 of `Architecture -> derive -> Action -> compile -> bind -> solve -> predict`.
"""

from collections.abc import Mapping
from functools import cached_property, lru_cache

from sympy import Expr, MatrixSymbol, Symbol

from ...checks import checked_instance
from ...codegen import CompiledFunction, compile_expressions
from ...symbolic import gradient
from ..action.action import Action
from ..action.dual_form import DualForm
from ..action.kernel_energy import KernelEnergy
from ..action.symbols import ActionSymbols


class CompiledAction:
    """Pure JAX functions of arrays, one or more expressions of `action` each; none is jitted.

    `compile_action` makes one for each structure of layers: they hold whatever the numbers and head counts are.
    """

    def __init__(self, action: Action):
        self.action = action

    @property
    def symbols(self) -> ActionSymbols:
        """The symbols that the functions' arguments are called by."""
        return self.action.symbols

    @cached_property
    def terms(self) -> CompiledFunction:
        """The entropies, the energy and the total S, Eq. (32)."""
        outputs = {**self._entropies, "energy": self.action.energy, "total": self.action.total}
        free = {name: self.action.substitute_nested(expression) for name, expression in outputs.items()}
        return compile_expressions("action", free, self.symbols.arguments)

    @cached_property
    def entropies(self) -> CompiledFunction:
        """The entropies and their sum."""
        outputs = {**self._entropies, "entropy": self.action.entropy}
        free = {name: self.action.substitute_nested(expression) for name, expression in outputs.items()}
        return self._compile("entropies", free, *self.symbols.free, *self.symbols.numbers)

    @property
    def _entropies(self) -> Mapping[str, Expr]:
        """The entropy of every order parameter given the next, by name."""
        *layers, readout = self.action.entropies
        return {**{f"entropy_{layer}": entropy for layer, entropy in enumerate(layers, 1)}, "entropy_a": readout}

    @cached_property
    def entropy(self) -> CompiledFunction:
        """The entropy alone."""
        arguments = (*self.symbols.free, *self.symbols.numbers)
        return self._compile("entropy", {"entropy": self.action.entropy}, *arguments)

    @cached_property
    def corrections(self) -> CompiledFunction:
        """What the exact prior at finite width adds to the entropy."""
        arguments = (*self.symbols.free, *self.symbols.numbers)
        return self._compile("corrections", {"corrections": self.action.corrections}, *arguments)

    @cached_property
    def readout(self) -> CompiledFunction:
        """`Action.readout_solution`, u given U_L."""
        arguments = (self.symbols.matrices[-1], *self.symbols.numbers)
        return self._compile("readout", {"u": self.action.readout_solution}, *arguments)

    @cached_property
    def minima(self) -> Mapping[Expr, CompiledFunction]:
        """Each closed form of `Action.majoriser`, given the other order parameters.

        Empty where one has a square root of a matrix that is not seen to be positive definite.
        """
        majoriser = self.action.majoriser
        free = (*self.symbols.free, majoriser.logdet_gradient, majoriser.weight)

        def compiled(symbol: Expr, minimum: Expr) -> CompiledFunction:
            matrices = (matrix for matrix in free if minimum.has(matrix))
            return self._compile(f"minimum_{symbol}", {symbol.name: minimum}, *matrices, *self.symbols.numbers)

        try:
            return {symbol: compiled(symbol, minimum) for symbol, minimum in majoriser.minima.items()}
        except NotImplementedError:
            return {}

    @cached_property
    def majorised_energy(self) -> CompiledFunction:
        """`Action.majoriser`'s bound of the energy, up to a constant."""
        majoriser = self.action.majoriser
        arguments = (self.symbols.first, majoriser.logdet_gradient, majoriser.weight)
        return self._compile("majorised_energy", {"bound": majoriser.bound}, *arguments)

    @cached_property
    def force(self) -> CompiledFunction:
        """The energy's gradient in U_1, the force of `Action.expansion`."""
        slope = gradient(self.action.energy, self.symbols.first)
        return compile_expressions("force", {"force": slope}, self.symbols.arguments)

    @cached_property
    def first_order(self) -> CompiledFunction:
        """The order parameters to first order in one over the widths, given the force."""
        expansion, symbols = self.action.expansion, self.symbols
        outputs = {symbol.name: value for symbol, value in expansion.order_parameters.items()}
        return compile_expressions("first_order", outputs, (expansion.force, *symbols.numbers, *symbols.sizes))

    @cached_property
    def training_kernel(self) -> CompiledFunction:
        """The kernel K among training features, Eq. (10)."""
        arguments = (self.symbols.first, self.symbols.features)
        return self._compile("training_kernel", {"kernel": self.action.kernel}, *arguments)

    @cached_property
    def kernel(self) -> CompiledFunction:
        """The kernel between training and test features."""
        arguments = (*self.symbols.free, self.symbols.features, self.symbols.test_features)
        return self._compile("kernel", {"kernel": self.action.test_kernel}, *arguments)

    @cached_property
    def kernel_product(self) -> CompiledFunction:
        """(K + T I) V, V being `columns`: multiplied from the right, the kernel never formed."""
        symbols, columns = self.symbols, self.columns
        product = self.action.kernel * columns + symbols.temperature * columns
        arguments = (symbols.first, symbols.temperature, symbols.features, columns)
        return self._compile("kernel_product", {"product": product}, *arguments)

    @property
    def columns(self) -> MatrixSymbol:
        """V, some columns of numbers, one a row of the kernel."""
        return MatrixSymbol("V", self.symbols.features.shape[0], Symbol("k", integer=True, positive=True))

    @cached_property
    def kernel_energy(self) -> CompiledFunction:
        """The energy, the resolvent (K + T I)^-1, the representer (K + T I)^-1 y, and minus the misfit's slope in K."""
        form = self.action.kernel_energy
        outputs = {"energy": form.energy, "resolvent": form.resolvent, "representer": form.representer}
        outputs |= {"minus_misfit_slope": form.minus_misfit_slope}
        return self._compile("kernel_energy", outputs, form.kernel, self.symbols.temperature, self.symbols.labels)

    @cached_property
    def kernel_slopes(self) -> CompiledFunction:
        """The energy's gradient in U_1, its two parts apart, given resolvent and representer."""
        form = self.action.kernel_energy
        arguments = (form.resolvent_symbol, form.representer_symbol, self.symbols.first, self.symbols.features)
        return self._compile("kernel_slopes", _gradients(form), *arguments)

    @cached_property
    def kernel_moves(self) -> CompiledFunction:
        """What the energy's curvature takes of one change of K: `KernelCurvature.moves`."""
        form = self.action.kernel_energy
        arguments = (form.curvature.change, form.resolvent_symbol, form.representer_symbol)
        moves = {symbol.name: value for symbol, value in form.curvature.moves.items()}
        return self._compile("kernel_moves", moves, *arguments)

    @cached_property
    def kernel_curvature(self) -> CompiledFunction:
        """The energy's second derivative along two changes of K, given the moves of both."""
        form = self.action.kernel_energy.curvature
        return self._compile("kernel_curvature", {"curvature": form.value}, *form.moves, *form.others)

    @cached_property
    def path_kernel(self) -> CompiledFunction:
        """The kernel of one pair of paths, the derivative of Eq. (10) in an entry of U_1."""
        form = self.action.kernel_energy
        return self._compile("path_kernel", {"kernel": form.path_kernel}, *form.path_features)

    @cached_property
    def dual_energy(self) -> CompiledFunction:
        """The energy's two parts and their sum in the dual form."""
        return self._compile("dual_energy", self.action.dual.parts, *self._dual_arguments)

    @cached_property
    def dual_slopes(self) -> CompiledFunction:
        """`dual_energy` with the gradients in U_1 of its parts, from the same factorisation."""
        form = self.action.dual
        return self._compile("dual_slopes", {**form.parts, **_gradients(form)}, *self._dual_arguments)

    @cached_property
    def predictor(self) -> CompiledFunction:
        """Mean and variance of the outputs on test examples, Eqs. (9), (29), (30)."""
        predictor = self.action.predictor
        arguments = (*self.symbols.arguments, self.symbols.test_features)
        return compile_expressions("predictor", {"mean": predictor.mean, "variance": predictor.variance}, arguments)

    @cached_property
    def kernel_predictor(self) -> CompiledFunction:
        """`predictor` from kernels."""
        form, symbols = self.action.kernel_predictor, self.symbols
        arguments = (symbols.temperature, form.kernel, form.between, form.test_diagonal, symbols.labels)
        return self._compile("kernel_predictor", {"mean": form.mean, "variance": form.variance}, *arguments)

    @cached_property
    def dual_predictor(self) -> CompiledFunction:
        """`predictor` in the dual form."""
        form, symbols = self.action.dual, self.symbols
        arguments = (symbols.first, symbols.temperature, form.gram, form.projection, symbols.test_features)
        return self._compile("dual_predictor", {"mean": form.mean, "variance": form.variance}, *arguments)

    @property
    def _dual_arguments(self) -> tuple[Expr, ...]:
        return (self.symbols.first, self.symbols.temperature, *self.action.dual.statistics)

    def _compile(self, name: str, outputs: Mapping[str, Expr], *arguments: Expr) -> CompiledFunction:
        return compile_expressions(name, outputs, self.symbols.completed(arguments))


def _gradients(form: KernelEnergy | DualForm) -> Mapping[str, Expr]:
    """The two parts of the energy's gradient in U_1, by name."""
    return {"logdet_gradient": form.logdet_gradient, "minus_misfit_gradient": form.minus_misfit_gradient}


def compile_action(action: Action) -> CompiledAction:
    """The functions of `action`; the same object for the same action."""
    return _functions_of(checked_instance("action", action, Action, "which bpkr.derive makes"))


_functions_of = lru_cache(CompiledAction)


def generate_source(action: Action) -> str:
    """Source of the generated JAX function of the action: the text that runs."""
    return compile_action(action).terms.source
