"""Truncated and corrupt files: each is read with valid values, or rejected in one line.

Each case makes a small file that a script reads, and a function that reads it as the script does,
up to the results. The same examples are tried each time; ``pytest -m faults`` tries 500 per case.
"""

import itertools
import json
import math
import shutil
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import make_small_pairs, make_small_set
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from attention_dynamics.analysis.inputs import summarize_inputs
from attention_dynamics.analysis.own_model import add_checkpoint, create_logs, save
from attention_dynamics.cli import InputError, one_line
from attention_dynamics.names import PERFORMANCES
from attention_dynamics.runs import checkpoints, records
from attention_dynamics.runs.training import Training
from attention_dynamics.storage.files import write_pickle, write_text

# What breaks parsers when it stands where something else did.
TOKENS = (
    b"", b"\0", b"\n", b"\r\n", b'"', b",", b"\t", b"[", b"}", b"(", b"NaN", b"-Infinity", b"1e999",
    b"null", b"-1", b"99999999999999999999", b"0.5", b"\xff\xfe", b"\xef\xbb\xbf", b"\xc3\x28",
    b"\\ud800", b"\xe2\x80\xa8", b"\x80\x05", b".", b"R", b"0" * 5000, b"[" * 3000,
)  # fmt: skip


@st.composite
def corrupt_bytes(draw, content: bytes) -> bytes:
    """``content`` with one to three of: a bit flipped, cut off, a part lost, doubled, inserted."""
    for _ in range(draw(st.integers(1, 3))):
        position = draw(st.integers(0, len(content)))
        length = draw(st.sampled_from((1, 1, 2, 3, 8, 50)))
        head, tail = content[:position], content[position:]
        match draw(st.sampled_from(("flip", "flip", "cut", "lose", "double", "insert"))):
            case "flip" if tail:
                content = head + bytes([tail[0] ^ (1 << draw(st.integers(0, 7)))]) + tail[1:]
            case "cut":
                content = head
            case "lose":
                content = head + tail[length:]
            case "double":
                content = head + tail[:length] + tail
            case _:
                content = head + draw(st.sampled_from(TOKENS)) + tail
    return content


def classification_data(folder, scripts):
    make_small_set(folder, scripts.classification, 12, 6)

    def read() -> None:
        dataset = scripts.classification.data.load_dataset("small")
        json.dumps(dataset.vocabulary).encode()
        assert set(dataset.train.labels.tolist()) <= {0, 1}
        ids = dataset.train.ids.values
        assert ids.min() >= 0 and ids.max() < len(dataset.vocabulary)

    return Path("data/small_train.json"), read


def logs(folder, scripts):
    rng, src = np.random.default_rng(0), [[1, *range(4, 4 + n), 2] for n in (3, 4, 6, 5)]
    made = create_logs("small", src, [1, 0, 0, 1], 3)
    for name, t in itertools.product(("normal_A", "normal_B", "uniform"), (0, 5)):
        scores = {
            "alpha": [rng.dirichlet(np.ones(len(row))) for row in src],
            "beta": [rng.normal(size=len(row)) for row in src],
        }
        if name == "normal_A":
            scores["grad"] = scores["beta"]
        add_checkpoint(made, name, t, **scores, test_acc=rng.random(), train_acc=rng.random())
    save(made)

    def read() -> None:
        inputs = scripts.classification.baselines.load_inputs("small")
        for metric in ("top 5% match", "kendall tau"):
            accuracy = PERFORMANCES["classification"]["acc"]
            result = summarize_inputs(inputs, metric, "val", accuracy, 0)
            assert math.isfinite(result["best_perf"])

    return Path("outputs/small_logs.pkl"), read


def prepared(scripts, *options: object):
    """A function that prepares a dataset and loads the result, which must be accepted."""

    def read() -> None:
        scripts.classification.prepare_data.main(["--dataset", *map(str, options), "--overwrite"])
        dataset = scripts.classification.data.load_dataset(options[0])
        assert set(dataset.train.labels.tolist()) == {0, 1}

    return read


OWN_FILES = {
    ".csv": 'text,label\n"a ""bad"" film, really",0\n"good\nfilm",1\nmore of it,1\nand less,0\n',
    ".jsonl": '{"text": "a bad film", "label": 0}\n{"text": "gut \\u00e9", "label": "1", "x": 1}\n',
}


def own_file(suffix: str):
    def make(folder, scripts):
        path = Path(f"train{suffix}")
        write_text(path, OWN_FILES[suffix])
        write_text("other.csv", "text,label\na film,0\ngood film,1\n")
        options = ("--text_column", "text", "--label_column", "label", "--labels", "0", "1")
        return path, prepared(scripts, "mine", "--train", path, "--test", "other.csv", *options)

    return make


def archive(suffix: str, kind: str):
    def make(folder, scripts):
        write_text("trees/train.txt", "(3 (2 It) (4 shines))\n(1 (2 -LRB-) (0 Bad))\n")
        write_text("trees/test.txt", "(0 (2 8\xa01\\/2) (1 Women))\n(4 (2 ``) (4 Great))\n")
        shutil.make_archive("trees", kind, "trees")
        path = Path(f"trees.{suffix}")
        return path, prepared(scripts, "Furd", "--source", path)

    return make


def word_vectors(folder, scripts):
    path = Path("vectors.txt")
    path.write_bytes(b"3 3\nfilm 0.5 -1 2e-3\ngood 1 2 3\nbad -1 -2 -3\n")

    def read() -> None:
        wanted = {"film", "good", "bad", "x"}
        vectors = scripts.classification.preparation.vectors.read_vectors(path, wanted)
        assert vectors.keys() <= wanted
        assert all(np.isfinite(vector).all() for vector in vectors.values())

    return path, read


def translation_data(name: str):
    def make(folder, scripts):
        make_small_pairs(folder, scripts.translation)

        def read() -> None:
            data = scripts.translation.data.load_dataset("small")
            json.dumps([data.pieces.id_to_piece(number) for number in range(data.vocab)]).encode()
            for side in (data.train.src, data.train.trg, data.val.src, data.val.trg):
                assert side.values.min() >= 0 and side.values.max() < data.vocab

        return Path(f"data/small/{name}"), read

    return make


def copying_histories(folder, scripts):
    entry = dict.fromkeys(scripts.copying.models.MEASURES, 0.5)
    write_pickle("logs/x.pkl", [[{**entry, "acc": 0.25 * t} for t in range(4)] for _ in range(3)])

    def read() -> None:
        histories = scripts.copying.histories.load_histories(Path("logs/x.pkl"))
        scripts.copying.plot_copying.setting_row("x", histories)

    return Path("logs/x.pkl"), read


def run_record(folder, scripts):
    place = Path("models/run")
    records.begin_run(place, {"seed": 1, "saves": [], "data": "abc"}, False)
    records.finish_run(place, {"accuracy": 0.5})
    return place / "run.json", lambda: records.check_trained_on(place, "abc")


def checkpoint(folder, scripts):
    torch.manual_seed(0)
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    path = Path("model0")
    checkpoints.save_checkpoint(path, model)

    def read() -> None:
        checkpoints.load_checkpoint(path, other)
        for name, value in model.state_dict().items():
            assert torch.equal(value, other.state_dict()[name])

    return path, read


def training_state(folder, scripts):
    def started() -> Training:
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        optimizer = torch.optim.Adam(model.parameters())
        return Training(Path("run.state"), {"seed": 1}, model, optimizer, 2, {"losses": []})

    with started() as training:
        for _ in range(2):
            with training.update():
                training.model(torch.ones(1, 3)).sum().backward()
                training.optimizer.step()

    def read() -> None:
        with started() as training:
            assert training.step == 2 and training.notes == {"losses": []}

    return Path("run.state"), read


CASES = {
    "classification data": classification_data,
    "logs": logs,
    "csv": own_file(".csv"),
    "jsonl": own_file(".jsonl"),
    "zip": archive("zip", "zip"),
    "tar.gz": archive("tar.gz", "gztar"),
    "word vectors": word_vectors,
    "sentences": translation_data("train.bb"),
    "sentencepiece model": translation_data("small.model"),
    "histories": copying_histories,
    "run record": run_record,
    "checkpoint": checkpoint,
    "training state": training_state,
}


@pytest.mark.parametrize("examples", [20, pytest.param(500, marks=pytest.mark.faults)])
@pytest.mark.parametrize("name", CASES)
def test_corrupt_files(name, examples, classification, translation, copying, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scripts = SimpleNamespace(
        classification=classification, translation=translation, copying=copying
    )
    path, read = CASES[name](tmp_path, scripts)
    read()
    # What a message says it is about: the file, its folder, its output, or the dataset made of it.
    named = (*path.parts, path.stem, "training set", "Furd has", "mine has", "logs of")

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(corrupt_bytes(path.read_bytes()))
    def try_one(content: bytes) -> None:
        path.write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a warning would be a second line
            try:
                read()
            except InputError as error:
                assert any(word in str(error) for word in named), str(error)
                assert "\n" not in one_line(str(error))

    try_one()
