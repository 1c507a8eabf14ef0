"""What Python users call: `fit` trains, `Run` is what it leaves behind."""

from maskcon.api.run import Run, data_of, features_of, fit, score

__all__ = ["Run", "data_of", "features_of", "fit", "score"]
