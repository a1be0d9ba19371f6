"""Pieces of a batch, and a step of one size."""

import torch
from torch import nn

from privet.engine import summing
from privet.engine.summing import pieces, units_at_once
from privet.privacy.clipping import FastClipper, ReferenceClipper, cross_entropy


def test_pieces_are_of_about_one_size_and_hold_every_unit_once():
    for n, sizes in ((0, []), (3, [3]), (4, [4]), (5, [3, 2]), (10, [4, 3, 3])):
        found = list(pieces(torch.arange(n), 4))
        assert [len(piece) for piece in found] == sizes
        assert torch.cat([torch.arange(0), *found]).tolist() == list(range(n))


def test_what_is_formed_decides_how_many_units_fit(monkeypatch):
    """A wide layer's gradients are never formed; a kernel's are."""
    wide = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 1000))
    x, y = torch.rand(3, 1, 8, 8), torch.tensor([0, 1, 2])
    clipper = FastClipper(wide, cross_entropy, 1.0)
    everything = sum(p.numel() for p in wide.parameters())
    assert clipper.held == everything  # before anything is known
    clipper.clipped_sum(x, y)
    assert clipper.held == 2 * 9 + 2 + 1000
    assert ReferenceClipper(wide, cross_entropy, 1.0).held == everything
    monkeypatch.setitem(summing.MOST_GRADIENT_ENTRIES, "cpu", 5 * clipper.held)
    assert units_at_once(clipper, views=1) == 5
    monkeypatch.setitem(summing.MOST_ROWS, "cpu", 8)
    assert units_at_once(clipper, views=4) == 2
