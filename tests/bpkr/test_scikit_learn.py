"""scikit-learn's own checks of estimators, on `Model` with rows of a table as sequences of one token."""

import warnings

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import check_array

from theorykit import bpkr

# checks that fail, and why; docs/quickstart.md has them in words
OUR_MESSAGE = "it is refused, in words of ours"
EXPECTED = {
    "check_fit_score_takes_y": "the arguments are inputs and labels, by name",
    "check_estimators_unfitted": "the error is a ValueError: NotFittedError would need scikit-learn",
    "check_n_features_in_after_fitting": OUR_MESSAGE,
    "check_requires_y_none": OUR_MESSAGE,
}
OF_CLASSES = {
    "check_classifiers_regression_target": "with classes=True every number is a class, if the user says so",
    "check_supervised_y_2d": "labels of a column are refused, not made flat with a warning",
    "check_fit2d_1sample": OUR_MESSAGE,
}
OF_NUMBERS = {
    "check_supervised_y_2d": "labels of a column are refused, not made flat with a warning",
    "check_dtype_object": OUR_MESSAGE,
}


class OfRows(bpkr.Model):
    """The checks give tables, (examples, features)."""

    def fit(self, X, y):
        return super().fit(check_array(X, dtype=float)[:, None], y)

    def predict(self, X, attention=None):
        # objects that are no arrays but can be made some, which the type checks of the tests refuse
        return super().predict(np.asarray(X))

    def predict_distribution(self, inputs, attention=None):
        return super().predict_distribution(check_array(inputs, dtype=float)[:, None])

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = True, False
        return tags


def test_what_it_says_of_itself_is_what_scikit_learn_understands():
    for model in (bpkr.Model(), bpkr.Model(classes=True), bpkr.Model(classes=False)):
        with warnings.catch_warnings():
            # the other checks are of tables
            warnings.simplefilter("ignore")
            (found,) = check_estimator(model, on_skip=None)
        assert found["status"] == "passed"


@pytest.mark.slow
@pytest.mark.parametrize(("classes", "expected"), [(True, OF_CLASSES), (False, OF_NUMBERS)])
def test_the_checks_of_estimators_pass_but_those_that_do_not_apply(classes, expected):
    expected = {**EXPECTED, **expected}
    model = OfRows(layers=(2,), classes=classes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(model, expected_failed_checks=expected, on_skip=None, on_fail=None)
    assert len(found) > 40
    assert [(one["check_name"], one["exception"]) for one in found if one["status"] == "failed"] == []
    assert {one["check_name"] for one in found if one["status"] == "xfail"} == set(expected)
