"""Certified robustness: radii within which a smoothed classifier cannot be moved."""

from privet.certification.certificates import ABSTAIN, Certificates
from privet.certification.grid_noise import GridGaussian
from privet.certification.hidden import HiddenGaussian, HiddenLaplace
from privet.certification.layered import LayeredGaussian
from privet.certification.poisoning import (
    accuracy_after_poisoning,
    after_changes,
    certified_records,
    mean_lower,
)
from privet.certification.prediction import Predictions, predict
from privet.certification.published import (
    Layers,
    PublishedSize,
    dpal,
    pixeldp_gaussian,
    pixeldp_laplace,
    stobatch,
)
from privet.certification.smoothing import certify
from privet.certification.smoothing_noise import (
    Gaussian,
    Laplace,
    SmoothingNoise,
    Uniform,
    make_noise,
)
from privet.certification.votes import Tally

__all__ = [
    "ABSTAIN",
    "Certificates",
    "Gaussian",
    "GridGaussian",
    "HiddenGaussian",
    "HiddenLaplace",
    "Laplace",
    "LayeredGaussian",
    "Layers",
    "Predictions",
    "PublishedSize",
    "SmoothingNoise",
    "Tally",
    "Uniform",
    "accuracy_after_poisoning",
    "after_changes",
    "certified_records",
    "certify",
    "dpal",
    "make_noise",
    "mean_lower",
    "pixeldp_gaussian",
    "pixeldp_laplace",
    "predict",
    "stobatch",
]
