"""The encoder of texts: known answers on vectors by hand, and a vocabulary that is public."""

import zlib

import numpy as np
import pytest

from privet.data.word_vectors import (
    FEATURES,
    HASHED,
    HIGH,
    LOW,
    SIZE,
    WORDS,
    encoded,
    has_files,
    read_vectors,
    tokens,
)
from privet.errors import InputError


def write_vectors(folder, words=("good", "bad", "day")):
    folder.mkdir(parents=True, exist_ok=True)
    q = 1 + np.arange(len(words))[:, None] % 100 + np.zeros((1, SIZE))
    scale = np.full(len(words), 0.5, dtype=np.float32)
    arrays = {"words": np.array(words), "q": q.astype(np.int8), "scale": scale}
    np.savez(folder / "glove6b_100d_subset_int8.npz", **arrays)


def test_texts_become_tokens_without_names_and_addresses():
    assert tokens("@Bob Don't GO, see https://x.y/z now!") == [
        *("do", "n't", "go", ",", "see", "now", "!")
    ]
    assert tokens("I\\u2019m") == tokens("I’m") == ["i", "'m"]


def test_words_are_pooled_and_tokens_hashed():
    vectors = {"good": np.full(SIZE, 0.5, np.float32), "day": np.full(SIZE, 1.5, np.float32)}
    row = encoded([["good", "day", "zzz", "zzz"]], vectors)[0]
    assert row.shape == (FEATURES,) == (768,)
    assert [row[0], row[SIZE], row[2 * SIZE]] == pytest.approx([1.0, 1.5, 0.5])
    expected = np.zeros(HASHED)
    for token in ("good", "day", "zzz", "zzz"):
        code = zlib.crc32(token.encode())
        expected[code % HASHED] += (1 if code >= 2**31 else -1) / 2
    assert row[3 * SIZE :] == pytest.approx(expected)


def test_a_text_without_words_is_zero():
    assert not encoded([[]], {"good": np.ones(SIZE, np.float32)}).any()


def test_the_bounds_fit_the_features():
    assert len(LOW) == len(HIGH) == FEATURES


def test_both_forms_agree_and_only_the_most_frequent_words_count(tmp_path):
    words = [f"w{i}" for i in range(WORDS + 5)]
    write_vectors(tmp_path / "ours", words)
    (tmp_path / "glove").mkdir()
    with (tmp_path / "glove" / "glove.6B.100d.txt").open("w") as out:
        for place, word in enumerate(words):
            out.write(" ".join([word, *([f"{0.5 * (1 + place % 100):g}"] * SIZE)]) + "\n")
    ours, published = (read_vectors(tmp_path / name) for name in ("ours", "glove"))
    assert all(has_files(tmp_path / name) for name in ("ours", "glove"))
    assert not has_files(tmp_path)
    assert list(published) == list(ours) == words[:WORDS]
    for word, vector in ours.items():
        assert np.array_equal(vector, published[word])


def test_other_vectors_are_refused(tmp_path):
    (tmp_path / "glove.6B.100d.txt").write_text("the 0.1 0.2\n")
    with pytest.raises(InputError, match="other columns: got 2, expected 100"):
        read_vectors(tmp_path)
