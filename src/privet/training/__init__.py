"""Classifiers trained under differential privacy, by name of the method."""

from privet.training.registry import describe_methods, train

__all__ = ["describe_methods", "train"]
