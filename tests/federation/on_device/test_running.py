"""Twenty steps by ExecuTorch are those of a phone in PyTorch, and mistakes would be seen."""

import json
import shutil

import numpy as np
import pytest
import torch
from made_up_phones import BATCH, SHAPES, handed, records
from torch.nn import functional as F

from privet.errors import InputError
from privet.federation.flat import flat, named
from privet.federation.local_work import EMPTY, LocalWork, Teacher, own_draws
from privet.federation.on_device.running import OnPhone
from privet.federation.one_by_one import OneByOne
from privet.federation.server.updates import Malformed, packed, unpacked
from privet.models import create

AGREED = 1e-4
RATE = 0.005  # of FLSys's clients
WORKS = {
    "har-wild-32": LocalWork(epochs=5, batch=BATCH, learning_rate=RATE),
    "har-wild-64": LocalWork(epochs=5, batch=BATCH, learning_rate=RATE),
    "sentiment-head": LocalWork(epochs=5, batch=BATCH, learning_rate=RATE),
}


def expected_change(name, work, *, proximal=0.0, start=None):
    """What the federation's own client sends, and its lesson."""
    material = records(name)
    lesson = Teacher(material, work, seed=1).lesson(0, 0)
    network = create(name, SHAPES[name], 3, init_seed=0)
    engine = OneByOne(network, material, work, proximal=proximal)
    start = flat(network) if start is None else start
    return engine.changes(start, [lesson])[0], lesson, material


def trained(phone, work, lesson, material, *, drop=True, proximal=0.0):
    """The same lesson by a phone's program, with dropout drawn as PyTorch draws it."""
    start = phone.weights()
    phone.begin(work, proximal=proximal)
    losses = []
    with own_draws(lesson.seed, torch.device("cpu")):
        for batch in lesson.rows:
            rows = torch.from_numpy(batch[batch != EMPTY])
            shapes = [(len(rows), *shape[1:]) for shape in phone.kept]
            kept = [F.dropout(torch.ones(s), r) for s, r in zip(shapes, phone.rates, strict=True)]
            losses.append(phone.step(material.x[rows], material.y[rows], kept if drop else ()))
    return phone.weights() - start, losses


@pytest.mark.parametrize("name", WORKS)
def test_twenty_steps_are_those_of_a_phone_in_pytorch(folder_of, name):
    """Five epochs over 70 records in batches of 20, 20, 20 and 10."""
    work = WORKS[name]
    expected, lesson, material = expected_change(name, work)
    found, losses = trained(OnPhone.load(folder_of(name)), work, lesson, material)
    assert len(losses) == 20
    assert float((found - expected).abs().max()) < AGREED
    assert float(expected.abs().max()) > 10 * AGREED  # there was something to compare
    assert np.mean(losses[-4:]) < np.mean(losses[:4])


def test_adam_too(folder_of):
    work = LocalWork(epochs=5, batch=BATCH, learning_rate=0.0005, optimizer="adam")
    expected, lesson, material = expected_change("har-wild-32", work)
    found, _ = trained(OnPhone.load(folder_of("har-wild-32")), work, lesson, material)
    assert float((found - expected).abs().max()) < AGREED
    assert float(expected.abs().max()) > 20 * AGREED


def test_fedprox_too(folder_of):
    work = WORKS["sentiment-head"]
    expected, lesson, material = expected_change("sentiment-head", work, proximal=20.0)
    phone = OnPhone.load(folder_of("sentiment-head"))
    found, _ = trained(phone, work, lesson, material, proximal=20.0)
    without, _ = trained(OnPhone.load(folder_of("sentiment-head")), work, lesson, material)
    assert float((found - expected).abs().max()) < AGREED
    assert float((without - expected).abs().max()) > 5 * AGREED


def test_a_phone_begins_with_the_version_it_was_sent(folder_of):
    other = flat(create("har-wild-32", SHAPES["har-wild-32"], 3, init_seed=9))
    work = WORKS["har-wild-32"]
    expected, lesson, material = expected_change("har-wild-32", work, start=other)
    phone = OnPhone.load(folder_of("har-wild-32"))
    phone.set_weights(other)
    assert torch.equal(phone.weights(), other)
    found, _ = trained(phone, work, lesson, material)
    assert float((found - expected).abs().max()) < AGREED


def test_every_round_begins_with_a_new_optimiser(folder_of):
    """A phone that keeps Adam's moments sends another update."""
    work = LocalWork(epochs=1, batch=BATCH, learning_rate=0.0005, optimizer="adam")
    expected, lesson, material = expected_change("sentiment-head", work)
    phone, start = OnPhone.load(folder_of("sentiment-head")), None
    for _ in range(2):
        start = phone.weights() if start is None else start
        phone.set_weights(start)
        found, _ = trained(phone, work, lesson, material)
        assert float((found - expected).abs().max()) < AGREED


def test_the_server_takes_the_update(folder_of):
    name = "sentiment-head"
    expected, lesson, material = expected_change(name, WORKS[name])
    found, _ = trained(OnPhone.load(folder_of(name)), WORKS[name], lesson, material)
    content = packed(found.numpy())
    assert np.array_equal(unpacked(content, expected.numel()), found.numpy())
    with pytest.raises(Malformed):
        unpacked(content, expected.numel() + 1)


def test_a_text_for_phones_tells_the_very_header_that_the_server_takes(folder_of):
    """Followed word for word, without any library."""
    found = OnPhone.load(folder_of("sentiment-head")).weights().numpy()
    text = (folder_of("sentiment-head") / "README.md").read_text()
    header = next(line for line in text.splitlines() if '"change"' in line).strip().encode()
    content = len(header).to_bytes(8, "little") + header + found.astype("<f4").tobytes()
    assert np.array_equal(unpacked(content, found.size), found)


# Mistakes that a phone's program may make: each must be seen in twenty steps.


def test_forgotten_dropout_is_seen(folder_of):
    work = WORKS["har-wild-32"]
    expected, lesson, material = expected_change("har-wild-32", work)
    phone = OnPhone.load(folder_of("har-wild-32"))
    found, _ = trained(phone, work, lesson, material, drop=False)
    assert float((found - expected).abs().max()) > 5 * AGREED


def test_parameters_in_the_order_of_their_names_are_seen(folder_of):
    """As a C++ map has them: a vector of the right length, and of no use."""
    work = WORKS["har-wild-32"]
    expected, lesson, material = expected_change("har-wild-32", work)
    found, _ = trained(OnPhone.load(folder_of("har-wild-32")), work, lesson, material)
    parts = named(create("har-wild-32", SHAPES["har-wild-32"], 3), found)
    sorted_change = torch.cat([parts[name].reshape(-1) for name in sorted(parts)])
    assert sorted_change.shape == expected.shape
    assert float((sorted_change - expected).abs().max()) > 10 * AGREED


def test_a_manifest_with_its_parameters_in_another_order_is_refused(folder_of, tmp_path):
    place = shutil.copytree(folder_of("har-wild-32"), tmp_path / "copy")
    manifest = json.loads((place / "manifest.json").read_text())
    offset = 0
    manifest["parameters"].sort(key=lambda p: p["name"])
    for parameter in manifest["parameters"]:
        parameter["offset"] = offset
        offset += int(np.prod(parameter["shape"]))
    (place / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="do not give the vector that the manifest tells"):
        OnPhone.load(place)


def test_a_manifest_of_another_network_is_refused(folder_of, tmp_path):
    place = shutil.copytree(folder_of("har-wild-32"), tmp_path / "copy")
    manifest = json.loads((place / "manifest.json").read_text())
    manifest["parameters"].pop()
    (place / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=r"other parameters than its manifest.*network\.5\.bias"):
        OnPhone.load(place)


def test_scores_are_those_of_the_newest_weights_without_dropout(folder_of):
    name = "har-wild-32"
    phone, network = OnPhone.load(folder_of(name)), create(name, SHAPES[name], 3, init_seed=9)
    phone.set_weights(flat(network))
    x = torch.rand(7, *SHAPES[name])
    _, scores, _ = phone.gradients(x, torch.zeros(7, dtype=torch.int64))
    torch.testing.assert_close(scores, network.eval()(x), atol=1e-5, rtol=1e-4)


def test_what_does_not_fit_is_refused(folder_of):
    phone = OnPhone.load(folder_of("sentiment-head"))
    x, y = torch.rand(BATCH + 1, 768), torch.zeros(BATCH + 1, dtype=torch.int64)
    with pytest.raises(
        InputError, match="too many records for a step: got 21, expected at most 20"
    ):
        phone.gradients(x, y)
    with pytest.raises(InputError, match="does not fit the model"):
        phone.set_weights(phone.weights()[1:])
    with pytest.raises(InputError, match=r"call begin\(work\) first"):
        phone.step(x[:2], y[:2])


def test_a_made_up_network_is_not_the_one_that_was_exported(folder_of):
    """The fixture's seed is what the tests compare with."""
    start = OnPhone.load(folder_of("har-wild-32")).weights()
    assert torch.equal(start, flat(handed("har-wild-32", SHAPES["har-wild-32"]).network))
