"""A network with noise of its own: the claimed curve lies above the correct one."""

import numpy as np
import pytest
import torch

from privet.certification.verified_inference import verified
from privet.models import create
from privet.release import Release
from privet.studies.robust_private.protocol import chosen_examples
from privet.studies.robust_private.published import published_certificate


@pytest.fixture
def release():
    """Untrained, its answers made sure by large output weights."""
    model = create("published-noised", (1, 8, 8), 10, init_seed=0).eval()
    with torch.no_grad():
        model.last.weight.mul_(400.0)
    mechanism = {"psi": 10.0, "input_scale": 0.1, "hidden_scale": 0.2}
    trust = {"method": "stobatch", "analysis": "paper", "mechanism": mechanism}
    return Release(model=model, config={}, trust=trust)


def test_both_curves_are_those_of_the_certificates(release, digits):
    x, _ = chosen_examples(digits, 6)
    sizes = (1e-5, 1e-4, 0.3)
    sound = verified(release, x, attack=0.1, analysis="sound", draws=100, seed=0)
    y = torch.as_tensor(sound.labels)
    found = published_certificate(release, x, y, sizes=sizes, draws=100, seed=0)
    for i, size in enumerate(sizes):
        claim = verified(release, x, attack=2 * size, analysis="paper", draws=100, seed=0)
        right = claim.labels == y.numpy()
        assert found["claimed"][i] == np.mean(right & claim.robust)
        assert found["correct"][i] == np.mean(sound.sizes >= 2 * size)
    assert found["correct"][0] > 0
    assert found["correct"][1:] == [0.0, 0.0]
    assert found["claimed"][1] > 0
    assert any("10 times smaller" in gap for gap in found["gaps"])


def test_others_claim_nothing(digits):
    x, y = chosen_examples(digits, 2)
    plain = Release(model=create("linear", (1, 8, 8), 10, init_seed=0), config={}, trust={})
    assert published_certificate(plain, x, y, sizes=(0.1,), draws=2) is None
