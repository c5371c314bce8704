"""Log storage: both layouts, and what corrupt or hostile files get."""

import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from conftest import GOLDEN, Hostile, assert_published_layout, refused

from attention_dynamics.analysis.logs import Logs, load_logs, published_layout, save_logs
from attention_dynamics.analysis.ragged import Ragged
from attention_dynamics.storage.pickles import load_pickle


def small_logs() -> Logs:
    src = Ragged.from_rows([np.array([1, 5, 2]), np.array([1, 2]), np.array([1, 6, 7, 2])])
    logs = Logs("tiny", src, np.array([1, 0, 1]), {"val": 2, "train": 1}, np.array([0, 1, 4]))
    logs.metas["normal_A", 0, "test_acc"] = 0.5
    for kind in ("alpha", "beta"):
        logs.arrays["normal_A", 0, kind] = np.arange(9, dtype=np.float32)
    return logs


def translation_logs() -> Logs:
    """Two pairs: source lengths 3 and 2, target lengths 4 and 3, so 3 and 2 rows."""
    src = Ragged.from_rows([np.array([1, 5, 2]), np.array([1, 2])])
    trg = Ragged.from_rows([np.array([1, 8, 9, 2]), np.array([1, 8, 2])])
    logs = Logs("pairs", src, trg, {"val": 1, "train": 1}, np.array([0, 3]))
    for kind in ("alpha", "beta"):
        logs.arrays["normal_A", 0, kind] = np.arange(13, dtype=np.float32)
    return logs


def test_saved_logs_come_back(tmp_path):
    for logs in (small_logs(), translation_logs()):
        save_logs(tmp_path / "x_logs.pkl", logs)
        back = load_logs(tmp_path / "x_logs.pkl")
        assert (back.splits, back.metas) == (logs.splits, logs.metas)
        assert back.arrays.keys() == logs.arrays.keys()
        for key, values in logs.arrays.items():
            np.testing.assert_array_equal(back.arrays[key], values)
        np.testing.assert_array_equal(back.src.values, logs.src.values)
        np.testing.assert_array_equal(back.index, logs.index)


def test_rows_are_examples_in_classification_and_targets_in_translation():
    logs = small_logs()
    assert list(logs.rows("val")) == [0, 1]
    assert list(logs.rows("train")) == [2]
    assert logs.scores("normal_A", 0, "alpha", "train")[0].tolist() == [5, 6, 7, 8]
    pairs = translation_logs()
    assert list(pairs.rows("val")) == [0, 1, 2]
    scores = pairs.scores("normal_A", 0, "alpha", "train")
    assert [row.tolist() for row in scores] == [[9, 10], [11, 12]]


def test_the_published_layout_is_read_and_written():
    path = GOLDEN / "classification/outputs/Furd_logs.pkl"
    logs, published = load_logs(path), load_pickle(path)
    train = [(e["src"], e["trg"]) for e in published["data"] if e["split"] == "train"]
    again = published_layout(logs, train)
    assert again["metas"] == published["metas"]
    assert_published_layout(again, published, rtol=0, atol=0)


def test_the_published_layout_of_translation_has_a_matrix_per_pair(tmp_path):
    published = published_layout(translation_logs(), [([1, 2], [1, 8, 2])] * 5)
    assert published["data"][0]["normal_A", 0, "alpha"].shape == (3, 3)
    assert published["data"][4]["normal_A", 0, "alpha"].shape == (2, 2)
    assert published["data"][1]["normal_A", 0, "alpha"] is None
    path = tmp_path / "pairs_logs.pkl"
    path.write_bytes(pickle.dumps(published))
    logs = load_logs(path)
    np.testing.assert_array_equal(logs.arrays["normal_A", 0, "alpha"], np.arange(13))
    assert logs.trg.lengths.tolist() == [4, 3]


def test_published_gradients_may_cover_one_split_only(tmp_path):
    logs = small_logs()
    logs.arrays["normal_A", 0, "grad"] = np.array([*range(5), *[np.nan] * 4], dtype=np.float32)
    published = published_layout(logs, [([1, 2], 0)] * 4 + [([1, 6, 7, 2], 1)])
    path = tmp_path / "tiny_logs.pkl"
    path.write_bytes(pickle.dumps(published))
    back = load_logs(path)
    assert back.has_scores("normal_A", 0, "grad", "val")
    assert not back.has_scores("normal_A", 0, "grad", "train")
    published["data"][0]["normal_A", 0, "alpha"] = np.ones(4)  # of three tokens
    path.write_bytes(pickle.dumps(published))
    assert "tiny_logs.pkl are corrupt" in refused(load_logs, path)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_and_arrays_are_admitted(tmp_path, protocol):
    value = {
        ("a", 1): [1, 2.5, None, True, "text", b"bytes", {3}, complex(1, 2), frozenset({4})],
        "array": np.arange(6, dtype=np.float32).reshape(2, 3),
        "scalar": np.float64(0.5),
        "objects": np.array([None, "x"], dtype=object),
    }
    (tmp_path / "p.pkl").write_bytes(pickle.dumps(value, protocol=protocol))
    back = load_pickle(tmp_path / "p.pkl")
    np.testing.assert_array_equal(back.pop("array"), value.pop("array"))
    np.testing.assert_array_equal(back.pop("objects"), value.pop("objects"))
    assert back == value


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps([Hostile()], 0), "asks for .*mkdir, which is not plain data"),
        (pickle.dumps([Hostile()], 5), "asks for .*mkdir, which is not plain data"),
        (b"\x80\x02cbuiltins\neval\n(X\x01\0\0\x001tR.", "asks for builtins.eval"),
        (b"\x80\x04\x8c\x05numpy\x8c\x0cndarray.dump\x93.", "numpy.ndarray.dump"),
        (b"name,value\na,1\n", "corrupt or not a pickle"),
        (pickle.dumps([1, 2]), "does not hold the logs"),
        (pickle.dumps({"metas": {}}), "does not hold the logs"),
        (pickle.dumps({"format": "attention_dynamics.logs", "version": 99}), "version 99"),
        (pickle.dumps({"format": "attention_dynamics.logs", "version": 1}), "corrupt"),
        (pickle.dumps({"metas": {}, "data": []}), "corrupt"),
    ],
)
def test_other_pickles_and_versions_are_refused(folder, content, message):
    Path("x_logs.pkl").write_bytes(content)
    assert re.search(f"x_logs.pkl.*{message}", refused(load_logs, "x_logs.pkl"))
    assert not Path("harm").exists()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda logs: logs.splits.update(val=5, train=-2),
        lambda logs: logs.arrays.update({("normal_A", 0, "beta"): np.zeros(8, np.float32)}),
        lambda logs: logs.arrays.update({("normal_A", 0, "beta"): np.full(9, "x")}),
        lambda logs: logs.arrays.pop(("normal_A", 0, "beta")),
        lambda logs: logs.arrays.update({("normal_A", "0", "alpha"): np.zeros(9, np.float32)}),
        lambda logs: logs.metas.update({("normal_A", 0, "test_acc"): "high"}),
        lambda logs: logs.src.values.__setitem__(1, -7),
    ],
)
def test_logs_with_impossible_content_are_refused(tmp_path, spoil):
    logs = small_logs()
    spoil(logs)
    save_logs(tmp_path / "x_logs.pkl", logs)
    assert "x_logs.pkl are corrupt" in refused(load_logs, tmp_path / "x_logs.pkl")
