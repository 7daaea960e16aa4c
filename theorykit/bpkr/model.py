"""A scikit-learn estimator that fits the theory to labelled sequences, on top of `Problem` and `solve`."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float
from numpy.typing import NDArray

from ..checks import checked_array, checked_whole_number, finite_array, is_traced, numeric_array, refuse_traced
from ..settings import usual_settings
from ..symbolic.documents.display import DisplayMixin
from ..symbolic.documents.document import Block, Table, Text
from .data.classes import LabelsWarning, r_squared
from .data.data import Data, data_line
from .evaluation.problem import Problem
from .evaluation.values import Prediction, evaluate_infinite_width, head_scores, kernel, predict
from .network.attention import Heads, path_features
from .order_parameters import gp_limit
from .saddle.head_costs import HeadCosts, head_costs
from .saddle.solve import solve
from .specification.architecture import Architecture, require_finite_widths

# Largest mean of labels, in standard deviations, that a network without an intercept should fit.
_OFFSET = 3.0


class Model(DisplayMixin):
    """Predict labels of sequences by a deep network with given attention, averaged over all other weights.

    A scikit-learn estimator on top of `path_features`, `Problem`, `solve` and `predict`.

    Inputs are (examples, tokens, features), with tokens of NaN as padding, or a list of arrays (tokens, features).
    Instead of heads, attention can be given to `fit`, and to every method with other inputs: one array (examples,
    heads, keys, queries) per layer that has heads, such as maps recorded from a trained transformer.

    Args:
        layers: numbers of heads, or layers, as in `Architecture`; by default one layer per array of the heads or of the
            attention, or two layers of two random heads.
        widths: numbers of hidden units, as in `Architecture`. Without a richness, `math.inf` is the Gaussian process of
            infinitely wide layers (NNGP).
        temperature: variance of the labels' noise.
        heads: "random"; or `bpkr.Heads`; or key-query products (heads, features, features) of each layer, as in
            `bpkr.Heads`. Random products are normal with standard deviation 1/features.
        readout: "first", "last", "mean", or "all" for separate readout weights per token.
        mask: which keys a query may attend to, such as "causal"; see `bpkr.attention`.
        prior_variances: as in `Architecture`.
        classes: whether labels are classes. By default text and booleans are classes, and numbers are not.
        random_state: the seed of random heads.
        richness: the richness of the mean-field parameterisation, as in `Architecture`.
        layout: the order of the last two axes of masks and attention; see `bpkr.path_features`.

    `fit` sets these attributes:

    - `problem_`, `architecture_`; `heads_`, which is None if attention was given.
    - `saddle_`: the result of `solve`, and its `order_parameters_`. The Gaussian process has no `saddle_`.
    - `log_evidence_`: log probability density of the labels; per width at infinite width with a richness.
    - `classes_`, if labels are classes; `n_features_in_`, the number of features of a token.

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
        layout=None,
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
        self.layout = layout

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments by name. No argument is an estimator, so `deep` has no effect."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Model:
        """Set arguments of the constructor, and return the model. Call `fit` again afterwards."""
        if unknown := sorted(set(params) - set(self.get_params())):
            raise ValueError(f"{unknown[0]} is not a parameter of Model; use {', '.join(self.get_params())}")
        vars(self).update(params)
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
    def fit(self, inputs: Any, labels: Any, attention: Sequence[ArrayLike] | None = None) -> Model:
        """Solve the saddle point for sequences with labels, and return the model.

        Args:
            inputs: (examples, tokens, features), or a list of arrays (tokens, features).
            labels: classes (examples,), or numbers (examples,) or (examples, outputs).
            attention: one array (examples, heads, keys, queries) per layer that has heads, instead of heads.

        Warns:
            ConvergenceWarning: the solve did not converge; `saddle_.diagnosis` has the cause.
            LabelsWarning: numbers have a mean of more than three standard deviations, or look like classes.
        """
        refuse_traced("Model.fit", inputs, labels, attention, self.get_params())
        architecture, data, found = self._prepare(inputs, labels, attention)
        problem, saddle = Problem(architecture, data), None
        if data.classes is None and data.labels is not None:
            numbers = np.asarray(problem.data.labels)
            if np.any(np.abs(numbers.mean(axis=0)) > _OFFSET * numbers.std(axis=0)):
                said = "labels have a mean of more than three standard deviations, but the network has no intercept: "
                warnings.warn(f"{said}subtract the mean", LabelsWarning, stacklevel=3)
        if self._is_gaussian_process:
            point = gp_limit(architecture)
            _, log_evidence = evaluate_infinite_width(problem)
        else:
            saddle = solve(problem)
            point, log_evidence = saddle.order_parameters, float(saddle.log_evidence)
        # Set nothing before this point: an error leaves the model as it was.
        self.heads_, self.architecture_, self.problem_ = found, architecture, problem
        self.saddle_, self.order_parameters_, self.log_evidence_ = saddle, point, log_evidence
        self.n_features_in_ = _sequences(inputs)[0].shape[2]
        vars(self).pop("classes_", None)
        if data.classes is not None:
            self.classes_ = np.array(data.classes.names)
        return self

    def predict(self, inputs: Any, attention: Sequence[ArrayLike] | None = None) -> NDArray[Any]:
        """Predict the classes (examples,), or the mean outputs, of sequences (examples, tokens, features)."""
        mean, classes = self.predict_distribution(inputs, attention).mean, self.problem_.data.classes
        return np.asarray(mean) if classes is None else classes.decode(mean)

    def predict_distribution(self, inputs: Any, attention: Sequence[ArrayLike] | None = None) -> Prediction:
        """Predict the posterior mean and variance of the outputs as `bpkr.predict` does, without the labels' noise."""
        problem = self._fitted()
        features = self._features(self.architecture_, self.heads_, inputs, attention)
        return predict(problem, self.order_parameters_, features)

    @property
    def predict_proba(self) -> Callable[..., Float[np.ndarray, "examples classes"]]:
        """A method like `predict` that returns the probability of each class, with label noise.

        It is a property, because scikit-learn tests whether it exists, and models of numbers do not have it.
        """
        if self.classes is False or (hasattr(self, "problem_") and not hasattr(self, "classes_")):
            raise AttributeError("predict_proba needs classes: if labels are, make the model with classes=True")
        return self._probabilities

    def _probabilities(
        self, inputs: Any, attention: Sequence[ArrayLike] | None = None
    ) -> Float[np.ndarray, "examples classes"]:
        require_finite_widths(self._fitted().architecture, "predict_proba")
        found = self.predict_distribution(inputs, attention)
        variance = found.variance + self.architecture_.label_noise
        return np.asarray(self.problem_.data.classes.probabilities(found.mean, variance))

    # A scikit-learn scorer selects the column of the positive class if a method has this name.
    _probabilities.__name__ = "predict_proba"

    def score(self, inputs: Any, labels: Any, attention: Sequence[ArrayLike] | None = None) -> float:
        """Return the accuracy of predicted classes, or for numbers R^2 averaged over outputs.

        R^2 is NaN, with a `LabelsWarning`, if all labels of an output are equal, as for a single example.
        """
        predicted, classes = self.predict(inputs, attention), self.problem_.data.classes
        labels = checked_array("labels", labels) if classes is None else self.classes_[classes.indices_of(labels)]
        if labels.shape != predicted.shape:
            raise ValueError(f"labels must have the shape {predicted.shape} of the predictions, got {labels.shape}")
        if classes is not None:
            return float(np.mean(predicted == labels))
        explained = r_squared(predicted, np.asarray(labels))
        if math.isnan(explained):
            warnings.warn("all labels of an output are equal, so R^2 is not defined", LabelsWarning, stacklevel=2)
        return explained

    def head_scores(self) -> tuple[Float[Array, " _"], ...]:
        """Score the importance of every head as `bpkr.head_scores` does: one array per layer."""
        return head_scores(self._fitted().architecture, self.order_parameters_)

    def head_costs(
        self,
        inputs: Any = None,
        labels: Any = None,
        attention: Sequence[ArrayLike] | None = None,
        *,
        progress: bool = True,
    ) -> HeadCosts:
        """Measure the cost of leaving out each head, as `bpkr.head_costs` does.

        Test examples `inputs`, `labels` and `attention` give costs of predictions, with errors over examples.
        """
        problem = self._fitted()
        if inputs is not None:
            classes = problem.data.classes
            features = self._features(self.architecture_, self.heads_, inputs, attention)
            tested = labels if classes is None else classes.encode(labels)
            problem = Problem(problem.architecture, replace(problem.data, test_features=features, test_labels=tested))
        return head_costs(problem, self.saddle_, progress=progress)

    def kernel(self, inputs: Any = None, attention: Sequence[ArrayLike] | None = None) -> Float[Array, "rows columns"]:
        """Return the kernel between training examples and `inputs`, by default the training examples."""
        problem = self._fitted()
        features = None if inputs is None else self._features(self.architecture_, self.heads_, inputs, attention)
        return kernel(problem, self.order_parameters_, features)

    def plot(self) -> Any:
        """Draw head scores and U_1, and return the Matplotlib figure."""
        from ..plots.solution import figure
        from ..plots.style import use_style
        from .sweeps.datasets import label_solution

        problem = self._fitted()
        with use_style():
            return figure(label_solution(problem, self.saddle_))

    def sweep(
        self,
        inputs: Any,
        labels: Any,
        attention: Sequence[ArrayLike] | None = None,
        *,
        width: Sequence[Any],
        temperature: Sequence[Any] | None = None,
        test: tuple[Any, ...] | None = None,
        seeds: int = 5,
        **options: Any,
    ) -> Any:
        """Solve at every width and temperature, for several draws of random heads, as `sweeps.sweep` does.

        With seeds and test data, the result has `test_accuracy_error_of_test_examples` and
        `test_error_error_of_test_examples`: standard errors of means over seeds due to the shared test examples.

        Args:
            inputs, labels, attention: the training data, as in `fit`.
            width, temperature: the axes; by default the temperature of the model.
            test: test data (inputs, labels) or (inputs, labels, attention), to predict and score.
            seeds: number of draws of random heads, from seed `random_state`; not used if heads or attention are given.
            options: passed to `sweeps.sweep`, such as `richness`, `folder` and `executor`.
        """
        from .sweeps.datasets import add_errors_of_examples
        from .sweeps.run import sweep

        grid = {"width": width, "temperature": [self.temperature] if temperature is None else temperature}
        seeds = checked_whole_number("seeds", seeds, least=1)
        if not self._is_random or attention is not None:
            architecture, data, _ = self._prepare(inputs, labels, attention, test)
            return sweep(architecture, data, **grid, **options)
        draws = range(self.random_state, self.random_state + seeds)
        prepared = {seed: self._prepare(inputs, labels, None, test, seed) for seed in draws}
        architecture, _, _ = prepared[self.random_state]
        found = sweep(architecture, lambda seed: prepared[seed][1], seeds=list(draws), **grid, **options)
        return add_errors_of_examples(found)

    def _view(self) -> Iterable[Block]:
        known, defaults = (str, int, float, tuple), Model().get_params()
        given = {name: value for name, value in self.get_params().items() if isinstance(value, known)}
        changed = [f"{name}={value!r}" for name, value in given.items() if value != defaults[name]]
        is_fitted = hasattr(self, "problem_")
        yield Text(f"Model({', '.join(changed)}){'' if is_fitted else ', not fitted'}")
        if is_fitted:
            kind = f", classes {', '.join(map(str, self.classes_))}" if hasattr(self, "classes_") else ""
            rows = [
                ("data", f"{data_line(self.problem_.data)}{kind}"),
                ("log evidence", f"{self.log_evidence_:.6g}"),
                *(("head scores", "  ".join(f"{each:.3f}" for each in scores)) for scores in self.head_scores()),
                ("solution", self.saddle_.diagnosis if self.saddle_ else "Gaussian process at infinite width"),
            ]
            yield Table(tuple(rows))

    @property
    def _is_gaussian_process(self) -> bool:
        return self.richness is None and np.ndim(self.widths) == 0 and self.widths == math.inf

    @property
    def _is_random(self) -> bool:
        return isinstance(self.heads, str) and self.heads == "random"

    def _fitted(self) -> Problem:
        if not hasattr(self, "problem_"):
            raise ValueError("this Model is not fitted yet: call fit(inputs, labels) first")
        return self.problem_

    def _prepare(
        self, inputs: Any, labels: Any, attention: Any = None, test: Any = None, seed: int | None = None
    ) -> tuple[Architecture, Data, Heads | None]:
        """Return the architecture, the data and the heads. Random heads are drawn with `seed`."""
        # scikit-learn also passes objects that are arrays only to NumPy.
        labels = labels if isinstance(labels, Iterable) else np.asarray(labels)
        sequences, _ = _sequences(inputs)
        found, layers = self._heads_and_layers(sequences.shape[2], attention, seed)
        architecture = Architecture(
            layers,
            1.0 if self._is_gaussian_process else self.widths,
            self.prior_variances,
            temperature=self.temperature,
            read_tokens=sequences.shape[1] if isinstance(self.readout, str) and self.readout == "all" else 1,
            richness=self.richness,
        )
        parts = [self._features(architecture, found, inputs, attention), labels]
        if test is not None:
            test_inputs, test_labels, *rest = test
            parts += [self._features(architecture, found, test_inputs, *rest), test_labels]
        data = (Data.of_classes if self._has_classes(labels) else Data)(*parts)
        return replace(architecture, outputs=np.prod(np.shape(data.labels)[1:], dtype=int).item()), data, found

    def _heads_and_layers(self, features: int, attention: Any, seed: int | None) -> tuple[Heads | None, Any]:
        layers, found = self.layers, self.heads
        if attention is not None:
            counts = [np.shape(each)[-3] if np.ndim(each) > 2 else 0 for each in attention]
            return None, counts if layers is None else layers
        if self._is_random:
            layers = (2, 2) if layers is None else layers
            counts = [count for count in Architecture(layers, 1.0, temperature=1.0).heads if count]
            seed = checked_whole_number("random_state", self.random_state if seed is None else seed, least=0)
            rng = np.random.default_rng(seed)
            found = [rng.normal(size=(count, features, features)) / features for count in counts]
        found = found if isinstance(found, Heads) else Heads(key_query=found)
        return found, found.counts if layers is None else layers

    def _has_classes(self, labels: Any) -> bool:
        if self.classes is not None:
            return self.classes
        array = np.asarray(labels)
        # In an array of objects, such as a pandas column of text, single labels may be missing.
        entries = array.ravel().tolist() if array.dtype.kind == "O" else ()
        return array.dtype.kind in "USTb" or any(isinstance(each, (str, bytes, bool)) for each in entries)

    def _features(self, architecture: Architecture, found: Heads | None, inputs: Any, attention: Any = None) -> Any:
        sequences, real = _sequences(inputs)
        if (found is None) == (attention is None):
            raise ValueError("attention must be given for all inputs if it was given to fit, and otherwise for none")
        layout = self.layout
        if found is not None:
            attention, layout = found(sequences, self.mask, real_tokens=real, layout=layout), None
        return path_features(sequences, attention, architecture, self.readout, real_tokens=real, layout=layout)


def _sequences(inputs: Any) -> tuple[Array, Bool[np.ndarray, "examples tokens"] | None]:
    """Return inputs with zeros as padding, and which tokens are real, or None without padding."""
    axes = "examples tokens features"
    if is_traced(inputs):
        return finite_array("inputs", inputs, axes), None
    if isinstance(inputs, (list, tuple)) or getattr(getattr(inputs, "dtype", None), "kind", "") == "O":
        sequences = [numeric_array(f"inputs[{i}]", each, "tokens features") for i, each in enumerate(inputs)]
        features = {each.shape[1] for each in sequences}
        if len(features) != 1:
            raise ValueError(f"inputs must have sequences with one number of features, got {sorted(features)}")
        inputs = np.full((len(sequences), max(map(len, sequences)), *features), np.nan)
        for row, each in zip(inputs, sequences, strict=True):
            row[: len(each)] = each
    array = np.asarray(numeric_array("inputs", inputs, axes))
    is_padding = np.isnan(array).all(axis=2)
    array = finite_array("inputs", np.where(is_padding[..., None], 0.0, array), axes)
    return array, ~is_padding if is_padding.any() else None
