"""Untrusted, corrupt or unusual input: each file is read correctly, or rejected in one line.

Every file goes to the loader of the script that reads it.
"""

import html
import os
import pickle
import re
import stat
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from attention_dynamics.analysis.logs import Logs, load_logs
from attention_dynamics.analysis.ragged import Ragged
from attention_dynamics.cli import InputError, one_line
from attention_dynamics.reporting.viewer import attention_page
from attention_dynamics.runs.checkpoints import load_checkpoint, save_checkpoint
from attention_dynamics.runs.records import read_run
from attention_dynamics.storage import archives
from attention_dynamics.storage.files import read_json, write_text
from attention_dynamics.storage.pickles import load_pickle


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(function, *args) -> str:
    """The line with which ``function`` refuses."""
    with pytest.raises(InputError) as refused:
        function(*args)
    line = str(refused.value)
    assert one_line(line) == line
    return line


# --- Pickles


class Hostile:
    """Makes a folder when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("harm",)


PICKLES = {
    "code, protocol 0": (pickle.dumps([Hostile()], 0), "asks for .*mkdir, which is not plain data"),
    "code, protocol 5": (pickle.dumps([Hostile()], 5), "asks for .*mkdir, which is not plain data"),
    "eval": (b"\x80\x02cbuiltins\neval\n(X\x01\0\0\x001tR.", "asks for builtins.eval"),
    "a dotted name": (b"\x80\x04\x8c\x05numpy\x8c\x0cndarray.dump\x93.", "numpy.ndarray.dump"),
    "text": (b"name,value\na,1\n", "corrupt or not a pickle"),
    "another value": (pickle.dumps([1]), "does not hold the logs"),
}


@pytest.mark.parametrize("name", PICKLES)
def test_pickles(name):
    content, message = PICKLES[name]
    Path("x_logs.pkl").write_bytes(content)
    line = refusal(load_logs, "x_logs.pkl")
    assert "x_logs.pkl" in line
    with pytest.raises(InputError, match=message):
        load_logs("x_logs.pkl")
    assert not Path("harm").exists()


# --- JSON

RUN = '{"settings": {"seed": 1}, "finished": null}'
JSONS = {
    "a byte-order mark": (b"\xef\xbb\xbf" + RUN.encode(), None),
    "CRLF": (RUN.replace(" ", "\r\n").encode(), None),
    "UTF-16": (RUN.encode("utf-16"), "is not UTF-8 text: byte 0; convert it from its encoding"),
    "NUL bytes": (RUN.encode() + b"\0" * 4096, "malformed JSON at line 1 column 44"),
    "nothing": (b"", "malformed JSON at line 1 column 1"),
    "another value": (b"[1]", "is not a run record"),
}


@pytest.mark.parametrize("name", JSONS)
def test_json(name):
    content, message = JSONS[name]
    Path("run.json").write_bytes(content)
    if message is None:
        assert read_run(Path("."))["settings"] == {"seed": 1}
    else:
        line = refusal(read_run, Path("."))
        assert "run.json" in line and message in line


# --- Checkpoints

LOADERS = {
    "pickle": load_pickle,
    "json": read_json,
    "checkpoint": lambda path: load_checkpoint(path, nn.Linear(2, 2)),
}


@pytest.mark.parametrize("name", LOADERS)
def test_loaders_reject_what_is_not_a_file(name):
    Path("there").mkdir()
    assert "there is a folder, not a file" in refusal(LOADERS[name], Path("there"))
    assert "missing does not exist" in refusal(LOADERS[name], Path("missing"))


@pytest.mark.parametrize("mask", [1, 0x10])
def test_load_checkpoint_accepts_no_flipped_bit_of_a_weight(mask):
    """torch verifies no checksum, and skips a tensor whose entry is marked as a folder (0x10)."""
    model, other = nn.Linear(4, 4), nn.Linear(4, 4)
    save_checkpoint(Path("model0"), model)
    whole = Path("model0").read_bytes()
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= mask
        Path("model0").write_bytes(changed)
        try:
            load_checkpoint(Path("model0"), other)
        except InputError as error:
            assert "model0" in str(error)
        else:
            assert model.weight.equal(other.weight) and model.bias.equal(other.bias)


def test_load_checkpoint_rejects_other_things():
    save_checkpoint(Path("model0"), nn.Linear(4, 4))
    with zipfile.ZipFile("model0") as stored, zipfile.ZipFile("bomb", "w", 8) as packed:
        for member in stored.infolist():
            packed.writestr(member.filename, stored.read(member))
    Path("code").write_bytes(pickle.dumps(Hostile()))
    torch.save({"weight": Hostile()}, "nested")
    whole = Path("model0").read_bytes()
    for end in range(0, len(whole), 101):
        Path(f"cut{end}").write_bytes(whole[:end])
    for name in ("bomb", "code", "nested", *map(str, Path().glob("cut*"))):
        assert f"{name} is corrupt" in refusal(load_checkpoint, Path(name), nn.Linear(4, 4))
    assert not Path("harm").exists()


# --- Tables and lines

HEADER = "text,label\n"
ROWS = "good,1\nbad,0\n"
TABLES = {
    "a byte-order mark": (b"\xef\xbb\xbf" + (HEADER + ROWS).encode(), None),
    "CRLF": ((HEADER + ROWS).replace("\n", "\r\n").encode(), None),
    "empty lines": (f"\n{HEADER}\n\n{ROWS}\n".encode(), None),
    "nothing": (b"", "train.csv holds no row"),
    "latin-1": (f"{HEADER}caf\xe9,1\n".encode("latin-1"), "not UTF-8 text: line 2, byte 14"),
    "UTF-16": ((HEADER + ROWS).encode("utf-16"), "is not UTF-8 text: line 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_tables(name, classification):
    content, message = TABLES[name]
    Path("train.csv").write_bytes(content)
    Path("test.csv").write_text(HEADER + ROWS)
    args = ["--dataset", "mine", "--train", "train.csv", "--test", "test.csv"]
    if message is None:
        classification.prepare_data.main(args)
        data = classification.data.load_dataset("mine")
        assert data.train.labels.tolist() == [1, 0]
        words = read_json("data/mine_train.json")["vocab"]
        assert sorted(words) == ["bad", "good"]
    else:
        line = refusal(classification.prepare_data.main, args)
        assert "train.csv" in line and message in line
        assert not Path("data").exists()


def test_json_lines(classification):
    for content, message in (
        ('{"text": "a", "label": 1}\n[2]\n', "line 2 is not a JSON object"),
        ('{"text": NaN, "label": 1}\n', "line 1: text is nan, not a text"),
    ):
        write_text("train.jsonl", content)
        args = ["--dataset", "mine", "--train", "train.jsonl", "--test", "train.jsonl"]
        assert f"train.jsonl {message}" in refusal(classification.prepare_data.main, args)


# --- Archives

TREE = b"(3 (2 It) (4 shines))\n(1 (2 It) (1 fails))\n"


def test_a_link_in_an_archive_is_not_followed(classification):
    Path("test.txt").write_bytes(TREE)
    with tarfile.open("x.tar.gz", "w:gz") as archive:
        link = tarfile.TarInfo("train.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        archive.add("test.txt")
    with zipfile.ZipFile("x.zip", "w") as archive:
        link = zipfile.ZipInfo("train.txt")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
        archive.write("test.txt")
    for path in ("x.tar.gz", "x.zip"):
        args = ["--dataset", "Furd", "--source", path]
        assert "does not look like Furd" in refusal(classification.prepare_data.main, args)


def test_an_archive_that_fills_the_memory(classification, monkeypatch):
    with zipfile.ZipFile("x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("train.txt", TREE * 200_000)
        archive.writestr("test.txt", TREE)
    monkeypatch.setattr(archives, "MOST_BYTES", 10**6)
    line = refusal(classification.prepare_data.main, ["--dataset", "Furd", "--source", "x.zip"])
    assert "x.zip" in line and "holds more than 1,000,000 bytes of data" in line


# --- Pages

ATTACK = (
    "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "' onclick='alert(1)",
    "\"><svg onload=alert(1)>", "{{ 7 * 7 }}", "</span></div><!--", "\u2028&lt;script&gt;", "]]>",
)  # fmt: skip


@pytest.mark.parametrize("is_pair", [False, True])
def test_tokens_are_text_on_the_pages(is_pair):
    """A page of hostile tokens has the tags of one of plain tokens, and shows them as they are."""
    ids = Ragged.from_rows([np.array([1, *range(4, 4 + len(ATTACK)), 2])])
    trg = ids if is_pair else np.array([1])
    logs = Logs("small", ids, trg, {"val": 1, "train": 0}, np.array([0]))
    for name in ("normal_A", "uniform"):
        for kind in ("alpha", "beta"):
            logs.arrays[name, 0, kind] = np.linspace(0.1, 0.2, logs.num_scores, dtype=np.float32)
    tags = []
    for words in (ATTACK, [f"word{n}" for n in range(len(ATTACK))]):
        vocabulary = ["<pad>", "<s>", "</s>", "<unk>", *words]
        if is_pair:
            page = attention_page(logs, [f"▁{word}" for word in vocabulary], [0])
        else:
            page = attention_page(logs, vocabulary, [0], np.ones(logs.num_scores))
        assert all(word in html.unescape(page) for word in words)
        tags.append(re.findall(r"</?\w+", page))
    assert tags[0] == tags[1]
