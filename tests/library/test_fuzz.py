"""Corrupt input: every file that a script reads is read correctly, or rejected in one line.

Each case makes a small file that a script reads, and a function that reads it as the script does,
up to the results. The file is then corrupted in several ways: the result must be an InputError that
names the file, or valid values. The same examples are tried each time; ``pytest -m faults`` tries
500 of each case.
"""

import gzip
import io
import json
import math
import pickle
import shutil
import tarfile
import warnings
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import make_small_set
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import JSON_VALUES, PICKLE_VALUES, corrupt_bytes, corrupt_value
from torch import nn

from attention_dynamics.analysis.inputs import summarise_inputs
from attention_dynamics.analysis.logs import Logs, published_layout, save_logs
from attention_dynamics.analysis.ragged import Ragged
from attention_dynamics.cli import InputError, one_line
from attention_dynamics.names import PERFORMANCES
from attention_dynamics.reporting.viewer import attention_page
from attention_dynamics.runs import checkpoints, configs, paths, records
from attention_dynamics.runs.training import Training
from attention_dynamics.storage.files import json_text, write_json, write_pickle, write_text
from attention_dynamics.storage.pickles import load_pickle

# --- Classification


def small_data(folder: Path, scripts: SimpleNamespace, split: str):
    make_small_set(folder, scripts.classification, 12, 6)
    write_pickle("data/w2v.pkl", {"w5": np.ones(7, np.float32), "w1": np.ones(7, np.float32)})
    return Path(f"data/small_{split}.json"), lambda: read_small_data(scripts.classification)


def read_small_data(classification: SimpleNamespace) -> None:
    dataset = classification.data.load_dataset("small")
    vocabulary = dataset.vocabulary
    assert all(type(word) is str for word in vocabulary) and len({*vocabulary}) == len(vocabulary)
    json_text(vocabulary).encode()  # a page can be written with them
    for split in (dataset.train, dataset.test):
        assert len(split) and set(split.labels.tolist()) <= {0, 1}
        assert split.ids.values.min() >= 0 and split.ids.values.max() < len(vocabulary)
        split.batch(np.arange(len(split)))
    assert all(np.isfinite(vector).all() for vector in dataset.vectors.values())


def train_data(folder, scripts):
    return small_data(folder, scripts, "train")


def kept_vectors(folder, scripts):
    _, read = small_data(folder, scripts, "train")
    return Path("data/w2v.pkl"), read


def model_config(folder, scripts):
    config = {"hidden_dim": 6, "intermediate_dim": 5, "embed_dim": 7, "dropout": 0.5}
    write_json("configs/model.json", config)

    def read() -> None:
        found = configs.read_config("configs/model.json", tuple(config))
        assert found.keys() == config.keys()
        assert 0 <= found.pop("dropout") < 1
        assert all(type(number) is int and number > 0 for number in found.values())

    return Path("configs/model.json"), read


def log_config(folder, scripts):
    entries = [
        {"name": name, "iteration": iteration, "seed": seed, "uniform": seed == 12}
        for name, seed in (("normal_A", 20), ("uniform", 12))
        for iteration in (0, 5)
    ]
    write_json("configs/small_log.json", entries)

    def read() -> None:
        for entry in configs.read_log_config("configs/small_log.json"):
            assert type(entry["iteration"]) is int and entry["iteration"] >= 0
            assert type(entry["seed"]) is int and type(entry["uniform"]) is bool
            paths.checkpoint_path(Path(entry["name"]), entry["iteration"])
            entry["name"].encode()

    return Path("configs/small_log.json"), read


def made_logs(is_pair: bool) -> Logs:
    """Logs of three runs with two iterations each; in classification of words, else of pieces."""
    rng = np.random.default_rng(0)
    src = Ragged.from_rows([np.array([1, *rng.integers(4, 9, n), 2]) for n in (3, 4, 6, 5)])
    trg = np.array([1, 0, 0, 1])
    if is_pair:
        trg = Ragged.from_rows([np.array([1, *rng.integers(4, 9, n), 2]) for n in (4, 3, 5, 3)])
    logs = Logs("small", src, trg, {"val": 3, "train": 1}, np.array([0, 1, 2, 4]))
    for name in ("normal_A", "normal_B", "uniform"):
        for t in (0, 5):
            for perf in ("test_acc", "train_acc", "val_acc"):
                logs.metas[name, t, perf] = float(rng.random())
            for kind in ("alpha", "beta", *(["grad"] if name == "normal_A" else [])):
                values = rng.random(logs.num_scores, dtype=np.float32)
                logs.arrays[name, t, kind] = -values if is_pair and kind == "beta" else values
    if is_pair:
        logs.arrays["normal_A", 5, "grad"][:] = np.nan  # Δ that was not asked for
        del logs.arrays["normal_A", 5, "grad"]
    return logs


def read_classification_logs(classification: SimpleNamespace) -> None:
    inputs = classification.baselines.load_inputs("small")
    logs, accuracy = inputs.logs, PERFORMANCES["classification"]["acc"]
    for metric in ("top 5% match", "kendall tau"):
        check_result(summarise_inputs(inputs, metric, "val", accuracy, 0))
    words = [f"w{number}" for number in range(2000)]
    attention_page(logs, words, list(logs.examples("val")), inputs.beta_sign).encode()


def check_result(result: dict) -> None:
    for key, value in result.items():
        if key.startswith("agr_") and not key.endswith(("_interval", "_iteration")):
            assert -1 <= value <= 1 or math.isnan(value)
    assert math.isfinite(result["best_perf"])


def logs_of_words(folder, scripts):
    save_logs("outputs/small_logs.pkl", made_logs(False))
    return Path("outputs/small_logs.pkl"), lambda: read_classification_logs(scripts.classification)


def published_logs_of_words(folder, scripts):
    path, read = logs_of_words(folder, scripts)
    write_pickle(path, published_layout(made_logs(False), [([1, 5, 2], 0)] * 6))
    return path, read


def embedding_baseline(folder, scripts):
    _, read = logs_of_words(folder, scripts)
    path = paths.embedding_beta_path("small", 256)
    write_pickle(path, np.linspace(-1, 1, 9, dtype=np.float32))
    return path, read


def planted_truth(folder, scripts):
    logs = made_logs(False)
    path = Path("data/small_truth.json")
    write_json(path, {"positions": {"test": [[1], [0, 2], []], "train": [[], [], [], [], [1]]}})

    def read() -> None:
        rows = scripts.classification.planted.planted_rows("small", logs)
        for row in rows:
            assert all(0 <= row[key] <= 1 for key in row if key != "iteration")

    return path, read


# --- Classification: what prepare_data reads


def prepared(scripts, *options: object):
    """A function that prepares a dataset and loads what came out, which must be accepted."""

    def read() -> None:
        args = ["--dataset", *map(str, options), "--overwrite"]
        if "--source" in args or "--train" in args:
            scripts.classification.prepare_data.main(args)
            name = args[1]
            dataset = scripts.classification.data.load_dataset(name)
            assert set(dataset.train.labels.tolist()) == {0, 1}
            json_text(dataset.vocabulary).encode()

    return read


def own_file(suffix: str, content: str):
    def make(folder, scripts):
        path = Path(f"train{suffix}")
        path.write_bytes(
            gzip.compress(content.encode()) if suffix.endswith("gz") else content.encode()
        )
        test = Path("other.csv")
        test.write_text("text,label\na film,0\ngood film,1\n")
        options = ("--text_column", "text", "--label_column", "label", "--labels", "0", "1")
        return path, prepared(scripts, "mine", "--train", path, "--test", test, *options)

    return make


CSV = 'text,label\n"a ""bad"" film, really",0\n"good\nfilm",1\nmore of it,1\nand less,0\n'
JSONL = '{"text": "a bad film", "label": 0}\n{"text": "gut \\u00e9", "label": "1", "x": [1]}\n'
TREES = {
    "train": "(3 (2 It) (4 shines))\n(1 (2 -LRB-) (0 Bad))\n(2 (2 A) (2 film))\n",
    "test": "(0 (2 8\xa01\\/2) (1 Women))\n(4 (2 ``) (4 Great))\n",
}


def sst_trees(folder, scripts):
    for split, text in TREES.items():
        write_text(f"trees/{split}.txt", text)
    return Path("trees/train.txt"), prepared(scripts, "Furd", "--source", "trees")


def sms(folder, scripts):
    write_text(
        "SMSSpamCollection", "ham\tOk lar...\nspam\tWIN £1,000 now!\nham\tno\nspam\tyes\n" * 3
    )
    path = Path("SMSSpamCollection")
    return path, prepared(scripts, "SMS", "--source", path)


def folder_source(dataset: str, corrupt: str, files: dict[str, str]):
    def make(folder, scripts):
        for name, text in files.items():
            write_text(Path("raw") / name, text)
        return Path("raw") / corrupt, prepared(scripts, dataset, "--source", "raw")

    return make


POST = "From: x\nSubject: y\n\n{} is on the field.\nIt is a game.\n"


def archive(kind: str):
    def make(folder, scripts):
        path = Path(f"trees.{kind}")
        if kind == "zip":
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                for split, text in TREES.items():
                    archive.writestr(f"trees/{split}.txt", text)
        else:
            mode = {"tar": "w", "tar.gz": "w:gz", "tar.xz": "w:xz", "tar.bz2": "w:bz2"}[kind]
            with tarfile.open(path, mode) as archive:
                for split, text in TREES.items():
                    info = tarfile.TarInfo(f"trees/{split}.txt")
                    info.size = len(text.encode())
                    archive.addfile(info, io.BytesIO(text.encode()))
        return path, prepared(scripts, "Furd", "--source", path)

    return make


def word_vectors(suffix: str):
    def make(folder, scripts):
        content = b"3 3\nfilm 0.5 -1 2e-3\ngood 1 2 3\nbad -1 -2 -3\n"
        path = Path(f"vectors.{suffix}")
        if suffix == "zip":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("vectors.txt", content)
        else:
            path.write_bytes(gzip.compress(content) if suffix == "gz" else content)

        def read() -> None:
            wanted = {"film", "good", "bad", "x"}
            vectors = scripts.classification.preparation.vectors.read_vectors(path, wanted)
            assert vectors.keys() <= wanted
            assert len({len(vector) for vector in vectors.values()}) <= 1
            for vector in vectors.values():
                assert vector.dtype == np.float32 and np.isfinite(vector).all()

        return path, read

    return make


# --- Translation

SRC = ["lima", "kono", "sepu", "taro", "wibe", "duga", "rofe", "mizu", "hacu", "peno"]
TRG = ["xad", "yob", "zet", "vul", "jik", "qem", "wor", "gat", "nis", "fup"]


def small_pairs(folder, scripts) -> list[Path]:
    rng = np.random.default_rng(0)
    paths = []
    for split, size in (("train", 40), ("val", 8)):
        places = [rng.integers(0, 10, rng.integers(1, 8)) for _ in range(size)]
        for side, words in (("aa", SRC), ("bb", TRG)):
            paths.append(Path(f"data/small/{split}.{side}"))
            write_text(paths[-1], "".join(" ".join(words[i] for i in row) + "\n" for row in places))
    write_json("data/small/about.json", {"languages": ["aa", "bb"]})
    shutil.copy(pieces_of(scripts), "data/small/small.model")
    return paths


def pieces_of(scripts) -> Path:
    path = scripts.folder / "small.model"
    if not path.exists():
        pairs, _ = scripts.translation.data.read_pairs(
            scripts.translation.data.layout_of("small"), "train"
        )
        scripts.translation.data.train_pieces(path, pairs, 45)
    return path


def read_small_pairs(translation: SimpleNamespace, dataset: str = "small") -> None:
    data = translation.data.load_dataset(dataset)
    names = [data.pieces.id_to_piece(number) for number in range(data.vocab)]
    json_text(names).encode()
    for pairs in (data.train, data.val):
        assert len(pairs) and len(pairs.src) == len(pairs.trg) == len(pairs.references)
        for side in (pairs.src, pairs.trg):
            assert side.values.min() >= 0 and side.values.max() < data.vocab
            assert (side.values[side.offsets[:-1]] == translation.data.BOS).all()
        pairs.batch(np.arange(len(pairs)))


def sentence_lines(folder, scripts):
    paths = small_pairs(folder, scripts)
    return paths[1], lambda: read_small_pairs(scripts.translation)


def data_record(folder, scripts):
    small_pairs(folder, scripts)
    return Path("data/small/about.json"), lambda: read_small_pairs(scripts.translation)


def sentence_pieces(folder, scripts):
    small_pairs(folder, scripts)
    return Path("data/small/small.model"), lambda: read_small_pairs(scripts.translation)


def sentence_lists(folder, scripts):
    lines = {path: path.read_text().splitlines() for path in small_pairs(folder, scripts)}
    place = Path("data/news-commentary-v14-en-nl")
    for path, sentences in lines.items():
        ending = {"aa": "src", "bb": "trg"}[path.suffix[1:]]
        write_json(place / f"{path.stem}.{ending}", sentences[:6], None)
    shutil.copy("data/small/small.model", place / f"{place.name}.model")
    name = "news_commentary_v14_en_nl"
    return place / "train.src", lambda: read_small_pairs(scripts.translation, name)


def given_pair(folder, scripts):
    paths = small_pairs(folder, scripts)

    def read() -> None:
        scripts.translation.prepare_data.main(
            ["--dataset", "mine", "--train", str(paths[0]), str(paths[1]), "--val_size", "5",
             "--src_lang", "aa", "--trg_lang", "bb", "--vocab_size", "40", "--overwrite"]
        )  # fmt: skip
        read_small_pairs(scripts.translation, "mine")

    return paths[0], read


def segment_file(folder, scripts):
    sides = small_pairs(folder, scripts)[2:]
    for path in sides:
        segments = [
            f'<seg id="{n}"> {line} </seg>\n'
            for n, line in enumerate(path.read_text().splitlines(), 1)
        ]
        text = f'<mteval>\n<doc docid="69" genre="x">\n{"".join(segments)}</doc>\n</mteval>\n'
        write_text(f"{path}.xml", text)
    paths = [f"{path}.xml" for path in sides]

    def read() -> None:
        split = scripts.translation.preparation.sources.read_files(paths, "--val")
        assert all(src and trg for src, trg in split.pairs)

    return Path(paths[0]), read


def read_translation_logs(translation: SimpleNamespace) -> None:
    inputs, accuracy = (
        translation.baselines.load_inputs("small"),
        PERFORMANCES["translation"]["acc"],
    )
    for metric in ("top 5% match", "kendall tau"):
        check_result(summarise_inputs(inputs, metric, "val", accuracy, 0))
    pieces = [f"▁w{number}" for number in range(2000)]
    attention_page(inputs.logs, pieces, list(inputs.logs.examples("val"))).encode()


def logs_of_pieces(folder, scripts):
    save_logs("outputs/small_logs.pkl", made_logs(True))
    return Path("outputs/small_logs.pkl"), lambda: read_translation_logs(scripts.translation)


def published_logs_of_pieces(folder, scripts):
    path, read = logs_of_pieces(folder, scripts)
    write_pickle(path, published_layout(made_logs(True), [([1, 5, 2], [1, 4, 2])] * 6))
    return path, read


def embedding_table(folder, scripts):
    _, read = logs_of_pieces(folder, scripts)
    path = paths.translation_beta_path("small", 256)
    write_pickle(path, np.linspace(-1, 0, 81, dtype=np.float32).reshape(9, 9))
    return path, read


def ibm1_table(folder, scripts):
    _, read = logs_of_pieces(folder, scripts)
    path = paths.ibm1_beta_path("small")
    dense = np.where(np.arange(81).reshape(9, 9) % 3, 0.1, 0)
    rows, columns = np.nonzero(dense)
    indptr = np.searchsorted(rows, np.arange(10))
    content = {
        "data": dense[rows, columns], "indices": columns.astype(np.int32),
        "indptr": indptr.astype(np.int32), "shape": (9, 9),
    }  # fmt: skip
    write_pickle(path, content)
    return path, read


def word_alignment(folder, scripts):
    small_pairs(folder, scripts)
    data = scripts.translation.data.load_dataset("small")
    chosen = data.val.take(range(3))
    rng = np.random.default_rng(0)
    logs = Logs("small", chosen.src, chosen.trg, {"val": 3, "train": 0}, np.arange(3))
    for name in ("normal_A", "uniform"):
        for kind in ("alpha", "beta"):
            logs.arrays[name, 0, kind] = rng.random(logs.num_scores, dtype=np.float32)
    count = [len(text.split()) for text in chosen.references]
    path = Path("data/small/truth.json")
    links = [[[n, n] for n in range(number)] for number in count]
    write_json(path, {"words": {"val": [[n, n] for n in count]}, "links": {"val": links}})

    def read() -> None:
        for row in scripts.translation.alignment.alignment_rows("small", logs, data.pieces):
            assert all(0 <= row[key] <= 1 for key in row if key != "iteration")
        scripts.translation.alignment.true_cells("small", logs, data.pieces)

    return path, read


# --- Sequence copying


def copying_histories(folder, scripts):
    entry = dict.fromkeys(scripts.copying.models.MEASURES, 0.5)
    write_pickle("logs/x.pkl", [[{**entry, "acc": 0.25 * t} for t in range(4)] for _ in range(3)])

    def read() -> None:
        histories = scripts.copying.histories.load_histories(Path("logs/x.pkl"))
        row = scripts.copying.plot_copying.setting_row("x", histories)
        assert 0 <= row["mean acc at the end"] <= 1
        for line in scripts.copying.plot_copying.curve_rows("x", histories):
            assert all(0 <= line[key] <= 1 for key in ("acc", "attn_acc", "beta_acc"))

    return Path("logs/x.pkl"), read


# --- Runs


def run_record(folder, scripts):
    place = Path("models/run")
    settings = {"seed": 1, "steps": 10, "saves": [0, 9], "data": "abc"}
    records.begin_run(place, settings, False)
    records.finish_run(place, {"accuracy": 0.5})
    whole = (place / "run.json").read_bytes()

    def read() -> None:
        records.check_trained_on(place, "abc")
        for step in (0, 9):
            (place / f"model{step}").write_bytes(b"")
        try:
            records.begin_run(place, settings, False)
        finally:
            if not (place / "run.json").exists():
                (place / "run.json").write_bytes(whole)

    return place / "run.json", read


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
    torch.manual_seed(0)
    run = {"seed": 1}

    def started() -> Training:
        model = nn.Linear(3, 2)
        optimizer = torch.optim.Adam(model.parameters())
        return Training(Path("run.state"), run, model, optimizer, 2, {"losses": []})

    with started() as training:
        for _ in range(2):
            with training.update():
                loss = training.check_finite(training.model(torch.ones(1, 3)).sum())
                loss.backward()
                training.optimizer.step()

    def read() -> None:
        with started() as training:
            assert type(training.step) is int and training.step >= 0
            assert type(training.notes) is dict
            with training.update():
                training.optimizer.step()

    return Path("run.state"), read


CASES = {
    "train data": train_data,
    "kept vectors": kept_vectors,
    "model config": model_config,
    "log config": log_config,
    "logs of words": logs_of_words,
    "published logs of words": published_logs_of_words,
    "embedding baseline": embedding_baseline,
    "planted truth": planted_truth,
    "csv": own_file(".csv", CSV),
    "jsonl": own_file(".jsonl", JSONL),
    "trees": sst_trees,
    "sms": sms,
    "newsgroups": folder_source(
        "Newsgroups", "20news-bydate-train/rec.sport.hockey/1",
        {f"20news-bydate-{split}/rec.sport.{group}/{n}": POST.format(group)
         for split in ("train", "test") for group in ("hockey", "baseball") for n in range(2)},
    ),
    "zip": archive("zip"),
    "tar.gz": archive("tar.gz"),
    "word vectors": word_vectors("txt"),
    "sentence lines": sentence_lines,
    "sentence lists": sentence_lists,
    "data record": data_record,
    "sentence pieces": sentence_pieces,
    "given pair": given_pair,
    "segments": segment_file,
    "published logs of pieces": published_logs_of_pieces,
    "embedding table": embedding_table,
    "ibm1 table": ibm1_table,
    "word alignment": word_alignment,
    "histories": copying_histories,
    "run record": run_record,
    "checkpoint": checkpoint,
    "training state": training_state,
}  # fmt: skip


@pytest.fixture(scope="session")
def scripts(classification, translation, copying, tmp_path_factory) -> SimpleNamespace:
    """The modules of all folders, and a folder for what is made once."""
    return SimpleNamespace(
        classification=classification,
        translation=translation,
        copying=copying,
        folder=tmp_path_factory.mktemp("fuzz"),
    )


def try_all(case, folder, scripts, corrupt, examples: int) -> None:
    """Read the file of ``case``, then ``examples`` corrupt ones that ``corrupt`` makes of it."""
    path, read = case(folder, scripts)
    read()
    whole = path.read_bytes()
    strategy = corrupt(path, whole)

    # What a message says it is about: the file, its folder, its output, or the dataset made of it.
    where = (
        *path.parts,
        path.stem,
        "training set",
        "SMS has",
        "Furd has",
        "mine has",
        "Yelp has",
        "logs of",
    )

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def try_one(content: bytes) -> None:
        path.write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a warning would be a second line
            try:
                read()
            except InputError as error:
                assert any(word in str(error) for word in where), str(error)
                assert "\n" not in one_line(str(error))

    try:
        try_one()
    finally:
        path.write_bytes(whole)


def bytes_of(path: Path, whole: bytes):
    return corrupt_bytes(whole)


def values_of(path: Path, whole: bytes):
    """Files of the same format with another value somewhere."""
    if path.suffix == ".pkl":
        changed = corrupt_value(load_pickle(path), PICKLE_VALUES)
        return st.builds(pickle.dumps, changed, st.integers(2, 5))
    if whole[:1] in (b"[", b"{"):  # the lists of sentences are called train.src
        return corrupt_value(json.loads(whole), JSON_VALUES).map(lambda v: json.dumps(v).encode())
    return corrupt_value(torch.load(path, weights_only=True), JSON_VALUES).map(saved)


def saved(value: object) -> bytes:
    """The bytes that torch saves ``value`` as."""
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


# The files that have a format besides bytes.
WITH_VALUES = [
    "train data", "kept vectors", "model config", "log config", "logs of words",
    "published logs of words", "embedding baseline",
    "planted truth", "sentence lists", "data record",
    "published logs of pieces", "embedding table", "ibm1 table", "word alignment",
    "run record",
]  # fmt: skip


AMOUNTS = [20, pytest.param(500, marks=pytest.mark.faults)]


@pytest.mark.parametrize("examples", AMOUNTS)
@pytest.mark.parametrize("name", CASES)
def test_corrupt_bytes(name, examples, scripts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try_all(CASES[name], tmp_path, scripts, bytes_of, examples)


@pytest.mark.parametrize("examples", AMOUNTS)
@pytest.mark.parametrize("name", WITH_VALUES)
def test_corrupt_values(name, examples, scripts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try_all(CASES[name], tmp_path, scripts, values_of, examples)
