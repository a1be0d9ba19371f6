import numpy as np
import pytest
import torch

from privet.attacks import create


def test_the_memory_adds_up_gradients_of_length_one():
    """mu * g + gradient / |gradient|_1, by hand."""
    first = torch.tensor([[3.0, -1.0]])
    memory = create("mim", decay=0.5)._remembered(torch.zeros(1, 2), first)
    torch.testing.assert_close(memory, torch.tensor([[0.75, -0.25]]))
    memory = create("mim", decay=0.5)._remembered(memory, torch.tensor([[0.0, 200.0]]))
    torch.testing.assert_close(memory, torch.tensor([[0.375, 0.875]]))


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("decay", [0.3, 1.0])
def test_every_step_remembers_the_ones_before(norm, decay, hilly):
    """The whole run, image by image; catches a decay or a memory that is ignored."""
    size, steps, length = 0.12, 15, 0.2
    attack = create("mim", norm=norm, steps=steps, step=length, decay=decay)
    attack(hilly.classifier, hilly.x, hilly.y, size=size)
    asked = np.stack(hilly.seen[1:])
    for i, x in enumerate(hilly.x.numpy()):
        here, g, points = x.copy(), np.zeros_like(x), [x.copy()]
        for _ in range(steps):
            gradient = hilly.gradient(here)
            g = decay * g + gradient / np.abs(gradient).sum()
            d = here - x + length * size * (np.sign(g) if norm == "linf" else g / np.sqrt(g @ g))
            d = d.clip(-size, size) if norm == "linf" else d * min(1, size / np.sqrt(d @ d))
            here = x + d
            points.append(here)
        np.testing.assert_allclose(asked[:, i], np.stack(points), atol=1e-9)


def test_without_decay_it_is_ifgsm_and_with_it_is_not(hilly):
    def run(name, **settings):
        hilly.seen.clear()
        create(name, steps=15, **settings)(hilly.classifier, hilly.x, hilly.y, size=0.12)
        return np.stack(hilly.seen)

    plain = run("ifgsm")
    np.testing.assert_allclose(run("mim", decay=0.0), plain, atol=1e-12)
    assert np.abs(run("mim", decay=1.0) - plain).max() > 0.01
