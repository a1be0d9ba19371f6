"""Any classifier, from anywhere, on inputs in [0, 1]: what attacks and certificates work on."""

from privet.classifiers.classifier import Classifier
from privet.classifiers.denoised import Denoiser, denoised
from privet.classifiers.opening import open_classifier

__all__ = ["Classifier", "Denoiser", "denoised", "open_classifier"]
