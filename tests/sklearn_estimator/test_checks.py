"""What scikit-learn asks of an estimator: its own checks, clones, pickles, and a place in a pipeline."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

import maskcon
from maskcon.sklearn import MaskConEmbedder
from tests.sklearn_estimator.embedders import GREY, LABELS, tiny

SOURCE = Path(__file__).parents[2] / "src"
# scikit-learn's checks give rows of 1 to 30 numbers: pictures one pixel high
ROWS_AS_PICTURES = (1, -1)


# No check is expected to fail: nothing is passed as expected_failed_checks.
@parametrize_with_checks([tiny(image_shape=ROWS_AS_PICTURES, epochs=1)])
def test_scikit_learns_checks_pass(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_get_feature_names_out_error,
        estimator_checks.check_transformer_get_feature_names_out,
        estimator_checks.check_transformer_get_feature_names_out_pandas,
        estimator_checks.check_set_output_transform,
        estimator_checks.check_set_output_transform_pandas,
        estimator_checks.check_dataframe_column_names_consistency,
        estimator_checks.check_readonly_memmap_input,
    ],
    ids=lambda check: check.__name__,
)
def test_checks_that_scikit_learn_runs_on_its_own_estimators_pass(check):
    check("MaskConEmbedder", tiny(image_shape=ROWS_AS_PICTURES, epochs=1))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["selfcon", "coins"])
def test_scikit_learns_checks_pass_for_methods_with_other_needs(method):
    embedder = tiny(image_shape=ROWS_AS_PICTURES, epochs=1, method=method)
    results = estimator_checks.check_estimator(embedder, on_skip=None)
    assert {result["status"] for result in results} <= {"passed", "skipped"}


def test_the_checks_are_run_and_not_left_out_by_a_tag():
    names = {
        check.func.__name__
        for _, check in estimator_checks_generator(tiny(image_shape=ROWS_AS_PICTURES), mark=None)
    }
    assert len(names) > 35
    assert {"check_transformer_general", "check_requires_y_none", "check_methods_subset_invariance"} <= names


def test_it_is_reached_lazily_and_importing_the_package_loads_no_scikit_learn():
    code = "import sys, maskcon; print('sklearn' in sys.modules, 'MaskConEmbedder' in dir(maskcon))"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "True"]
    assert maskcon.MaskConEmbedder is MaskConEmbedder


def test_a_clone_is_unfitted_and_has_all_parameters(fitted):
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "encoder_")
    assert copy.set_params(w=0.25).get_params()["w"] == 0.25
    assert "w=0.25" in repr(copy)


def test_it_prints_with_a_misspelt_method_so_that_one_can_see_it():
    assert "maskcom" in repr(tiny(method="maskcom"))


def test_pickle_and_joblib_keep_the_embedding(fitted, embedded, tmp_path):
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).transform(GREY), embedded)
    joblib.dump(fitted, tmp_path / "embedder.joblib")
    np.testing.assert_array_equal(joblib.load(tmp_path / "embedder.joblib").transform(GREY), embedded)


@pytest.mark.slow
def test_another_process_reads_the_pickle_to_the_same_embedding(fitted, embedded, tmp_path):
    (tmp_path / "embedder").write_bytes(pickle.dumps(fitted))
    np.save(tmp_path / "images.npy", GREY)
    code = (
        "import pickle, numpy as np; from pathlib import Path\n"
        "embedder = pickle.loads(Path('embedder').read_bytes())\n"
        "np.save('found.npy', embedder.transform(np.load('images.npy')))"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, check=True)
    np.testing.assert_allclose(np.load(tmp_path / "found.npy"), embedded, atol=1e-6)


def test_a_pipeline_in_a_search_over_settings_works_with_values_of_numpy():
    pipeline = make_pipeline(tiny(epochs=1), KNeighborsClassifier(1))
    grid = {
        "maskconembedder__w": np.array([0.0, 1.0]),
        "maskconembedder__batch_size": np.array([8]),
        "maskconembedder__method": np.array(["maskcon"]),
    }
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(GREY, LABELS)
    assert search.best_estimator_[0].config_.batch_size == 8
    assert search.predict(GREY[:5]).shape == (5,)
