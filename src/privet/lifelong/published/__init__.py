"""Lifelong methods as their authors wrote them: claims, not proofs."""
