"""What travels and what is kept: nothing but the one form is read, and nothing is run."""

import json

import numpy as np
import pytest
import safetensors.numpy
import torch
from hypothesis import given
from hypothesis import strategies as st

from privet.errors import InputError
from privet.federation.server.snapshots import KEY_BYTES, sealed, unsealed
from privet.federation.server.updates import (
    Malformed,
    is_finite,
    most_bytes,
    norm_of,
    packed,
    packed_sum,
    unpacked,
    unpacked_sum,
)

KEY = bytes(range(KEY_BYTES))


class TestUpdates:
    def test_an_update_comes_out_as_it_went_in(self):
        change = np.random.default_rng(0).normal(size=1000).astype(np.float32)
        assert np.array_equal(unpacked(packed(change), 1000), change)
        assert len(packed(change)) <= most_bytes(1000)
        total = change.astype(np.float64) / 3
        assert np.array_equal(unpacked_sum(packed_sum(total), 1000), total)

    def test_other_peoples_safetensors_are_read_too(self):
        import safetensors.torch

        content = safetensors.torch.save({"change": torch.arange(5.0)})
        assert unpacked(content, 5).tolist() == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize(
        "content",
        [
            packed(np.zeros(5, dtype=np.float32)),
            packed(np.zeros(3, dtype=np.float32)),
            safetensors.numpy.save({"change": np.zeros((2, 2), dtype=np.float32)}),
            safetensors.numpy.save({"change": np.zeros(4, dtype=np.int32)}),
            safetensors.numpy.save({"change": np.zeros(2, dtype=np.float64)}),
            safetensors.numpy.save({"weights": np.zeros(4, dtype=np.float32)}),
            safetensors.numpy.save({"change": np.zeros(4, dtype=np.float32)}, {"note": "x"}),
            safetensors.numpy.save({"change": np.zeros(4, np.float32), "b": np.zeros(0)}),
            b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00",
            b"",
            bytes(7),
            (2**63).to_bytes(8, "little") + bytes(50),
        ],
    )
    def test_anything_else_is_malformed(self, content):
        with pytest.raises(Malformed):
            unpacked(content, 4)

    @given(st.binary(max_size=200))
    def test_no_bytes_do_anything_but_fail(self, noise):
        with pytest.raises(Malformed):
            unpacked(noise, 4)

    @given(st.text(max_size=80))
    def test_no_header_does_anything_but_fail(self, text):
        header = text.encode("utf-8", "surrogatepass")
        content = len(header).to_bytes(8, "little") + header + bytes(16)
        with pytest.raises(Malformed):
            unpacked(content, 4)

    def test_a_header_as_deep_as_can_be_is_no_way_to_stop_the_server(self):
        header = b"[" * 1000
        with pytest.raises(Malformed):
            unpacked(len(header).to_bytes(8, "little") + header + bytes(16), 4)

    def test_finite_is_what_has_neither_nan_nor_infinity(self):
        large = np.full(8, 3e38, dtype=np.float32)  # whose square sum overflows
        assert is_finite(large)
        for bad in (np.nan, np.inf, -np.inf):
            spoilt = np.zeros(8, dtype=np.float32)
            spoilt[5] = bad
            assert not is_finite(spoilt)
        assert norm_of(large) == pytest.approx(3e38 * 8**0.5, rel=1e-6)


class TestSnapshots:
    STATE = {  # noqa: RUF012
        "weights": torch.arange(6.0),
        "nested": {"total": torch.ones(3, dtype=torch.float64) / 3, "none": None, "n": 3},
        "rows": [torch.zeros(2), torch.ones(2)],
        "empty": torch.zeros(0, 0, dtype=torch.float64),
        "names": {"d1": 1, "d2": 2},
        "moment": 0.1,
        "text": "plain",
    }

    def test_a_state_comes_out_as_it_went_in(self):
        found = unsealed(sealed(self.STATE, key=KEY, name="m|7"), key=KEY, name="m|7")
        for path in (("weights",), ("nested", "total"), ("empty",)):
            one, two = self.STATE, found
            for name in path:
                one, two = one[name], two[name]
            assert torch.equal(one, two)
            assert one.dtype == two.dtype
        assert torch.equal(found["rows"][1], torch.ones(2))
        assert (found["nested"]["none"], found["nested"]["n"]) == (None, 3)
        assert (found["names"], found["moment"], found["text"]) == (
            {"d1": 1, "d2": 2},
            0.1,
            "plain",
        )

    def test_nothing_of_it_can_be_read_without_the_key(self):
        content = sealed(self.STATE, key=KEY, name="m|7")
        assert json.dumps({"d1": 1}).encode()[1:-1] not in content
        assert torch.arange(6.0).numpy().tobytes() not in content
        assert sealed(self.STATE, key=KEY, name="m|7") != content

    @pytest.mark.parametrize("change", ["flip", "cut", "name", "key"])
    def test_a_snapshot_that_was_changed_or_is_anothers_is_refused(self, change):
        content = bytearray(sealed(self.STATE, key=KEY, name="m|7"))
        if change == "flip":
            content[40] ^= 1
        elif change == "cut":
            content = content[:20]
        key = bytes(KEY_BYTES) if change == "key" else KEY
        with pytest.raises(InputError, match="did not make"):
            unsealed(bytes(content), key=key, name="m|8" if change == "name" else "m|7")
