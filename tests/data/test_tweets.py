"""Tweets: both forms of the files, what is left out, and who is for testing."""

import csv
import gzip

import numpy as np
import pytest

from privet.data import available, load
from privet.data.locate import find_folder
from privet.data.tweets import NAME, has_files
from privet.data.word_vectors import SIZE
from privet.errors import InputError


def rows_of(n=60):
    """Labels in turns; every seventh tweet is of the benchmark's training part."""
    parts = ["train" if place % 7 == 6 else ("val", "test")[place % 2] for place in range(n)]
    return [(parts[i], str(i % 3), f"word{i} good, @user{i}") for i in range(n)]


def write_table(folder, rows):
    folder.mkdir(parents=True)
    with gzip.open(folder / "sentiment.csv.gz", "wt", newline="") as stream:
        out = csv.writer(stream)
        out.writerow(("split", "label", "text"))
        out.writerows(rows)


def write_texts(folder, rows):
    inside = folder / "sentiment"
    inside.mkdir(parents=True)
    for part in ("train", "val", "test"):
        chosen = [row for row in rows if row[0] == part]
        (inside / f"{part}_text.txt").write_text("".join(f"{text}\n" for *_, text in chosen))
        (inside / f"{part}_labels.txt").write_text("".join(f"{y}\n" for _, y, _ in chosen))


def write_vectors(folder):
    folder.mkdir(parents=True)
    q, scale = np.ones((2, SIZE), dtype=np.int8), np.array([0.5, 1.0], dtype=np.float32)
    words = np.array(["good", "bad"])
    np.savez(folder / "glove6b_100d_subset_int8.npz", words=words, q=q, scale=scale)


def test_negative_and_positive_tweets_of_two_parts_are_read(tmp_path):
    write_vectors(tmp_path / "word_vectors")
    write_table(tmp_path / "tweeteval", rows_of())
    data = load("tweets", tmp_path)
    kept = [row for row in rows_of() if row[0] != "train" and row[1] != "1"]
    assert len(data.train) + len(data.test) == len(kept)
    labels = np.concatenate([data.train.y, data.test.y])
    assert np.bincount(labels).tolist() == [sum(row[1] == y for row in kept) for y in "02"]
    assert (data.shape, data.unit, data.nominal_size) == ((768,), "example", 6000)
    assert (data.train.units, data.test_is_public) == (None, True)
    assert data.train.x[:, 0] == pytest.approx(0.5), "the one word that has a vector"


def test_both_forms_hold_the_same_tweets(tmp_path):
    for name, write in (("a", write_table), ("b", write_texts)):
        write_vectors(tmp_path / name / "word_vectors")
        write(tmp_path / name / "tweeteval", rows_of())
    one, other = (load("tweets", tmp_path / name) for name in ("a", "b"))
    for part, again in ((one.train, other.train), (one.test, other.test)):
        # The published form has all of val first.
        rows, rows_again = (
            sorted((int(y), x.tobytes()) for x, y in zip(p.x, p.y, strict=True))
            for p in (part, again)
        )
        assert rows == rows_again


def test_a_tweet_more_moves_no_other_and_doubles_stay_together(tmp_path):
    for name, more in (
        ("few", []),
        ("more", [("val", "0", "one more @x"), ("test", "2", "ONE more")]),
    ):
        write_vectors(tmp_path / name / "word_vectors")
        write_table(tmp_path / name / "tweeteval", rows_of() + more)
    few, more = (load("tweets", tmp_path / name) for name in ("few", "more"))
    for part in ("train", "test"):
        before, after = (getattr(data, part).x for data in (few, more))
        assert len(after) in (len(before), len(before) + 2), "names and case apart it is the same"
        assert np.array_equal(after[: len(before)], before)


def test_without_the_vectors_they_are_not_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("privet.data.locate._shared_roots", list)
    monkeypatch.setattr("privet.data.locate._usual_roots", list)
    write_table(tmp_path / "tweeteval", rows_of())
    assert not has_files(tmp_path / "tweeteval")
    assert not next(entry for entry in available(tmp_path) if entry.name == NAME).found
    with pytest.raises(InputError, match="'tweets' were not found"):
        load("tweets", tmp_path)
    write_vectors(tmp_path / "word_vectors")
    assert next(entry for entry in available(tmp_path) if entry.name == NAME).found


def test_broken_files_are_refused(tmp_path):
    write_vectors(tmp_path / "word_vectors")
    folder = tmp_path / "tweeteval"
    folder.mkdir()
    (folder / "sentiment.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(InputError, match="cannot be read: BadGzipFile"):
        load("tweets", tmp_path)
    (folder / "sentiment.csv.gz").unlink()
    write_texts(folder, rows_of())
    (folder / "sentiment" / "val_labels.txt").write_text("0\n")
    with pytest.raises(InputError, match="cannot be read: ValueError"):
        load("tweets", tmp_path)


def test_the_real_ones():
    if find_folder(NAME, has_files) is None:
        pytest.skip("TweetEval is no part of the project and was not found on this machine")
    data = load("tweets")
    assert np.bincount(data.train.y).tolist() == [3429, 2525]
    assert np.bincount(data.test.y).tolist() == [855, 669]
