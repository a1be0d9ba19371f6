import pytest
import torch
from torch import nn

from privet.attacks import create
from privet.attacks.geometry import norms
from privet.attacks.keeping import CLEAR
from privet.classifiers import open_classifier
from privet.errors import InputError


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


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_everybody_arrives_clearly_though_pixels_are_black_or_white(norm, digits):
    """A step that is clipped, or that aims at the boundary itself, comes nearer and nearer and ends
    in the rounding error, where a batch of another size sees the old class."""
    x = (1.6 * digits.x[:150] - 0.3).clamp(0, 1)  # most pixels are at an end
    y = digits.classifier.labels(x)
    found = create("deepfool", norm=norm, returns=0, halvings=0).closest(digits.classifier, x, y)
    scores = digits.classifier.scores(found).detach()
    own = scores.gather(1, y[:, None])[:, 0]
    lead = scores.scatter(1, y[:, None], -torch.inf).amax(1) - own
    assert (lead > 0.9 * CLEAR * scores.abs().amax(1)).all()


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_a_linear_classifier_in_the_box_needs_one_step(norm, make_linear):
    """Inputs all over the box: the step makes up for pixels that cannot move. Large scores, which
    round: without an overshoot, too, it ends clearly behind the boundary."""
    linear = make_linear((3, 4, 4), spread=0.5)
    seen = []
    classifier = linear.classifier

    def scores(z):
        seen.append(len(z))
        return classifier.scores(z) + 100

    counted = type(classifier)(
        name="counted", scores=scores, shape=(3, 4, 4), classes=2, device=classifier.device
    )
    attack = create("deepfool", norm=norm, overshoot=0.0, returns=0, halvings=0)
    found = attack.closest(counted, linear.x, linear.y)
    assert (classifier.labels(found) != linear.y).all()
    assert seen == [40] * 4  # right or not, rivals, slopes, arrived


def test_returns_find_a_shorter_way(digits):
    x, y = digits.x[:100], digits.y[:100]
    for norm in ("l2", "linf"):
        once, shorter = (
            norms(
                create("deepfool", norm=norm, returns=n).closest(digits.classifier, x, y) - x, norm
            )
            for n in (0, 10)
        )
        assert (shorter <= once * (1 + 1e-3)).all()
        assert float(shorter.mean()) < 0.99 * float(once.mean())


def test_bad_settings_are_refused():
    for settings in ({"overshoot": -0.1}, {"returns": -1}):
        with pytest.raises(InputError, match="bad settings of deepfool"):
            create("deepfool", **settings)


def test_scores_that_vanish_at_the_boundary_hide_no_rounding():
    """Heads (-z, z): near the boundary both are small, and rounding is as large as elsewhere."""
    torch.manual_seed(0)
    weight = torch.randn(40)

    class Heads(nn.Module):
        def forward(self, x):
            z = x.flatten(1) @ weight - weight.sum() / 2
            return torch.stack([-z, z], 1)

    x = torch.rand(300, 1, 5, 8)
    victim = open_classifier(Heads(), shape=(1, 5, 8))
    y = victim.scores(x).argmax(1)
    found = create("deepfool", norm="l2", halvings=20).closest(victim, x, y)
    alone = torch.cat([victim.scores(image[None]).argmax(1) for image in found])
    assert (alone != y).all()
