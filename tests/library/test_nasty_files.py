"""Untrusted, corrupt or unusual input: each file is read correctly, or rejected in one line.

Every file goes to the loader of the script that reads it.
"""

import html.parser
import io
import json
import os
import pickle
import stat
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import make_small_set
from torch import nn

from attention_dynamics.analysis.logs import Logs, load_logs
from attention_dynamics.analysis.ragged import Ragged
from attention_dynamics.cli import InputError, one_line
from attention_dynamics.reporting.viewer import attention_page
from attention_dynamics.runs.checkpoints import load_checkpoint, save_checkpoint
from attention_dynamics.runs.configs import read_log_config
from attention_dynamics.runs.records import read_run
from attention_dynamics.storage import archives
from attention_dynamics.storage.files import read_json, write_json, write_text
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


def asks_for(module: str, name: str, *args: bytes) -> bytes:
    """A pickle that calls ``module.name`` with pickled arguments, and returns what comes out."""
    return f"\x80\x02c{module}\n{name}\n(".encode("latin-1") + b"".join(args) + b"tR."


PICKLES = {
    **{
        f"code, protocol {protocol}": (
            pickle.dumps([Hostile()], protocol),
            "asks for .*mkdir, which is not plain data",
        )
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    },
    "code by INST": (b"(S'harm'\nios\nmkdir\n.", "asks for os.mkdir, which is not plain data"),
    "eval": (asks_for("builtins", "eval", b"X\x01\0\0\x001"), "asks for builtins.eval"),
    "getattr": (asks_for("builtins", "getattr", b"NX\x01\0\0\0x"), "asks for builtins.getattr"),
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


@pytest.mark.parametrize("protocol", range(6))
def test_arrays_of_another_byte_order_keep_their_values(protocol):
    value = {"a": np.arange(5, dtype=">f4"), "b": np.arange(6, dtype=">i8").reshape(2, 3).T}
    Path("x.pkl").write_bytes(pickle.dumps(value, protocol))
    back = load_pickle("x.pkl")
    for key, array in value.items():
        np.testing.assert_array_equal(back[key], array)


# --- JSON

RUN = '{"settings": {"seed": 1}, "finished": null}'
JSONS = {
    "a byte-order mark": (b"\xef\xbb\xbf" + RUN.encode(), None),
    "CRLF": (RUN.replace(" ", "\r\n").encode(), None),
    "UTF-16": (RUN.encode("utf-16"), "is not UTF-8 text (byte 0)"),
    "latin-1": ('{"settings": {"é": 1}}'.encode("latin-1"), "is not UTF-8 text (byte 15)"),
    "NUL bytes": (RUN.encode() + b"\0" * 4096, "malformed JSON at line 1 column 44"),
    "nothing": (b"", "malformed JSON at line 1 column 1"),
    "a million lists": (b"[" * 10**6, "cannot be read"),
    "a number of 5,000 digits": (b'{"settings": ' + b"1" * 5000 + b"}", "Exceeds the limit"),
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


DATA = {
    "a label NaN": ("label", float("nan"), '"XY" entry 1 has the label nan'),
    "a label 1e400": ("label", float("inf"), '"XY" entry 1 has the label inf'),
    "a label true": ("label", True, '"XY" entry 1 has the label True'),
    "a huge id": ("id", 10**30, "a word index too large"),
    "an id beyond the words": ("id", 40, "the word index 40, but the vocabulary"),
    "a negative id": ("id", -1, "the word index -1"),
    "an id 1.0": ("id", 1.0, "a word index that is not an integer"),
    "half a surrogate pair": ("word", "a\ud800", "a lone surrogate"),
    "a word None": ("word", None, "must be a list of words"),
}


@pytest.mark.parametrize("name", DATA)
def test_data_files(name, classification):
    where, value, message = DATA[name]
    make_small_set(Path("."), classification, 4, 4)
    content = read_json("data/small_train.json")
    if where == "label":
        content["XY"][1][1] = value
    elif where == "id":
        content["XY"][1][0][0] = value
    else:
        content["vocab"][3] = value
    Path("data/small_train.json").write_text(json.dumps(content))
    line = refusal(classification.data.load_dataset, "small")
    assert "data/small_train.json" in line and message in line


def test_a_value_too_long_for_a_line_is_shortened():
    write_json("log.json", [{"name": ["x" * 10**6], "iteration": 0, "seed": 0, "uniform": True}])
    with pytest.raises(InputError) as refused:
        read_log_config("log.json")
    line = one_line(str(refused.value))
    assert line.startswith("log config log.json: entry 0: name must be str, not ['xxx")
    assert len(line) < 40_000


# --- What is no file

LOADERS = {
    "logs": load_logs,
    "pickle": load_pickle,
    "json": read_json,
    "checkpoint": lambda path: load_checkpoint(path, nn.Linear(2, 2)),
}


@pytest.mark.parametrize("name", LOADERS)
def test_loaders_reject_what_is_not_a_file(name):
    Path("there").mkdir()
    load = LOADERS[name]
    assert "there is a folder, not a file" in refusal(load, Path("there"))
    assert "missing does not exist" in refusal(load, Path("missing"))


# --- Checkpoints


def test_checkpoints_with_a_changed_byte():
    """torch does not verify the checksums; a changed weight would pass."""
    model = nn.Linear(4, 4)
    save_checkpoint(Path("model0"), model)
    whole = Path("model0").read_bytes()
    place = whole.index(model.weight.detach().numpy().tobytes()[:16]) + 3
    for bit in (0, 7):
        changed = bytearray(whole)
        changed[place] ^= 1 << bit
        Path("model0").write_bytes(changed)
        assert "model0 is corrupt" in refusal(load_checkpoint, Path("model0"), nn.Linear(4, 4))


def test_checkpoints_that_are_compressed():
    """A few bytes could be unpacked to any number of them."""
    save_checkpoint(Path("model0"), nn.Linear(4, 4))
    with zipfile.ZipFile("model0") as stored, zipfile.ZipFile("bomb", "w", 8) as packed:
        for member in stored.infolist():
            packed.writestr(member.filename, stored.read(member))
    assert "bomb is corrupt" in refusal(load_checkpoint, Path("bomb"), nn.Linear(4, 4))


def test_checkpoints_of_other_things():
    for name, content in (
        ("code", pickle.dumps(Hostile())), ("text", b"hello"), ("none", b""),
        ("zip", b"PK\x05\x06" + bytes(18)),
    ):  # fmt: skip
        Path(name).write_bytes(content)
        assert f"{name} is corrupt" in refusal(load_checkpoint, Path(name), nn.Linear(4, 4))
    torch.save({"weight": Hostile()}, "nested")
    assert "nested is corrupt" in refusal(load_checkpoint, Path("nested"), nn.Linear(4, 4))
    assert not Path("harm").exists()


# --- Tables and lines

HEADER = "text,label\n"
ROWS = "good,1\nbad,0\n"
TABLES = {
    "a byte-order mark": (b"\xef\xbb\xbf" + (HEADER + ROWS).encode(), None),
    "CRLF": ((HEADER + ROWS).replace("\n", "\r\n").encode(), None),
    "no end of the last line": ((HEADER + ROWS).encode()[:-1], None),
    "NUL bytes in a text": (f"{HEADER}\0good\0,1\nbad,0\n".encode(), None),
    "empty lines": (f"\n{HEADER}\n\n{ROWS}\n".encode(), None),
    "a line of 1e6 characters": (f"{HEADER}{'good ' * 200_000},1\nbad,0\n".encode(), None),
    "nothing": (b"", "train.csv holds no row"),
    "a header alone": (HEADER.encode(), "train.csv holds no row"),
    "latin-1": (f"{HEADER}caf\xe9,1\n".encode("latin-1"), "not UTF-8 text: line 2, byte 14"),
    "UTF-16": ((HEADER + ROWS).encode("utf-16"), "is not UTF-8 text: line 1"),
    "the header twice": ((HEADER + ROWS + HEADER).encode(), "line 4 has a third label"),
    "a quote that never ends": (f'{HEADER}"good,1\nbad,0\n'.encode(), "malformed CSV"),
    "a field too many": (f"{HEADER}good, old,1\nbad,0\n".encode(), "line 2 has 3 field(s)"),
    "a label NaN": (f"{HEADER}good,nan\nbad,0\n".encode(), "line 2 has no label"),
    "a third label": (f"{HEADER}{ROWS}so,2\n".encode(), "line 4 has a third label"),
    "an archive": (b"PK\x03\x04" + bytes(99), "has no column 'text'"),
    "a line that fills the memory": (bytes(70 << 20), "line 1 is longer than 67,108,864 bytes"),
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
        ('{"text": "a", "label": ' + "1" * 5000 + "}\n", "line 1 cannot be read: Exceeds"),
        ("[" * 10**6, "line 1 cannot be read"),
        ('{"text": NaN, "label": 1}\n', "line 1: text is nan, not a text"),
        ('{"text": "a", "label": {}}\n{"text": "b", "label": []}\n', "label '\\[\\]' is 0|only"),
    ):
        write_text("train.jsonl", content)
        args = ["--dataset", "mine", "--train", "train.jsonl", "--test", "train.jsonl"]
        if "is 0" in message:
            classification.prepare_data.main(args)  # any two values are labels
            continue
        with pytest.raises(InputError, match=f"train.jsonl {message}"):
            classification.prepare_data.main(args)


# --- Archives

TREE = b"(3 (2 It) (4 shines))\n(1 (2 It) (1 fails))\n"


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    info.size = len(TREE) if kind == tarfile.REGTYPE else 0
    return info


def tar_of(path: str, *members: tarfile.TarInfo) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for info in members:
            archive.addfile(info, io.BytesIO(TREE) if info.isreg() else None)


TRAIN, TEST = (member(f"trees/{split}.txt") for split in ("train", "test"))
PASSED_OVER = {
    "a link": member("trees/train.txt.bak", tarfile.SYMTYPE, "/etc/passwd"),
    "a hard link": member("trees/dev.txt", tarfile.LNKTYPE, "/etc/passwd"),
    "a device": member("trees/dev", tarfile.CHRTYPE),
    "a pipe": member("trees/pipe", tarfile.FIFOTYPE),
}


@pytest.mark.parametrize("name", PASSED_OVER)
def test_archives_with_what_is_no_file(name, classification):
    tar_of("x.tar.gz", TRAIN, TEST, PASSED_OVER[name])
    classification.prepare_data.main(["--dataset", "Furd", "--source", "x.tar.gz"])
    assert sorted(os.listdir()) == ["data", "x.tar.gz"]
    assert read_json("data/Furd_train.json")["vocab"] == ["it", "shines", "fails"]


def test_a_link_in_place_of_a_file(classification):
    tar_of("x.tar.gz", TEST, member("trees/train.txt", tarfile.SYMTYPE, "/etc/passwd"))
    with zipfile.ZipFile("x.zip", "w") as archive:
        archive.writestr("trees/test.txt", TREE)
        link = zipfile.ZipInfo("trees/train.txt")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    for path in ("x.tar.gz", "x.zip"):
        args = ["--dataset", "Furd", "--source", path]
        assert "does not look like Furd" in refusal(classification.prepare_data.main, args)


def huge_zip() -> None:
    with zipfile.ZipFile("x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("test.txt", TREE)
        with archive.open("train.txt", "w") as stream:
            for _ in range(200):
                stream.write(TREE * 1000)


def sparse_file() -> None:
    """512 bytes that say to be a file of an exabyte of zeros."""
    info = member("trees/train.txt")
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[483:495] = b"\x80\0\0\0\x0f\xff\xff\xff\xff\xff\xff\xff"  # the size unpacked
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    Path("x.tar").write_bytes(
        bytes(header) + TREE.ljust(512, b"\0") + TEST.tobuf() + TREE.ljust(1536, b"\0")
    )


BOMBS = {
    "a zip": (huge_zip, "x.zip", "holds more than 1,000,000 bytes of data"),
    "a sparse file": (sparse_file, "x.tar", "holds more than 1,000,000 bytes of data"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_archives_that_fill_the_memory(name, classification, monkeypatch):
    make, path, message = BOMBS[name]
    make()
    monkeypatch.setattr(archives, "MOST_BYTES", 10**6)
    line = refusal(classification.prepare_data.main, ["--dataset", "Furd", "--source", path])
    assert path in line and message in line


def test_archives_of_a_compression_that_there_is_not(classification):
    with zipfile.ZipFile("x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for split in ("train", "test"):
            archive.writestr(f"{split}.txt", TREE)
    content = Path("x.zip").read_bytes().replace(b"\x14\0\0\0\x08\0", b"\x14\0\0\0\x63\0")
    Path("x.zip").write_bytes(content)
    line = refusal(classification.prepare_data.main, ["--dataset", "Furd", "--source", "x.zip"])
    assert "x.zip" in line and "compression" in line


# --- Pages

ATTACK = (
    "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>",
    "\"><svg onload=alert(1)>", "' onclick='alert(1)", "{{ 7 * 7 }}",
    "</span></div><!--", "\u2028&lt;script&gt;", "]]>",
)  # fmt: skip


class Tags(html.parser.HTMLParser):
    """The tags of a page with the names of their attributes, and its text."""

    def __init__(self, page: str):
        super().__init__()
        self.tags, self.text = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, [name for name, _ in attrs]))

    def handle_data(self, data):
        self.text.append(data)


def page_logs(is_pair: bool) -> Logs:
    ids = np.array([1, *range(4, 4 + len(ATTACK)), 2])
    trg = Ragged.from_rows([ids]) if is_pair else np.array([1])
    logs = Logs("small", Ragged.from_rows([ids]), trg, {"val": 1, "train": 0}, np.array([0]))
    for name in ("normal_A", "uniform"):
        for kind in ("alpha", "beta"):
            logs.arrays[name, 0, kind] = np.linspace(0.1, 0.2, logs.num_scores, dtype=np.float32)
    return logs


@pytest.mark.parametrize("is_pair", [False, True])
def test_tokens_are_text_on_the_pages(is_pair):
    """A page of hostile tokens has the tags of one of plain tokens, and shows them as they are."""
    logs = page_logs(is_pair)
    pages = []
    for words in (ATTACK, [f"word{n}" for n in range(len(ATTACK))]):
        vocabulary = ["<pad>", "<s>", "</s>", "<unk>", *words]
        if is_pair:
            page = attention_page(logs, [f"▁{word}" for word in vocabulary], [0])
        else:
            page = attention_page(logs, vocabulary, [0], np.ones(logs.num_scores))
        pages.append(Tags(page))
    assert pages[0].tags == pages[1].tags
    assert all(any(word in text for text in pages[0].text) for word in ATTACK)
    assert pages[0].tags.count(("script", [])) >= 1
