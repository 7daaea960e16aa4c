"""The compiled action: functions of arrays, generated from the expressions of an action when they are first asked for.

Stage 2 of `Architecture -> derive -> Action -> compile -> Problem -> solve -> predict`.
"""

from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache

from sympy import Expr, MatrixSymbol, Symbol

from ...checks import checked_instance
from ...codegen import CompiledFunction, compile_expressions
from ...symbolic import gradient
from ..action.action import Action
from ..action.dual_form import DualForm
from ..action.kernel_energy import KernelEnergy
from ..action.symbols import ActionSymbols


def _compiled(outputs: Callable[["CompiledAction"], Mapping[str, Expr]]) -> cached_property:
    """Compile what a method returns, expressions by name, when it is first asked for; it is called as the method is."""
    found = cached_property(lambda self: self._compile(outputs.__name__, outputs(self)))
    found.__doc__ = outputs.__doc__
    return found


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

    def _compile(self, name: str, outputs: Mapping[str, Expr]) -> CompiledFunction:
        """Compile `outputs` as a function of all that they depend on but sizes, which shapes determine."""
        symbols, free = self.symbols, set().union(*(output.free_symbols for output in outputs.values()))
        # the number of examples is data in the dual form, which has no array with examples
        scalars = {*symbols.free, *symbols.numbers, *(self.action.dual.statistics if name.startswith("dual") else ())}
        arguments = {symbol for symbol in free if isinstance(symbol, MatrixSymbol) or symbol in scalars}
        if symbols.features in arguments:
            # the shape of the features determines the size of a path's, given that of U_1
            arguments.add(symbols.first)
        arguments = sorted(arguments, key=lambda symbol: symbol.name)
        return compile_expressions(name, outputs, symbols.completed(tuple(arguments)))

    @cached_property
    def terms(self) -> CompiledFunction:
        """The entropies, the energy and the total S, Eq. (32)."""
        outputs = {**self._entropies, "energy": self.action.energy, "total": self.action.total}
        free = {name: self.action.substitute_nested(expression) for name, expression in outputs.items()}
        return compile_expressions("action", free, self.symbols.arguments)

    @_compiled
    def entropies(self):
        """The entropies and their sum."""
        outputs = {**self._entropies, "entropy": self.action.entropy}
        return {name: self.action.substitute_nested(expression) for name, expression in outputs.items()}

    @property
    def _entropies(self) -> Mapping[str, Expr]:
        """The entropy of every order parameter given the next, by name."""
        *layers, readout = self.action.entropies
        return {**{f"entropy_{layer}": entropy for layer, entropy in enumerate(layers, 1)}, "entropy_a": readout}

    @_compiled
    def entropy(self):
        """The entropy alone."""
        return {"entropy": self.action.entropy}

    @_compiled
    def corrections(self):
        """What the exact prior at finite width adds to the entropy."""
        return {"corrections": self.action.corrections}

    @_compiled
    def readout(self):
        """`Action.readout_solution`, u given U_L."""
        return {"u": self.action.readout_solution}

    @cached_property
    def minima(self) -> Mapping[Expr, CompiledFunction]:
        """Each closed form of `Action.majoriser`, given the other order parameters.

        Empty if one has a square root of a matrix that is not seen to be positive definite.
        """
        minima = self.action.majoriser.minima.items()
        try:
            return {symbol: self._compile(f"minimum_{symbol}", {symbol.name: minimum}) for symbol, minimum in minima}
        except NotImplementedError:
            return {}

    @_compiled
    def majorised_energy(self):
        """`Action.majoriser`'s bound of the energy, up to a constant."""
        return {"bound": self.action.majoriser.bound}

    @_compiled
    def force(self):
        """The energy's gradient in U_1, the force of `Action.expansion`."""
        return {"force": gradient(self.action.energy, self.symbols.first)}

    @_compiled
    def first_order(self):
        """The order parameters to first order in one over the widths, given the force."""
        return {symbol.name: value for symbol, value in self.action.expansion.order_parameters.items()}

    @_compiled
    def training_kernel(self):
        """The kernel K among training features, Eq. (10)."""
        return {"kernel": self.action.kernel}

    @_compiled
    def kernel(self):
        """The kernel between training and test features."""
        return {"kernel": self.action.test_kernel}

    @_compiled
    def kernel_product(self):
        """(K + T I) V, V being `columns`: multiplied from the right, the kernel never formed."""
        return {"product": self.action.kernel * self.columns + self.symbols.temperature * self.columns}

    @property
    def columns(self) -> MatrixSymbol:
        """V, some columns of numbers, one row per row of the kernel."""
        return MatrixSymbol("V", self.symbols.features.shape[0], Symbol("k", integer=True, positive=True))

    @_compiled
    def kernel_energy(self):
        """The energy, the resolvent (K + T I)^-1, the representer (K + T I)^-1 y, and minus the misfit's slope in K."""
        form = self.action.kernel_energy
        names = ("energy", "resolvent", "representer", "minus_misfit_slope")
        return {name: getattr(form, name) for name in names}

    @_compiled
    def kernel_slopes(self):
        """The energy's gradient in U_1, its two parts apart, given resolvent and representer."""
        return _gradients(self.action.kernel_energy)

    @_compiled
    def kernel_moves(self):
        """What the energy's curvature takes of one change of K: `KernelCurvature.moves`."""
        return {symbol.name: value for symbol, value in self.action.kernel_energy.curvature.moves.items()}

    @_compiled
    def kernel_curvature(self):
        """The energy's second derivative along two changes of K, given the moves of both."""
        return {"curvature": self.action.kernel_energy.curvature.value}

    @_compiled
    def path_kernel(self):
        """The kernel of one pair of paths, the derivative of Eq. (10) in an entry of U_1."""
        return {"kernel": self.action.kernel_energy.path_kernel}

    @_compiled
    def dual_energy(self):
        """The energy's two parts and their sum in the dual form."""
        return self.action.dual.parts

    @_compiled
    def dual_slopes(self):
        """`dual_energy` with the gradients in U_1 of its parts, from the same factorisation."""
        return {**self.action.dual.parts, **_gradients(self.action.dual)}

    @_compiled
    def predictor(self):
        """Mean and variance of the outputs on test examples, Eqs. (9), (29), (30)."""
        return _moments(self.action.predictor)

    @_compiled
    def kernel_predictor(self):
        """`predictor` from kernels."""
        return _moments(self.action.kernel_predictor)

    @_compiled
    def dual_predictor(self):
        """`predictor` in the dual form."""
        return _moments(self.action.dual)


def _gradients(form: KernelEnergy | DualForm) -> Mapping[str, Expr]:
    """The two parts of the energy's gradient in U_1, by name."""
    return {"logdet_gradient": form.logdet_gradient, "minus_misfit_gradient": form.minus_misfit_gradient}


def _moments(form) -> Mapping[str, Expr]:
    return {"mean": form.mean, "variance": form.variance}


def compile_action(action: Action) -> CompiledAction:
    """Compile the functions of `action`; the same object for the same action."""
    return _functions_of(checked_instance("action", action, Action, "which bpkr.derive makes"))


_functions_of = lru_cache(CompiledAction)


def generate_source(action: Action) -> str:
    """Return the source of the generated JAX function of the action: the text that runs."""
    return compile_action(action).terms.source
