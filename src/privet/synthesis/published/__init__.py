"""Generators of records as their papers have them: nothing is proved, what is claimed is stated."""
