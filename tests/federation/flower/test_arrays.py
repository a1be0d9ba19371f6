"""Weights as arrays and back: exactly, by name or by place; anything else is refused."""

import io

import numpy as np
import pytest
import torch
from torch import nn

from privet.federation.flat import flat
from privet.federation.flower.arrays import Layout
from privet.federation.flower.messages import Form, record_of
from privet.federation.server.updates import Malformed
from privet.models import create


def encoded(arrays, **changes):
    return {name: npy(part) for name, part in (arrays | changes).items()}


def npy(part, **options):
    file = io.BytesIO()
    np.save(file, part, **options)
    return file.getvalue()


class Mixed(nn.Module):
    """Weights, statistics that travel, a count that does not, a frozen layer."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(3, 3)
        self.frozen.requires_grad_(False)
        self.norm = nn.BatchNorm1d(3)
        self.last = nn.Linear(3, 2)

    def forward(self, x):
        return self.last(self.norm(self.frozen(x)))


@pytest.fixture
def network():
    torch.manual_seed(0)
    return Mixed()


def test_what_goes_out_is_the_state_with_these_weights(network):
    weights = flat(network) + 1.0
    arrays = Layout(Mixed()).arrays(weights)
    assert list(arrays) == list(network.state_dict())
    other = Mixed()
    other.load_state_dict({name: torch.from_numpy(part) for name, part in arrays.items()})
    assert torch.equal(flat(other), weights)


@pytest.mark.parametrize("form", Form)
def test_what_is_sent_has_every_shape_and_kind_of_the_state(network, form):
    layout = Layout(network)
    sent = record_of(form, layout.arrays(flat(network)))
    for array, part in zip(sent.values(), network.state_dict().values(), strict=True):
        assert array.numpy().shape == tuple(part.shape)
        assert torch.equal(torch.from_numpy(array.numpy()), part)


def test_a_change_is_exact_and_of_what_travels_alone(network):
    layout, base = Layout(network), flat(network)
    after = {name: part.astype(part.dtype) for name, part in layout.arrays(base + 0.3).items()}
    after["frozen.weight"] = after["frozen.weight"] + 7
    after["norm.num_batches_tracked"] = np.array(12)
    change = layout.change(encoded(after), base)
    assert np.array_equal(change, ((base + 0.3) - base).numpy())
    assert change.dtype == np.float32


def test_numbered_arrays_are_taken_in_their_order(network):
    layout, base = Layout(network), flat(network)
    arrays = layout.arrays(base + 1)
    numbered = {str(n): npy(part) for n, part in enumerate(arrays.values())}
    assert np.array_equal(layout.change(numbered, base), layout.change(encoded(arrays), base))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_other_widths_of_floating_point_are_read(dtype):
    network = create("linear", (4,), 2, init_seed=0)
    layout, base = Layout(network), flat(network)
    arrays = {name: part.astype(dtype) for name, part in layout.arrays(base).items()}
    assert np.abs(layout.change(encoded(arrays), base)).max() < 1e-3


def test_columns_first_is_read_as_what_it_is(network):
    layout, base = Layout(network), flat(network)
    arrays = layout.arrays(base + 1)
    turned = {name: np.asfortranarray(part) for name, part in arrays.items()}
    assert np.array_equal(
        layout.change(encoded(turned), base), layout.change(encoded(arrays), base)
    )


def test_what_overflows_is_not_finite_and_no_error(network):
    layout, base = Layout(network), flat(network)
    huge = {"last.bias": np.array([1e300, -1e300])}
    change = layout.change(encoded(layout.arrays(base), **huge), base)
    assert np.isinf(change).sum() == 2


def lacking(arrays):
    return {name: part for name, part in encoded(arrays).items() if name != "last.bias"}


def long_header(arrays):
    """A header that promises more than there is must not be believed."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": "<f4", "fortran_order": False, "shape": (10**12,)}
    )
    return encoded(arrays) | {"last.bias": file.getvalue() + b"\0" * 8}


@pytest.mark.parametrize(
    "answer",
    [
        lacking,
        lambda arrays: encoded(arrays, more=np.zeros(2)),
        lambda arrays: encoded(arrays, **{"last.bias": np.zeros(3, dtype=np.float32)}),
        lambda arrays: encoded(arrays, **{"last.bias": np.zeros(2, dtype=np.int64)}),
        lambda arrays: encoded(arrays, **{"last.bias": np.zeros(2, dtype=">f4")}),
        lambda arrays: encoded(arrays) | {"last.bias": b"PK\x03\x04 an archive"},
        lambda arrays: encoded(arrays) | {"last.bias": b"\x80\x04cos\nsystem\n(S'x'\ntR."},
        lambda arrays: encoded(arrays) | {"last.bias": b""},
        lambda arrays: encoded(arrays) | {"last.bias": npy(np.zeros(2, np.float32)) + b"\0"},
        lambda arrays: encoded(arrays) | {"last.bias": npy(np.array([{}, {}]), allow_pickle=True)},
        long_header,
        lambda arrays: {},
    ],
)
def test_what_is_not_exactly_the_networks_is_refused(network, answer):
    layout, base = Layout(network), flat(network)
    with pytest.raises(Malformed):
        layout.change(answer(layout.arrays(base)), base)
