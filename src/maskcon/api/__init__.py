"""The Python interface: `fit` trains, `Run` opens a finished run."""

from maskcon.api.run import Run, data_of, features_of, fit, score

__all__ = ["Run", "data_of", "features_of", "fit", "score"]
