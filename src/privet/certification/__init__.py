"""Certified robustness: radii within which a smoothed classifier cannot be moved."""

from privet.certification.certificates import ABSTAIN, Certificates
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
    "Laplace",
    "SmoothingNoise",
    "Tally",
    "Uniform",
    "certify",
    "make_noise",
]
