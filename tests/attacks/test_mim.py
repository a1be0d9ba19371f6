import torch

from privet.attacks import create


def test_the_memory_adds_up_gradients_of_length_one():
    """mu * g + gradient / |gradient|_1, by hand."""
    first = torch.tensor([[3.0, -1.0]])
    memory = create("mim", decay=0.5)._remembered(torch.zeros(1, 2), first)
    torch.testing.assert_close(memory, torch.tensor([[0.75, -0.25]]))
    memory = create("mim", decay=0.5)._remembered(memory, torch.tensor([[0.0, 200.0]]))
    torch.testing.assert_close(memory, torch.tensor([[0.375, 0.875]]))
