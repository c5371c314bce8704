"""Atomic writes, JSON with positions, run folders, checkpoints and log configs."""

import itertools
import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from conftest import Hostile, refused
from torch import nn

from attention_dynamics.cli import InputError
from attention_dynamics.runs.checkpoints import load_checkpoint, save_checkpoint
from attention_dynamics.runs.configs import read_config, read_log_config
from attention_dynamics.runs.paths import run_folder
from attention_dynamics.runs.records import begin_run, read_run
from attention_dynamics.storage.files import (
    atomic_write,
    read_json,
    write_json,
    write_text,
    write_together,
)
from attention_dynamics.storage.pickles import load_pickle


def test_atomic_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(FileNotFoundError) as error, atomic_write(path) as stream:
        stream.write(b"half of the new")
        (tmp_path / "b.txt").read_bytes()
    assert error.value.filename == str(tmp_path / "b.txt")  # the file that is missing
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_run_folders_are_named_as_published():
    config = {"hidden_dim": 256, "batch_size": 32}
    assert str(run_folder("SMS", config, 20, False)) == (
        "models/SMS/h_dim=256,b_size=32,seed=20,normal"
    )
    translation = {"hidden_dim": 40, "dropout": 0.5, "batch_size": 4}
    assert str(run_folder("x", translation, 12, True)) == (
        "models/x/h_dim=40,dropout=0.500000,b_size=4,seed=12,uniform"
    )


ENTRY = {"name": "normal_A", "iteration": 0, "seed": 20, "uniform": False}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"hidden_dim": 4}, "must be a JSON object with the keys hidden_dim, dropout"),
        *(
            ({"hidden_dim": odd, "dropout": 0.5}, "hidden_dim must be a positive integer")
            for odd in (0, 2.5, "4", True)
        ),
        ({"hidden_dim": 4, "dropout": 1}, "dropout must be from 0 to below 1, not 1"),
        ([], "one at least"),
        ([ENTRY, {**ENTRY, "iteration": "5"}], "entry 1: iteration must be a non-negative int"),
        ([ENTRY, ENTRY], "normal_A iteration 0 twice"),
        ([{"name": "normal_A"}], "entry 0: iteration must be .*, not None"),
        ([3], "entry 0 must be an object"),
        ([ENTRY, {**ENTRY, "iteration": 5, "seed": 13}], "13.*, but .*20.* in an"),
    ],
)
def test_model_and_log_configs_with_wrong_content_are_refused(tmp_path, content, message):
    write_json(tmp_path / "config.json", content)
    with pytest.raises(InputError, match=message):
        if isinstance(content, dict):
            read_config(tmp_path / "config.json", ("hidden_dim", "dropout"))
        else:
            read_log_config(tmp_path / "config.json")


def test_read_log_config_adds_calculate_grad(tmp_path):
    write_json(tmp_path / "x_log.json", [ENTRY])
    assert read_log_config(tmp_path / "x_log.json") == [{**ENTRY, "calculate_grad": False}]


def test_checkpoints_come_back_and_have_the_same_bytes(tmp_path):
    torch.manual_seed(0)
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    save_checkpoint(tmp_path / "model0", model)
    save_checkpoint(tmp_path / "model1", model)
    assert (tmp_path / "model0").read_bytes() == (tmp_path / "model1").read_bytes()
    load_checkpoint(tmp_path / "model0", other)
    assert torch.equal(model.weight, other.weight)


def test_checkpoints_that_do_not_fit_are_refused(tmp_path):
    save_checkpoint(tmp_path / "model0", nn.Linear(3, 2))
    with pytest.raises(InputError, match=r"model0 does not fit .*Size\(\[2, 3\]\) from"):
        load_checkpoint(tmp_path / "model0", nn.Linear(4, 2))
    with pytest.raises(InputError, match=r'Unexpected key\(s\) in state_dict: "bias"'):
        load_checkpoint(tmp_path / "model0", nn.Linear(3, 2, bias=False))
    torch.save({"weight": 3}, tmp_path / "odd")
    assert "received <class 'int'>" in refused(load_checkpoint, tmp_path / "odd", nn.Linear(3, 2))


def test_checkpoints_accept_no_flipped_bit_of_a_weight(tmp_path):
    """torch verifies no checksum, and skips a tensor whose entry is marked as a folder (0x10)."""
    model, other, path = nn.Linear(4, 4), nn.Linear(4, 4), tmp_path / "model0"
    save_checkpoint(path, model)
    whole = path.read_bytes()
    for place, mask in itertools.product(range(len(whole)), (1, 0x10)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ mask]) + whole[place + 1 :])
        try:
            load_checkpoint(path, other)
        except InputError as error:
            assert "model0" in str(error)
        else:
            assert model.weight.equal(other.weight) and model.bias.equal(other.bias)


def test_checkpoints_that_are_truncated_packed_or_code_are_refused(folder):
    save_checkpoint(folder / "model0", nn.Linear(4, 4))
    with zipfile.ZipFile("model0") as stored, zipfile.ZipFile("bomb", "w", 8) as packed:
        for member in stored.infolist():
            packed.writestr(member.filename, stored.read(member))
    Path("code").write_bytes(pickle.dumps(Hostile()))
    torch.save({"weight": Hostile()}, "nested")
    whole = Path("model0").read_bytes()
    for end in range(0, len(whole), 101):
        Path(f"cut{end}").write_bytes(whole[:end])
    for path in (*map(Path, ("bomb", "code", "nested")), *Path().glob("cut*")):
        assert f"{path} is corrupt" in refused(load_checkpoint, path, nn.Linear(4, 4))
    assert not Path("harm").exists()


@pytest.mark.parametrize(
    "load", [load_pickle, read_json, lambda path: load_checkpoint(path, nn.Linear(2, 2))]
)
def test_loaders_refuse_what_is_not_a_file(folder, load):
    Path("there").mkdir()
    assert "there is a folder, not a file" in refused(load, Path("there"))
    assert "missing does not exist" in refused(load, Path("missing"))


RUN = '{"settings": {"seed": 1}, "finished": null}'


def test_json_may_have_a_byte_order_mark_and_crlf(tmp_path):
    (tmp_path / "run.json").write_bytes(b"\xef\xbb\xbf" + RUN.replace(" ", "\r\n").encode())
    assert read_run(tmp_path)["settings"] == {"seed": 1}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (RUN.encode("utf-16"), "is not UTF-8 text: byte 0; convert it from its encoding"),
        (RUN.encode() + b"\0" * 4096, "malformed JSON at line 1 column 44"),
        (b"", "malformed JSON at line 1 column 1"),
        (b"[1]", "is not a run record"),
    ],
)
def test_json_of_another_kind_is_refused(tmp_path, content, message):
    (tmp_path / "run.json").write_bytes(content)
    line = refused(read_run, tmp_path)
    assert "run.json" in line and message in line


def test_checkpoints_of_other_code_are_not_replaced(tmp_path):
    (tmp_path / "model0").write_bytes(b"x")
    assert "without a run.json" in refused(begin_run, tmp_path, {}, overwrite=False)
    assert (tmp_path / "model0").read_bytes() == b"x"


def test_files_written_together_are_all_new_or_all_old(tmp_path):
    files = {tmp_path / "about": b"new", tmp_path / "a": b"new", tmp_path / "b": b"new"}
    write_together(files)
    blocked = tmp_path / "file" / "c"
    write_text(blocked.parent, "not a folder")
    with pytest.raises(OSError, match="file"):
        write_together(dict.fromkeys([*files, blocked], b"newer"))
    assert [path.read_bytes() for path in files] == [b"new"] * 3
    assert sorted(os.listdir(tmp_path)) == ["a", "about", "b", "file"]


SCRIPT = """
import sys, time
from attention_dynamics.cli import run_script
from attention_dynamics.storage.files import atomic_write
from attention_dynamics.cli import InputError

def main():
    print("β")
    if sys.argv[1] == "fail":
        raise InputError("two\\nlines")
    with atomic_write("out") as stream:
        stream.write(b"half")
        print("writing", flush=True)
        for _ in range(600):  # a signal just before a sleep does not end it
            time.sleep(0.1)

run_script(main)
"""


def run_small_script(folder, how):
    (folder / "script.py").write_text(SCRIPT)
    return subprocess.Popen(
        [sys.executable, "script.py", how],
        cwd=folder, env={**os.environ, "PYTHONIOENCODING": "ascii"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        # A shell lets its background processes, and theirs, ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def test_a_terminal_without_greek_and_an_error_of_two_lines(tmp_path):
    process = run_small_script(tmp_path, "fail")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (2, "\\u03b2\n", "script.py: error: two\\nlines\n")


@pytest.mark.parametrize(
    ("number", "code", "printed"),
    [
        (signal.SIGINT, 130, "script.py: interrupted\n"),
        (signal.SIGTERM, 143, "script.py: terminated\n"),
        (signal.SIGKILL, -signal.SIGKILL, ""),
    ],
)
def test_a_signal_leaves_nothing_half_written(tmp_path, number, code, printed):
    process = run_small_script(tmp_path, "write")
    assert process.stdout.readline() == "\\u03b2\n"
    assert process.stdout.readline() == "writing\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (code, printed)
    left = [".out.part"] if number == signal.SIGKILL else []
    assert sorted(os.listdir(tmp_path)) == [*left, "script.py"]
    write_text(tmp_path / "out", "new")
    assert sorted(os.listdir(tmp_path)) == ["out", "script.py"]


def write_often(path: Path, mark: int) -> None:
    for number in range(100):
        write_text(path, f"{mark} {number}")


def test_processes_that_write_the_same_file_do_not_remove_each_others(tmp_path):
    """The file is always one of theirs, whole; nobody fails."""
    with multiprocessing.get_context("fork").Pool(3) as pool:
        pool.starmap(write_often, [(tmp_path / "file", writer) for writer in range(3)], 1)
    assert re.fullmatch("[012] 99", (tmp_path / "file").read_text())
    assert os.listdir(tmp_path) == ["file"]
