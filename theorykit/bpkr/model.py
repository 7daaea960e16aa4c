"""A scikit-learn estimator that fits the theory to labelled sequences, on top of `Problem` and `solve`."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float
from numpy.typing import NDArray

from ..checks import (
    array_module,
    checked_array,
    checked_whole_number,
    counted,
    finite_array,
    numeric_array,
    refuse_traced,
    shown,
)
from ..precision import require_float64
from ..settings import usual_settings
from ..symbolic.documents.display import DisplayMixin
from ..symbolic.documents.document import Block, Table, Text
from ..workers import Packed
from .action.action import Action
from .data.classes import LabelsWarning
from .data.data import Data
from .evaluation.action_terms import evaluate_infinite_width
from .evaluation.observables import head_scores
from .evaluation.prediction import Prediction, kernel, predict
from .evaluation.problem import Problem
from .network.attention import Heads, checked_real_tokens, heads
from .network.paths import AttentionWarning, path_features
from .order_parameters.order_parameters import gp_limit
from .saddle.saddle import solve
from .specification.architecture import Architecture, require_finite_widths

_RANDOM_LAYERS = (2, 2)
# Largest mean of labels, in standard deviations, that a network without an intercept should fit.
_OFFSET = 3.0


class Model(DisplayMixin):
    """Predict labels of sequences by a deep network with given attention, averaged over all other weights.

    The model is a scikit-learn estimator with `fit`, `predict`, `score`, `get_params` and `set_params`, so `clone`,
    `cross_val_score` and `GridSearchCV` work. It calls `path_features`, `Problem`, `solve` and `predict`, and returns
    the same numbers. Inputs are (examples, tokens, features).

    Args:
        layers: as in `Architecture`; by default one layer per array of the heads, or two layers of two random heads.
        widths: as in `Architecture`. Without a richness, `math.inf` is the Gaussian process of infinitely wide layers.
        temperature: variance of the labels' noise.
        heads: "random"; or heads from `bpkr.heads`; or key-query products (heads, features, features) of each layer; or
            the heads of one layer from `checkpoints.read_heads`, whose norm is applied to the inputs.
        readout: "first", "last", "mean", or "all" for separate readout weights per token.
        mask: which keys a query may attend to in all inputs, such as "causal"; see `bpkr.attention`.
        prior_variances: as in `Architecture`.
        richness: the richness of the mean-field parameterisation, as in `Architecture`. With it, infinitely wide layers
            learn features.
        classes: whether labels are classes. By default text and booleans are classes, and numbers are not.
        random_state: the seed of random heads. Their key-query products are normal with standard deviation
            1/features, so that scores are of order one if features are of order one.

    `fit` sets these attributes:

    - `problem_`, `architecture_`, `heads_`: the problem, the architecture and the heads.
    - `order_parameters_`: the order parameters of the solution.
    - `saddle_`: the result of `solve`; None at infinite width.
    - `log_evidence_`: log probability density of the labels; per width at infinite width with a richness.
    - `classes_`: the classes, if labels are classes.
    - `n_features_in_`: number of features of a token.

    Example:
        >>> import numpy as np
        >>> import theorykit
        >>> from theorykit import bpkr
        >>> theorykit.enable_float64()
        >>> inputs = np.random.default_rng(0).normal(size=(40, 3, 4))  # (examples, tokens, features)
        >>> labels = np.where(inputs[:, -1, 0] > 0, "up", "down")
        >>> model = bpkr.Model(layers=(2,), widths=20, temperature=0.1).fit(inputs[:30], labels[:30])
        >>> model.predict(inputs[30:33])
        array(['down', 'down', 'down'], dtype='<U4')
    """

    def __init__(
        self,
        layers=None,
        widths=100,
        temperature=0.1,
        heads="random",
        readout="last",
        mask=None,
        prior_variances=1.0,
        classes=None,
        random_state=0,
        richness=None,
    ):
        self.layers = layers
        self.widths = widths
        self.temperature = temperature
        self.heads = heads
        self.readout = readout
        self.mask = mask
        self.prior_variances = prior_variances
        self.classes = classes
        self.random_state = random_state
        self.richness = richness

    def __getstate__(self) -> dict[str, Any]:
        # A process without float64, such as a worker of scikit-learn, can unpickle the model, but not what `fit` set.
        state = dict(vars(self))
        if "_packed" not in state:
            fitted = {name: state.pop(name) for name in vars(self) if name.endswith("_")}
            state |= {"_packed": Packed((fitted,))} if fitted else {}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        # An older version may have pickled the model without arguments and attributes that were added later.
        defaults = {name: each.default for name, each in inspect.signature(type(self)).parameters.items()}
        vars(self).update({**defaults, "_has_lengths": False, **state})

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_") and not name.startswith("_") and "_packed" in vars(self):
            require_float64()
            (fitted,) = vars(self).pop("_packed").unpack()
            vars(self).update({**fitted, **vars(self)})
        # Raise the error of properties again, or of a missing attribute.
        return object.__getattribute__(self, name)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments by name. `deep` has no effect, because no argument is an estimator."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> "Model":
        """Set arguments of the constructor, and return the model. Call `fit` again afterwards."""
        if unknown := sorted(set(params) - set(self.get_params())):
            raise ValueError(f"{unknown[0]} is not a parameter of Model; use {', '.join(self.get_params())}")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        # Only scikit-learn calls this, so it is installed.
        from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags

        is_classifier = self.classes or hasattr(self, "classes_")
        is_regressor = not is_classifier and (self.classes is not None or hasattr(self, "problem_"))
        return Tags(
            estimator_type="classifier" if is_classifier else "regressor" if is_regressor else None,
            target_tags=TargetTags(required=True, multi_output=not is_classifier),
            classifier_tags=ClassifierTags() if is_classifier else None,
            regressor_tags=RegressorTags() if is_regressor else None,
            input_tags=InputTags(two_d_array=False, three_d_array=True),
        )

    @usual_settings()
    def fit(self, inputs: ArrayLike, labels: Any, lengths: ArrayLike | None = None) -> "Model":
        """Solve the saddle point for sequences with labels, and return the model.

        Args:
            inputs: (examples, tokens, features). Pad shorter sequences with anything, such as zeros or NaN, and give
                `lengths`.
            labels: classes (examples,), as text, or as numbers with `classes=True`; or numbers (examples,) or
                (examples, outputs).
            lengths: the number of real tokens of each example (examples,), or booleans (examples, tokens) that mark
                real tokens. The other tokens are padding. By default all tokens are real.

        Warns:
            ConvergenceWarning: the solve did not converge; `saddle_.diagnosis` has the cause.
            LabelsWarning: labels are numbers with a mean of more than three standard deviations, or look like classes.
        """
        refuse_traced("Model.fit", inputs, labels, lengths, self.get_params())
        architecture, data, found = self._prepare(inputs, labels, lengths)
        problem, saddle = Problem(architecture, data), None
        if data.classes is None and data.labels is not None:
            _warn_of_offset(np.asarray(problem.data.labels))
        if self._is_infinite:
            order_parameters = gp_limit(architecture)
            _, log_evidence = evaluate_infinite_width(problem)
        else:
            saddle = solve(problem)
            order_parameters, log_evidence = saddle.order_parameters, float(saddle.log_evidence)
        # Set nothing before this point: an error leaves the model as it was.
        self.heads_, self.architecture_, self.problem_ = found, architecture, problem
        self.saddle_, self.order_parameters_, self.log_evidence_ = saddle, order_parameters, log_evidence
        self.n_features_in_ = np.shape(inputs)[2]
        self._has_lengths = lengths is not None
        for name in ("classes_", "_packed"):
            vars(self).pop(name, None)
        if data.classes is not None:
            self.classes_ = np.array(data.classes.names)
        return self

    def predict(self, inputs: ArrayLike, lengths: ArrayLike | None = None) -> NDArray[Any]:
        """Predict the classes (examples,), or the mean outputs, of sequences (examples, tokens, features)."""
        refuse_traced(
            "Model.predict", inputs, lengths, reason="returns a NumPy array, unlike predict_distribution and kernel"
        )
        mean, classes = self.predict_distribution(inputs, lengths).mean, self.problem_.data.classes
        return np.asarray(mean) if classes is None else classes.decode(mean)

    def predict_distribution(self, inputs: ArrayLike, lengths: ArrayLike | None = None) -> Prediction:
        """Predict the posterior mean and variance of the outputs as `bpkr.predict` does, without the labels' noise."""
        problem = self._fitted()
        _warn_of_padding(self._has_lengths, lengths)
        features = self._features(self.architecture_, self.heads_, inputs, lengths)
        return predict(problem, self.order_parameters_, features)

    @property
    def predict_proba(self) -> Callable[..., Float[np.ndarray, "examples classes"]]:
        """A method that returns the probability of each class, in the order of `classes_`.

        Call it like `predict`. The temperature is the variance of noise on the outputs. `predict_proba` is a property,
        because scikit-learn tests whether it exists, and models of numbers do not have it.
        """
        if self.classes is False or (hasattr(self, "problem_") and not hasattr(self, "classes_")):
            raise AttributeError(
                "predict_proba needs classes, but labels of this model are numbers: if they are classes, make the "
                "model with classes=True; some functions of scikit-learn replace text labels by numbers"
            )
        return self._probabilities

    def _probabilities(
        self, inputs: ArrayLike, lengths: ArrayLike | None = None
    ) -> Float[np.ndarray, "examples classes"]:
        require_finite_widths(self._fitted().architecture, "predict_proba")
        refuse_traced("Model.predict_proba", inputs, lengths, reason="returns a NumPy array")
        found = self.predict_distribution(inputs, lengths)
        variance = found.variance + self.architecture_.label_noise
        return np.asarray(self.problem_.data.classes.probabilities(found.mean, variance))

    # A scikit-learn scorer selects the column of the positive class if a method has this name.
    _probabilities.__name__ = "predict_proba"

    def score(self, inputs: ArrayLike, labels: Any, lengths: ArrayLike | None = None) -> float:
        """Return the accuracy of predicted classes, or for numbers R^2 averaged over outputs."""
        refuse_traced("Model.score", inputs, labels, lengths, reason="returns a number of Python")
        predicted, classes = self.predict(inputs, lengths), self.problem_.data.classes
        labels = checked_array("labels", labels) if classes is None else self.classes_[classes.indices_of(labels)]
        if labels.shape != predicted.shape:
            raise ValueError(f"labels must have the shape {predicted.shape} of the predictions, got {labels.shape}")
        if classes is not None:
            return float(np.mean(predicted == labels))
        missed, spread = (np.sum((labels - other) ** 2, axis=0) for other in (predicted, labels.mean(axis=0)))
        return float(np.mean(1 - missed / spread))

    def head_scores(self) -> tuple[Float[Array, " _"], ...]:
        """Score the importance of every head as `bpkr.head_scores` does: one array per layer."""
        return head_scores(self._fitted().architecture, self.order_parameters_)

    def path_weights(self) -> Float[Array, "paths paths"]:
        """Return U_1, the overlaps of path weights, in the order of `architecture_.path_labels()`."""
        self._fitted()
        return self.order_parameters_.first

    def kernel(self, inputs: ArrayLike | None = None, lengths: ArrayLike | None = None) -> Float[Array, "rows columns"]:
        """Return the kernel between training examples and `inputs`, or by default between all training examples."""
        problem = self._fitted()
        if inputs is None and lengths is not None:
            raise ValueError("lengths needs inputs; give both, or neither for the training examples")
        if inputs is not None:
            _warn_of_padding(self._has_lengths, lengths)
        features = None if inputs is None else self._features(self.architecture_, self.heads_, inputs, lengths)
        return kernel(problem, self.order_parameters_, features)

    def derivation(self) -> Action:
        """Return the derived action, with the steps of its derivation."""
        return self._fitted().bound.action

    def plot(self) -> Any:
        """Draw head scores and U_1, and return the Matplotlib figure."""
        from ..plots.solution import figure
        from ..plots.style import use_style
        from .sweeps.datasets import label_infinite_width, label_saddle

        problem = self._fitted()
        with use_style():
            if self.saddle_ is None:
                return figure(label_infinite_width(problem))
            return figure(label_saddle(problem.architecture, self.saddle_))

    def sweep(
        self,
        inputs: ArrayLike,
        labels: Any,
        *,
        widths: Sequence[Any],
        temperatures: Sequence[Any] | None = None,
        test: tuple[Any, ...] | None = None,
        lengths: ArrayLike | None = None,
        seeds: int = 5,
        **options: Any,
    ) -> DisplayMixin:
        """Solve at every width and temperature, for several draws of random heads.

        Args:
            inputs, labels, lengths: the training data, as in `fit`.
            widths: as in `sweeps.sweep`.
            temperatures: the temperatures; by default the temperature of the model.
            test: test data (inputs, labels) or (inputs, labels, lengths), to predict and score.
            seeds: the number of draws of random heads, with seeds `random_state`, `random_state + 1` and so on. If the
                heads are given, there is one sweep with these heads.
            options: passed to `sweeps.sweep`, such as `folder`, `executor` and `progress`.

        Returns:
            `Runs`, with `dataset`, `summary()`, `plot()` and `best(score)`.
        """
        from .sweeps.runs import run_model

        temperatures = [self.temperature] if temperatures is None else temperatures
        seeds = checked_whole_number("seeds", seeds, least=1)
        draws = range(self.random_state, self.random_state + seeds) if self._is_random else None
        prepare = partial(self._prepare, inputs, labels, lengths, test)
        return run_model(prepare, draws, widths=widths, temperatures=temperatures, **options)

    def _view(self) -> Iterable[Block]:
        defaults = {name: each.default for name, each in inspect.signature(Model).parameters.items()}
        shown = []
        for name, value in self.get_params().items():
            # After pickling, values are equal to the defaults but not the same objects.
            if value is not defaults[name] and not (isinstance(value, str | float) and value == defaults[name]):
                text = repr(value) if isinstance(value, str | float | int | tuple) else "..."
                shown += [f"{name}={text}"] if len(text) < 60 else []
        named = f"Model({', '.join(shown)})"
        if not hasattr(self, "problem_"):
            yield Text(f"{named}, not fitted")
            return
        yield Text(named)
        data = self.problem_.data
        kind = f"classes {', '.join(map(str, self.classes_))}" if hasattr(self, "classes_") else "numbers"
        rows = [
            ("training data", f"{counted(len(data.labels), 'example')}, {kind}"),
            (f"log evidence{' per width' if self.architecture_.is_infinite else ''}", f"{self.log_evidence_:.6g}"),
        ]
        for layer, scores in enumerate(self.head_scores(), 1):
            if len(scores):
                rows.append((f"head scores of layer {layer}", "  ".join(f"{score:.3f}" for score in scores)))
        rows.append(("solution", self.saddle_.diagnosis if self.saddle_ else "Gaussian process at infinite width"))
        yield Table(tuple(rows))

    @property
    def _is_infinite(self) -> bool:
        return self.richness is None and np.ndim(self.widths) == 0 and self.widths == math.inf

    @property
    def _is_random(self) -> bool:
        return isinstance(self.heads, str) and self.heads == "random"

    def _fitted(self) -> Problem:
        if not hasattr(self, "problem_"):
            raise ValueError("this Model is not fitted yet: call fit(inputs, labels) first")
        return self.problem_

    def _prepare(
        self, inputs: Any, labels: Any, lengths: Any = None, test: Any = None, seed: int | None = None
    ) -> tuple[Architecture, Data, Any]:
        """Return the architecture, the data and the heads. Random heads are drawn with `seed`."""
        inputs = _sequences(inputs, lengths)
        examples, tokens, features = inputs.shape
        try:
            array = np.asarray(labels)
        except ValueError:
            raise TypeError("labels must have the same number of entries per example, but they are ragged") from None
        # scikit-learn also passes objects that are arrays only to NumPy.
        labels = labels if isinstance(labels, Iterable) else array
        if array.shape and len(array) != examples:
            raise ValueError(f"labels has {counted(len(array), 'example')}, but inputs has {examples}")
        found, layers = self.heads, self.layers
        if self._is_random:
            layers = _RANDOM_LAYERS if layers is None else layers
            counts = [count for count in Architecture(layers, 1.0, temperature=1.0).heads if count]
            seed = checked_whole_number("random_state", self.random_state if seed is None else seed, least=0)
            rng = np.random.default_rng(seed)
            found = heads(key_query=[rng.normal(size=(count, features, features)) / features for count in counts])
        elif isinstance(found, str):
            raise TypeError(f"heads must be 'random', or heads from bpkr.heads, got {found!r}")
        elif not isinstance(found, Heads) and not hasattr(found, "normalise"):
            found = heads(key_query=found)
        if layers is None:
            layers = found.counts if isinstance(found, Heads) else (len(found.query),)
        architecture = Architecture(
            layers,
            1.0 if self._is_infinite else self.widths,
            self.prior_variances,
            temperature=self.temperature,
            read_tokens=tokens if isinstance(self.readout, str) and self.readout == "all" else 1,
            richness=self.richness,
        )
        parts = [self._features(architecture, found, inputs, lengths), labels]
        if test is not None:
            test_inputs, test_labels, *rest = test
            _warn_of_padding(lengths is not None, *rest)
            parts += [self._features(architecture, found, test_inputs, *rest), test_labels]
        is_class = self.classes
        if is_class is None:
            # In an array of objects, such as a pandas column of text, single labels may be missing.
            entries = array.ravel().tolist() if array.dtype.kind == "O" else ()
            is_class = array.dtype.kind in "USTb" or any(isinstance(each, (str, bytes, bool)) for each in entries)
        data = Data.of_classes(*parts) if is_class else Data(*parts)
        columns = np.shape(data.labels)[1:]
        return replace(architecture, outputs=columns[0] if columns else 1), data, found

    def _features(self, architecture: Architecture, found: Any, inputs: Any, lengths: Any = None) -> Any:
        inputs = _sequences(inputs, lengths)
        real = None if lengths is None else checked_real_tokens("lengths", lengths, *inputs.shape[:2])
        if isinstance(found, Heads):
            attention = found(inputs, self.mask, real_tokens=real)
        else:
            attention = [found.attention(inputs, mask=self.mask, real_tokens=real)]
            inputs = found.normalise(inputs)
        return path_features(inputs, attention, architecture, self.readout, real_tokens=real)


def _sequences(inputs: Any, lengths: Any = None) -> Array:
    if getattr(inputs, "ndim", 3) == 2:
        raise ValueError(
            f"inputs must have shape (examples, tokens, features), got {inputs.shape}: pass inputs[None] for a single "
            "sequence, or inputs[:, None] for sequences of one token"
        )
    if isinstance(inputs, (list, tuple)) or getattr(getattr(inputs, "dtype", None), "kind", "") == "O":
        counts = [len(each) for each in inputs if isinstance(each, (list, tuple)) or getattr(each, "ndim", 0)]
        if len(set(counts)) > 1:
            least, most = min(counts), max(counts)
            raise TypeError(
                f"inputs has sequences of {least} to {most} tokens: pad them to {most} tokens with any numbers, and "
                f"pass their numbers of real tokens, lengths={shown(counts)}"
            )
    if lengths is not None:
        # Attention to padding has weight zero, but zero times NaN is NaN.
        inputs = numeric_array("inputs", inputs, "examples tokens features")
        real = checked_real_tokens("lengths", lengths, *inputs.shape[:2])
        xp = array_module(inputs, real)
        inputs = xp.where(real[..., None] | xp.isfinite(inputs), inputs, 0.0)
    return finite_array("inputs", inputs, "examples tokens features")


def _warn_of_offset(labels: np.ndarray) -> None:
    means, deviations = np.atleast_1d(labels.mean(axis=0)), np.atleast_1d(labels.std(axis=0))
    far = np.abs(means) > _OFFSET * deviations
    if not far.any():
        return
    output = np.argmax(far)
    of_output = f" of output {output}" if len(means) > 1 else ""
    warnings.warn(
        f"labels{of_output} have mean {means[output]:.3g} and standard deviation {deviations[output]:.3g}: the network "
        "has no intercept, so subtract the mean",
        LabelsWarning,
        stacklevel=4,
    )


def _warn_of_padding(was_padded: bool, lengths: Any = None) -> None:
    # Attention to padding changes predictions without an error.
    if was_padded and lengths is None:
        warnings.warn(
            "lengths were given for the training data and not here, so all tokens of these inputs are taken as real; "
            "pass their lengths",
            AttentionWarning,
            stacklevel=3,
        )
