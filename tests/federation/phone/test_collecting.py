"""Sensors: merged wishes, thinning, flushing, retention, quota, the user's switches, windows."""

import numpy as np
import pytest
import torch

from privet.data.activities import Segment, Session, cut
from privet.data.dataset import Bounds
from privet.errors import InputError
from privet.federation import wire
from privet.federation.phone.collecting import (
    DAY,
    Collector,
    Plan,
    Preset,
    RawStorage,
    Samples,
    Switches,
    kept_days,
    merged,
    told,
)
from privet.federation.phone.processing import Processor, Sensing, windows
from privet.federation.phone.recordings import Recording, of_sessions, read
from privet.federation.phone.records import HELD_OUT, TRAIN, Records


def wish(sensor="acc", least=5.0, rate=50.0, flush=60.0, keep=30.0):
    return wire.Sensing(
        sensor=sensor, least_rate=least, rate=rate, flush_seconds=flush, keep_days=keep
    )


WISHES = [wish(least=5, rate=20, flush=60, keep=7), wish(least=10, rate=50, flush=30, keep=3)]


@pytest.mark.parametrize(
    ("saving", "preset", "expected"),
    [
        (False, Preset.FULL, (50.0, 30.0, 7.0)),
        (True, Preset.FULL, (10.0, 120.0, 7.0)),
        (False, Preset.SPARING, (10.0, 30.0, 7.0)),
        (True, Preset.SPARING, (10.0, 120.0, 7.0)),
    ],
)
def test_wishes_are_merged(saving, preset, expected):
    (plan,) = merged(WISHES, presets={"acc": preset}, saving=saving).values()
    assert (plan.rate, plan.flush_seconds, plan.keep_days) == expected


@pytest.mark.parametrize("preset", [Preset.PAUSED, Preset.STOPPED])
def test_a_sensor_that_the_user_has_switched_off_is_in_no_plan(preset):
    wishes = [*WISHES, wish("gyro")]
    assert list(merged(wishes, presets={"acc": preset}, saving=False)) == ["gyro"]


def stream(seconds=10.0, rate=50.0, *, start=0.0, label=0):
    times = start + np.arange(round(seconds * rate)) / rate
    values = np.stack([times, -times, 0 * times], axis=1).astype(np.float32)
    return Samples(times=times, values=values, labels=np.full(len(times), label, dtype=np.int64))


def collector(folder, samples=None, quota=10**9):
    source = Recording(stream() if samples is None else samples)
    return Collector(source, RawStorage(folder / "acc", quota=quota), began=0.0)


def plan(rate=50.0, flush=1.0, keep=30.0):
    return Plan(sensor="acc", rate=rate, flush_seconds=flush, keep_days=keep)


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        (50.0, list(range(20))),
        (25.0, list(range(0, 20, 2))),
        (20.0, [0, 3, 5, 8, 10, 13, 15, 18]),  # the first at or after each 50 ms
        (10.0, [0, 5, 10, 15]),
        (100.0, list(range(20))),
    ],
)
def test_thinning(tmp_path, rate, expected):
    one = collector(tmp_path, stream(0.4))
    for now in (0.11, 0.25, 0.4):  # in whatever portions it comes
        one.collect(plan(rate=rate, flush=0.0), now)
    kept = one.storage.since(0.0)
    assert np.rint(kept.times * 50).astype(int).tolist() == expected


def test_it_is_flushed_every_period_and_not_before(tmp_path):
    one = collector(tmp_path)
    assert not one.collect(plan(flush=5.0), 4.9)
    assert one.storage.since(0.0) is None
    assert one.collect(plan(flush=5.0), 5.0)
    assert len(one.storage.since(0.0)) == 250
    statistics = told({"acc": one})["acc"]
    assert statistics["samples"] == 250
    assert statistics["flushes"] == 1
    assert statistics["bytes_kept"] > 250 * 20


def test_a_full_buffer_does_not_wait(tmp_path, monkeypatch):
    from privet.federation.phone import collecting

    monkeypatch.setattr(collecting, "MOST_BUFFERED", 100)
    one = collector(tmp_path)
    assert one.collect(plan(flush=1e9), 2.0)


def test_what_is_too_old_goes(tmp_path):
    storage = RawStorage(tmp_path / "acc")
    for day in range(5):
        storage.add(stream(1.0, start=day * DAY))
    assert storage.forget(before=2.5 * DAY) == 2  # the third file may reach beyond
    assert storage.since(-1.0).times[0] == 2 * DAY


def test_the_last_file_goes_too_when_all_of_it_is_too_old(tmp_path):
    """Else what a sensor that fell silent measured last would be kept for ever."""
    storage = RawStorage(tmp_path / "acc")
    storage.add(stream(1.0))  # its last sample is of 0.98
    assert storage.forget(before=0.98) == 0
    assert storage.forget(before=0.99) == 1
    assert storage.files() == []


@pytest.mark.parametrize("preset", ["full", "paused"])
def test_samples_are_forgotten_also_where_none_come(tmp_path, preset):
    sensing, _, switches = make_sensing(tmp_path, stream(10.0))
    sensing.act(10.0)
    assert sensing.collectors["acc"].storage.files()
    switches.set("acc", preset)
    sensing.act(DAY + 9.0)
    assert sensing.collectors["acc"].storage.files()
    sensing.act(DAY + 11.0)
    assert sensing.collectors["acc"].storage.files() == []


def test_over_its_quota_the_oldest_goes_first(tmp_path):
    one = RawStorage(tmp_path / "acc")
    for start in range(4):
        one.add(stream(1.0, start=float(10 * start)))
    size = one.files()[0].stat().st_size
    one.quota = int(2.5 * size)
    assert one.forget(before=-1.0) == 2
    assert [float(path.stem) for path in one.files()] == [20.0, 30.0]


def test_since_finds_what_begins_in_the_middle_of_a_file(tmp_path):
    one = RawStorage(tmp_path / "acc")
    one.add(stream(2.0))
    one.add(stream(2.0, start=2.0))
    assert one.since(1.0).times[0] == 1.0
    assert len(one.since(1.0)) == 150


def test_the_users_switches_are_kept(tmp_path):
    Switches(tmp_path).set("acc", "paused")
    assert Switches(tmp_path).presets == {"acc": Preset.PAUSED}
    with pytest.raises(InputError, match="unknown preset"):
        Switches(tmp_path).set("acc", "loud")


def test_what_the_user_writes_into_the_switches_holds_at_once(tmp_path):
    sensing, records, _ = make_sensing(tmp_path, stream(30.0))
    sensing.act(10.0)
    assert records.count()
    (tmp_path / "switches.json").write_text('{"acc": "stopped"}')
    sensing.act(20.0)
    assert sensing.collectors["acc"].storage.files() == []
    assert records.count() == records.count(HELD_OUT) == 0


def test_switches_that_nobody_knows_are_refused(tmp_path):
    (tmp_path / "switches.json").write_text('{"acc": "loud"}')
    with pytest.raises(InputError, match="unknown preset"):
        Switches(tmp_path)


def test_windows_known_answers():
    samples = stream(0.2)  # ten samples
    samples.labels[:] = [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]
    starts, labels, rest = windows(samples, 4, hop=2)
    assert (starts, labels) == ([0, 5], [0, 1])
    assert rest == samples.times[7]  # 7, 8, 9: the next window lacks one


def test_no_window_crosses_a_gap_or_lacks_a_label():
    samples = stream(0.2)
    samples.times[6:] += 1.0
    samples.labels[:3] = -1
    assert windows(samples, 3, hop=3)[0] == [3, 6]


def test_windows_are_those_of_the_laboratory(tmp_path):
    """In whatever portions samples come: what `cut` makes of the whole, and none twice."""
    draw = np.random.default_rng(0)
    signal = draw.uniform(-1, 1, (700, 3)).astype(np.float32)
    session = Session(
        user=0,
        rate=50,
        signal=signal,
        segments=(Segment(label=1, start=0, stop=300), Segment(label=2, start=300, stop=700)),
    )
    expected = cut([session])
    one = Collector(of_sessions([session]), RawStorage(tmp_path / "acc"), began=0.0)
    records = Records(tmp_path / "records", shape=(3, 100), classes=3)
    bounds = Bounds(low=(-1.0,), high=(1.0,))
    processor = Processor(one, records, bounds=bounds, folder=tmp_path, keep_days=1.0)
    for now in (1.3, 2.0, 4.4, 7.7, 12.9, 14.0):
        one.collect(plan(flush=0.0), now)
        processor.run()
        # A phone that starts anew goes on where the last one was.
        processor = Processor(one, records, bounds=bounds, folder=tmp_path, keep_days=1.0)
    parts = [records.read(TRAIN), records.read(HELD_OUT)]
    assert len(parts[1][1]) == len(expected.y) // 7
    found = {x.numpy().tobytes() for x in torch.cat([part[0] for part in parts])}
    scaled = bounds.clamp_and_scale(expected.x[:, 0])
    assert found == {x.tobytes() for x in scaled}
    assert sum(len(part[1]) for part in parts) == len(expected.y) == 12


def make_sensing(folder, samples):
    one = collector(folder, samples)
    records = Records(folder / "records", shape=(3, 10), classes=2)
    bounds = Bounds(low=(-1.0,), high=(1.0,))
    processor = Processor(one, records, bounds=bounds, folder=folder, keep_days=1.0)
    switches = Switches(folder)
    wishes = [wish(flush=1.0, keep=1.0)]
    sensing = Sensing(
        lambda saving: merged(wishes, presets=switches.presets, saving=saving),
        {"acc": one},
        [processor],
        switches,
        lambda _: False,
        kept_days(wishes),
    )
    return sensing, records, switches


def test_pause_stop_and_go(tmp_path):
    sensing, records, switches = make_sensing(tmp_path, stream(30.0))
    sensing.act(10.0)
    assert (tmp_path / "processed.json").stat().st_mode & 0o077 == 0
    before = records.count() + records.count(HELD_OUT)
    assert before == 99
    switches.set("acc", "paused")
    sensing.act(20.0)
    assert records.count() + records.count(HELD_OUT) == before
    switches.set("acc", "full")
    sensing.act(30.0)
    assert sensing.collectors["acc"].storage.since(0.0).times.max() > 29.9
    in_pause = sensing.collectors["acc"].storage.since(10.0)
    assert in_pause.times.min() >= 20.0
    switches.set("acc", "stopped")
    sensing.act(31.0)
    assert sensing.collectors["acc"].storage.files() == []
    assert records.count() == records.count(HELD_OUT) == 0


def test_windows_are_forgotten_as_the_user_was_told(tmp_path):
    sensing, records, _ = make_sensing(tmp_path, stream(10.0))
    sensing.act(10.0)
    assert records.count()
    sensing.act(DAY + 9.0)
    assert not records.count()


def test_a_recording_from_a_file(tmp_path):
    path = tmp_path / "acc.csv"
    path.write_text("seconds,label,x,y,z\n0.0,b,1,2,3\n0.5,,4,5,6\n")
    samples = read(path, ("a", "b")).between(0.0, 9.0)
    assert samples.labels.tolist() == [1, -1]
    assert samples.values.tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time,x\n", "bad header"),
        ("seconds,label,x\n0.0,c,1\n", "line 2: no class"),
        ("seconds,label,x\n0.0,a,nan\n", "line 2: not a sample"),
        ("seconds,label,x\n0.0,a\n", "line 2: not a sample"),
        ("seconds,label,x\n0.0,a,1e39\n", "line 2: not a sample"),
        ("seconds,label,x\n1.0,a,1\n0.5,a,1\n", "order of time"),
        ("seconds,label,x\n0.0,a," + "1" * 200_000, "not a CSV file"),
    ],
)
def test_bad_recordings_are_refused(tmp_path, text, said):
    path = tmp_path / "acc.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        read(path, ("a",))


def test_a_recording_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "acc.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not a CSV file"):
        read(tmp_path / "acc.csv", ("a",))
