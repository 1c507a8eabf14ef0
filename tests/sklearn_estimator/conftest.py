from __future__ import annotations

import numpy as np
import pytest

from maskcon.sklearn import MaskConEmbedder
from tests.sklearn_estimator.embedders import GREY, LABELS, tiny


@pytest.fixture(scope="module")
def fitted() -> MaskConEmbedder:
    return tiny().fit(GREY, LABELS)


@pytest.fixture(scope="module")
def embedded(fitted) -> np.ndarray:
    return fitted.transform(GREY)
