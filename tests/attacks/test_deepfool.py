import torch

from privet.attacks import create
from privet.attacks.geometry import norms


def test_the_nearest_of_several_boundaries_is_taken(make_classifier):
    """Linear scores of six classes: the distance is the least over the five boundaries."""
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(6, 10, generator=generator)
    x = 0.5 + 0.1 * torch.rand(30, 10, generator=generator)
    classifier = make_classifier(lambda z: z @ w.T - 0.5 * w.sum(1), (10,), 6)
    scores, y = classifier.scores(x), classifier.labels(x)
    for norm, dual in (("l2", 2), ("linf", 1)):
        lengths = torch.linalg.vector_norm(w[y][:, None] - w[None], dual, dim=2)
        gaps = scores.gather(1, y[:, None]) - scores
        least = torch.where(lengths > 0, gaps / lengths.clamp_min(1e-9), torch.inf).amin(1)
        found = create("deepfool", norm=norm).closest(classifier, x, y)
        torch.testing.assert_close(norms(found - x, norm), least, rtol=2e-3, atol=1e-5)
