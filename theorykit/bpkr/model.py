"""A scikit-learn estimator that fits the theory to labelled sequences."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from .. import checks
from .._jit import usual_settings
from ..symbolic.documents import DisplayMixin, Table, Text, verbatim
from .data.classes import are_classes, r_squared, vector_of_table
from .data.data import Data, data_line
from .evaluation.problem import Problem
from .evaluation.values import Prediction, evaluate_infinite_width, head_scores, predict
from .features.implicit import PathFeatures
from .network.network import Heads, numeric_maps, path_features
from .order_parameters import gp_limit
from .saddle.head_costs import head_costs
from .saddle.solve import solve
from .specification.architecture import Architecture, require_finite_widths

Maps = Sequence[Any] | None


@dataclass(eq=False, repr=False)
class Model(DisplayMixin):
    """Predict labels of sequences by a deep network with given attention.

    Inputs are (examples, tokens, features), with tokens of NaN as padding, or a list of
    arrays (tokens, features). Instead of heads, pass attention to all methods:
    (examples, heads, keys, queries) per layer with heads.

    Args:
        layers: as in `Architecture`; by default those of heads or attention, or two
            layers of two random heads.
        widths, temperature, prior_variances, richness: as in `Architecture`. Without a
            richness, `math.inf` is the Gaussian process (NNGP).
        heads: "random", `bpkr.Heads`, or its key-query products. Random products have
            standard deviation 1/features.
        readout: "first", "last", "mean", or "all" with separate weights per token.
        mask: see `bpkr.attention`.
        classes: whether labels are classes, by default for text and booleans.
        random_state: the seed of random heads.
        layout: of masks and attention; see `bpkr.path_features`.

    `fit` sets these attributes:

    - `problem_`; `heads_`, which is None if attention was given.
    - `saddle_`: the result of `solve`, None for the Gaussian process.
    - `order_parameters_`, `log_evidence_`.
    - `classes_`, if labels are classes; `n_features_in_`, the features of a token.

    Example:
        >>> import numpy as np
        >>> import theorykit
        >>> from theorykit import bpkr
        >>> theorykit.enable_float64()
        >>> inputs = np.random.default_rng(0).normal(size=(40, 3, 4))
        >>> labels = np.where(inputs[:, -1, 0] > 0, "up", "down")
        >>> model = bpkr.Model(layers=(2,), widths=20, temperature=0.1).fit(inputs[:30], labels[:30])
        >>> model.predict(inputs[30:33])
        array(['down', 'down', 'down'], dtype='<U4')
    """

    layers: Any = None
    widths: Any = 100
    temperature: Any = 0.1
    heads: Any = "random"
    readout: Any = "last"
    mask: Any = None
    prior_variances: Any = 1.0
    classes: bool | None = None
    random_state: int = 0
    richness: Any = None
    layout: Any = None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def set_params(self, **params: Any) -> "Model":
        """Set arguments of the constructor, and return the model."""
        if unknown := sorted(set(params) - set(self.get_params())):
            known = ", ".join(self.get_params())
            raise ValueError(f"{unknown[0]} is not a parameter of Model; use {known}")
        vars(self).update(params)
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags

        is_classifier = self.classes or hasattr(self, "classes_")
        is_known = self.classes is not None or hasattr(self, "problem_")
        kind = "regressor" if is_known and not is_classifier else None
        return Tags(
            estimator_type="classifier" if is_classifier else kind,
            target_tags=TargetTags(required=True, multi_output=not is_classifier),
            classifier_tags=ClassifierTags() if is_classifier else None,
            regressor_tags=RegressorTags() if kind else None,
            input_tags=InputTags(two_d_array=False, three_d_array=True),
        )

    @usual_settings()
    def fit(self, inputs: Any, labels: Any, attention: Maps = None) -> "Model":
        """Solve the saddle point, and return the model.

        Args:
            inputs, attention: see `Model`.
            labels: classes (examples,), or numbers (examples,) or (examples, outputs).

        Warns:
            ConvergenceWarning: the solve did not converge.
            LabelsWarning: numbers look like classes.
        """
        checks.refuse_traced("Model.fit", inputs, labels, attention, self.get_params())
        architecture, data, found = self._prepare(inputs, labels, attention)
        problem = Problem(architecture, data)
        saddle = None
        if self._is_gaussian_process:
            point = gp_limit(architecture)
            _, log_evidence = evaluate_infinite_width(problem)
        else:
            saddle = solve(problem)
            point = saddle.order_parameters
            log_evidence = float(saddle.log_evidence)
        # An error before this point leaves the model as it was.
        self.heads_ = found
        self.problem_ = problem
        self.saddle_ = saddle
        self.order_parameters_ = point
        self.log_evidence_ = log_evidence
        self.n_features_in_ = data.features.shape[2]
        vars(self).pop("classes_", None)
        if data.classes is not None:
            self.classes_ = np.array(data.classes.names)
        return self

    def predict(self, inputs: Any, attention: Maps = None) -> NDArray[Any]:
        """Predict the classes (examples,), or the mean outputs, of sequences."""
        found = self.predict_distribution(inputs, attention)
        mean, classes = found.mean, found.classes
        return np.asarray(mean) if classes is None else classes.decode(mean)

    def predict_distribution(self, inputs: Any, attention: Maps = None) -> Prediction:
        """Predict mean and covariance of the outputs, as `bpkr.predict` does."""
        problem = self._fitted()
        features = self._features(problem.architecture, self.heads_, inputs, attention)
        return predict(problem, self.order_parameters_, features)

    def predict_proba(self, inputs: Any, attention: Maps = None) -> Float[np.ndarray, "examples classes"]:
        """Predict class probabilities, with label noise."""
        problem = self._fitted()
        require_finite_widths(problem.architecture, "predict_proba")
        if problem.data.classes is None:
            raise ValueError("predict_proba needs classes: pass classes=True if labels are")
        found = self.predict_distribution(inputs, attention)
        return found.classes.probabilities(found.mean, found.with_noise(problem.architecture.label_noise))

    def score(self, inputs: Any, labels: Any, attention: Maps = None) -> float:
        """Return the accuracy of classes, or the mean R^2 of outputs.

        R^2 is NaN if all labels of an output are equal.
        """
        predicted = self.predict(inputs, attention)
        classes = self.problem_.data.classes
        if classes is None:
            labels = checks.checked_array("labels", vector_of_table(labels))
        else:
            labels = self.classes_[classes.indices_of(labels)]
        if labels.shape != predicted.shape:
            raise ValueError(f"labels must have shape {predicted.shape}, got {labels.shape}")
        if classes is not None:
            return float(np.mean(predicted == labels))
        return r_squared(predicted, np.asarray(labels))

    def head_costs(self, **options: Any) -> tuple[Float[np.ndarray, " _"], ...]:
        """Measure the log evidence lost without each head, as `bpkr.head_costs` does."""
        return head_costs(self._fitted(), self.saddle_, **options)

    def plot(self) -> Any:
        """Draw head scores and U_1, and return the Matplotlib figure."""
        from ..plots.solution import figure
        from ..plots.style import use_style
        from .sweeps.datasets import label_solution

        with use_style():
            return figure(label_solution(self._fitted(), self.saddle_))

    def sweep(
        self,
        inputs: Any,
        labels: Any,
        attention: Maps = None,
        *,
        width: Sequence[Any],
        temperature: Sequence[Any] | None = None,
        test: tuple[Any, ...] | None = None,
        seeds: int = 5,
        **options: Any,
    ) -> Any:
        """Solve at every width and temperature, for several draws of random heads.

        Args:
            inputs, labels, attention: the training data, as in `fit`.
            width, temperature: the axes; by default the temperature of the model.
            test: test data (inputs, labels) or (inputs, labels, attention).
            seeds: number of draws of random heads, from seed `random_state`.
            options: passed to `sweeps.sweep`, such as `richness` and `folder`.

        Returns:
            An xarray Dataset as of `sweeps.sweep`.
        """
        from .sweeps.datasets import sweep

        seeds = checks.checked_whole_number("seeds", seeds, least=1)
        temperature = [self.temperature] if temperature is None else temperature
        options |= {"width": width, "temperature": temperature}
        if not self._is_random or attention is not None:
            architecture, data, _ = self._prepare(inputs, labels, attention, test)
            return sweep(architecture, data, **options)
        draws = range(self.random_state, self.random_state + seeds)
        sets = {}
        for seed in draws:
            architecture, sets[seed], _ = replace(self, random_state=seed)._prepare(inputs, labels, None, test)
        return sweep(architecture, sets.get, seeds=draws, **options)

    def _view(self):
        if not hasattr(self, "problem_"):
            given = {n: v for n, v in self.get_params().items() if v is not getattr(Model, n)}
            shown = ", ".join(f"{n}={checks.shown(v)}" for n, v in given.items())
            yield Text(verbatim(f"Model({shown}), not fitted"))
            return
        rows = [("data", data_line(self.problem_.data)), ("log evidence", f"{self.log_evidence_:.6g}")]
        for scores in filter(len, head_scores(self.problem_.architecture, self.order_parameters_)):
            rows.append(("head scores", "  ".join(f"{each:.3f}" for each in scores)))
        said = self.saddle_.diagnosis if self.saddle_ else "Gaussian process"
        yield Table((*rows, ("solution", said)))

    @property
    def _is_gaussian_process(self) -> bool:
        return self.richness is None and np.ndim(self.widths) == 0 and self.widths == math.inf

    @property
    def _is_random(self) -> bool:
        return isinstance(self.heads, str) and self.heads == "random"

    def _fitted(self) -> Problem:
        if not hasattr(self, "problem_"):
            raise ValueError("this Model is not fitted: call fit first")
        return self.problem_

    def _prepare(self, inputs, labels, attention=None, test=None):
        # scikit-learn also passes objects that are arrays only to NumPy.
        labels = labels if isinstance(labels, Iterable) else np.asarray(labels)
        examples, tokens, width = _sequences(inputs, attention).shape
        found, layers = self._heads_and_layers(examples, width, attention)
        architecture = Architecture(
            layers,
            1.0 if self._is_gaussian_process else self.widths,
            self.prior_variances,
            temperature=self.temperature,
            read_tokens=tokens if str(self.readout) == "all" else 1,
            richness=self.richness,
        )
        parts = [self._features(architecture, found, inputs, attention), labels]
        if test is not None:
            if len(test) not in (2, 3):
                raise ValueError("test must be (inputs, labels) or (inputs, labels, attention)")
            test_inputs, test_labels, *rest = test
            parts += [self._features(architecture, found, test_inputs, *rest), test_labels]
        has_classes = are_classes(labels) if self.classes is None else self.classes
        checks.checked_instance("classes", has_classes, bool)
        data = (Data.of_classes if has_classes else Data)(*parts)
        outputs = math.prod(np.shape(data.labels)[1:])
        return replace(architecture, outputs=outputs), data, found

    def _heads_and_layers(self, examples, features, attention) -> tuple[Heads | None, Any]:
        layers, found = self.layers, self.heads
        if attention is not None:
            if self.mask is not None or not self._is_random:
                raise ValueError("attention replaces heads and mask")
            if layers is None:
                if getattr(attention, "ndim", 0) == 4 or len(attention) == 0:
                    raise ValueError("attention must be a list of one array per layer; without any, pass layers=()")
                shapes = [numeric_maps(f"attention[{i}]", each).shape for i, each in enumerate(attention)]
                if averages := [shape for shape in shapes if len(shape) == 3 and shape[0] == examples]:
                    # PyTorch averages over heads by default.
                    either = f"is averaged over heads (pass maps[:, None]) or of {examples} heads (pass layers)"
                    raise ValueError(f"attention of shape {averages[0]} {either}")
                layers = [shape[-3] if len(shape) > 2 else 0 for shape in shapes]
            return None, layers
        if self._is_random:
            layers = (2, 2) if layers is None else layers
            counts = filter(None, Architecture(layers, 1.0, temperature=1.0).heads)
            seed = checks.checked_whole_number("random_state", self.random_state, least=0)
            rng = np.random.default_rng(seed)
            found = [rng.normal(size=(count, features, features)) / features for count in counts]
        found = found if isinstance(found, Heads) else Heads(key_query=found)
        return found, found.counts if layers is None else layers

    def _features(self, architecture, found: Heads | None, inputs, attention=None) -> PathFeatures:
        if (found is None) == (attention is None):
            raise ValueError("attention must be given for all inputs, or for none")
        layout, sequences = self.layout, _sequences(inputs, attention, architecture.read_tokens)
        if found is not None:
            attention, layout = found(sequences, self.mask, layout=layout), None
        return path_features(sequences, attention, architecture, self.readout, layout=layout)


def _sequences(inputs: Any, attention: Maps, least: int = 1) -> Any:
    """Return inputs, lists as an array with the tokens of `attention`, at least `least`."""
    if not isinstance(inputs, (list, tuple)) and str(getattr(inputs, "dtype", "")) != "object":
        return checks.numeric_array("inputs", inputs, "examples tokens features")
    sequences = [checks.numeric_array(f"inputs[{i}]", x, "tokens features") for i, x in enumerate(inputs)]
    features = {each.shape[1] for each in sequences}
    if len(features) != 1:
        raise ValueError(f"inputs must be sequences with one number of features, got {sorted(features)}")
    tokens = max(least, *map(len, sequences))
    for i, each in enumerate(() if attention is None else attention):
        tokens = max(tokens, *numeric_maps(f"attention[{i}]", each).shape[-1:])
    array = np.full((len(sequences), tokens, *features), np.nan)
    for row, each in zip(array, sequences, strict=True):
        row[: len(each)] = each
    return array
