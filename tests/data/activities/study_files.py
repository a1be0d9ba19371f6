"""Small folders in the forms of the studies, for readers and for streams."""

import csv
import gzip

import numpy as np

from privet.data.activities import hapt, watch, wisdm


def hapt_arrays(seconds=50, users=hapt.ABOUT.users):
    """One session a user: the first three and the last activity for so many seconds each."""
    rng = np.random.default_rng(0)
    per = seconds * 50
    length, n = 4 * per, len(users)
    labels = [
        (number, user, activity, place * per + 1, (place + 1) * per)
        for number, user in enumerate(users, start=1)
        for place, activity in enumerate((1, 2, 12, 6))
    ]
    return {
        "acc": rng.integers(-1440, 1441, (n * length, 3)).astype(np.int16),
        "gyro": rng.integers(-9000, 9001, (n * length, 3)).astype(np.int16),
        "acc_scale": np.float64(1 / 720),
        "gyro_scale": np.float64(3.05e-4),
        "exp_id": np.arange(1, n + 1),
        "exp_user": np.array(users),
        "exp_start": np.arange(n) * length,
        "exp_len": np.full(n, length),
        "labels": np.array(labels, dtype=np.int32),
    }


def write_hapt(folder, **how):
    folder.mkdir(parents=True, exist_ok=True)
    arrays = hapt_arrays(**how)
    np.savez(folder / "hapt_raw_50hz.npz", **arrays)
    return arrays


def write_hapt_texts(folder, **how):
    """As published: a file for each session and sensor."""
    raw = folder / "RawData"
    raw.mkdir(parents=True)
    arrays = hapt_arrays(**how)
    np.savetxt(raw / "labels.txt", arrays["labels"], fmt="%d")
    columns = ("exp_id", "exp_user", "exp_start", "exp_len")
    for number, user, start, length in zip(*(arrays[c] for c in columns), strict=True):
        for sensor in ("acc", "gyro"):
            values = arrays[sensor][start : start + length] * arrays[f"{sensor}_scale"]
            np.savetxt(raw / f"{sensor}_exp{number:02d}_user{user:02d}.txt", values)
    return arrays


def write_watch(folder, seconds=6):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    keys = [(s, side, y) for s in watch.ABOUT.users for side in (0, 1) for y in range(7)]
    subject, side, y = (np.array(column) for column in zip(*keys, strict=True))
    arrays = {
        "x": rng.normal(0, 2, (len(keys) * seconds * 50, 6)).astype(np.float32),
        "seq_len": np.full(len(keys), seconds * 50),
        "subject": subject,
        "side": side,
        "y": y,
    }
    np.savez(folder / "watch.npz", **arrays)
    return arrays


def wisdm_rows(each=6):
    """`each` rows a user; the faulty columns, and a peak that was not found in every third."""
    rng = np.random.default_rng(0)
    columns = ["UNIQUE_ID", "user", *wisdm.ABOUT.features, *wisdm.FAULTY, "class"]
    rows = []
    for place in range(36 * each):
        row = {name: f"{rng.uniform(0, 1):.2f}" for name in columns}
        row |= {"UNIQUE_ID": "1", "user": str(place // each + 1)}
        row |= {"class": wisdm.ABOUT.classes[place % 6], "XAVG": "0"}
        row |= {"YPEAK": "" if place % 3 == 0 else "250.5", "XSTANDDEV": "31.5"}
        rows.append(row)
    return columns, rows


def write_wisdm(folder, **how):
    folder.mkdir(parents=True, exist_ok=True)
    columns, rows = wisdm_rows(**how)
    with gzip.open(folder / "transformed.csv.gz", "wt", newline="") as stream:
        out = csv.DictWriter(stream, columns)
        out.writeheader()
        out.writerows(rows)
    return rows


def write_wisdm_arff(folder, **how):
    folder.mkdir(parents=True, exist_ok=True)
    columns, rows = wisdm_rows(**how)
    lines = ["@relation person_activity_recognition", ""]
    lines += [f'@attribute "{name}" numeric' for name in columns[:-1]]
    lines += ['@attribute "class" { "Walking" , "Jogging" }', "", "@data"]
    lines += [
        ",".join(row[name] or "?" for name in columns[:-1]) + f',"{row["class"]}"' for row in rows
    ]
    (folder / "WISDM_ar_v1.1_transformed.arff").write_text("\n".join(lines) + "\n")
    return rows
