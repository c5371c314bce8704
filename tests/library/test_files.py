"""Atomic writes, JSON with positions, run folders, checkpoints and log configs."""

import json
import multiprocessing
import os
import re
import signal
import stat
import subprocess
import sys

import pytest
import torch
from torch import nn

from attention_dynamics.cli import InputError
from attention_dynamics.runs.checkpoints import load_checkpoint, save_checkpoint, steps_to_save
from attention_dynamics.runs.configs import read_config, read_log_config
from attention_dynamics.runs.outputs import output_is_current, record_output
from attention_dynamics.runs.paths import run_folder
from attention_dynamics.runs.records import begin_run, finish_run
from attention_dynamics.storage.files import (
    atomic_write,
    read_json,
    sha256,
    write_json,
    write_text,
    write_together,
)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError), atomic_write(path) as stream:
        stream.write(b"half of the new")
        raise RuntimeError
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="a folder where no file can be made")
def test_a_file_that_cannot_be_made_is_named(tmp_path):
    with pytest.raises(OSError) as error, atomic_write("/proc/x.pkl"):
        pass
    assert error.value.filename == "/proc/x.pkl"
    assert ".part" not in str(error.value)


def test_a_file_that_cannot_be_replaced_is_named(tmp_path):
    path = tmp_path / "a.txt"
    with pytest.raises(OSError) as error, atomic_write(path) as stream:
        stream.write(b"new")
        path.mkdir()
    assert error.value.filename == str(path)
    assert ".part" not in str(error.value)
    assert os.listdir(tmp_path) == ["a.txt"]


def test_errors_of_other_files_keep_their_name(tmp_path):
    with pytest.raises(FileNotFoundError) as error, atomic_write(tmp_path / "a.txt"):
        (tmp_path / "b.txt").read_bytes()
    assert error.value.filename == str(tmp_path / "b.txt")


def test_what_a_killed_process_left_is_overwritten_by_the_next_write(tmp_path):
    write = "import sys; from attention_dynamics.storage.files import atomic_write\n" + (
        "with atomic_write(sys.argv[1]) as stream:\n"
        "    stream.write(b'half'); stream.flush(); print('writing', flush=True); input()\n"
    )
    command = [sys.executable, "-c", write, str(tmp_path / "a")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "writing\n"
    process.kill()
    process.communicate()
    assert os.listdir(tmp_path) == [".a.part"]
    write_text(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "new"
    assert os.listdir(tmp_path) == ["a"]


def test_files_get_the_usual_permissions(tmp_path):
    before = os.umask(0o022)
    try:
        write_text(tmp_path / "new" / "a.txt", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new" / "a.txt").stat().st_mode) == 0o644


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1,\n "b" 2}', "line 2 column 6"),
        (b"", "line 1 column 1"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b"[" * 100_000, "cannot be read"),
    ],
)
def test_malformed_json_names_file_and_position(tmp_path, content, message):
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(InputError, match=rf"config .*x.json .*{message}"):
        read_json(tmp_path / "x.json", "config")


def test_checksum_of_a_folder_sees_names_and_contents(tmp_path):
    write_text(tmp_path / "d" / "a", "1")
    first = sha256(tmp_path / "d")
    write_text(tmp_path / "d" / "a", "2")
    second = sha256(tmp_path / "d")
    (tmp_path / "d" / "a").rename(tmp_path / "d" / "b")
    assert len({first, second, sha256(tmp_path / "d")}) == 3


def test_run_folders_are_named_as_published():
    config = {"hidden_dim": 256, "batch_size": 32}
    assert str(run_folder("SMS", config, 20, False)) == (
        "models/SMS/h_dim=256,b_size=32,seed=20,normal"
    )
    translation = {"hidden_dim": 40, "dropout": 0.5, "batch_size": 4}
    assert str(run_folder("x", translation, 12, True)) == (
        "models/x/h_dim=40,dropout=0.500000,b_size=4,seed=12,uniform"
    )


def test_configs_without_a_key_or_with_odd_numbers_are_refused(tmp_path):
    path = tmp_path / "model.json"
    write_json(path, {"hidden_dim": 4})
    with pytest.raises(InputError, match="lacks batch_size; it needs hidden_dim, batch_size"):
        read_config(path, ("hidden_dim", "batch_size"))
    for odd in (0, -3, 2.5, "4", True, None):
        write_json(path, {"hidden_dim": odd})
        with pytest.raises(InputError, match="hidden_dim must be a positive integer"):
            read_config(path, ("hidden_dim",))
    write_json(path, [1])
    with pytest.raises(InputError, match="must be a JSON object"):
        read_config(path, ("hidden_dim",))


def test_log_configs_are_checked_entry_by_entry(tmp_path):
    path = tmp_path / "x_log.json"
    good = {"name": "normal_A", "iteration": 0, "seed": 20, "uniform": False}
    for entries, message in (
        ([], "one at least"),
        ([good, {**good, "iteration": "5"}], "entry 1: iteration must be int"),
        ([{"name": "normal_A"}], "entry 0 lacks the key 'iteration'"),
        ([3], "entry 0 lacks the key 'name'"),
        ([good, good], "normal_A iteration 0 twice"),
    ):
        write_json(path, entries)
        with pytest.raises(InputError, match=message):
            read_log_config(path)
    write_json(path, [good])
    assert read_log_config(path) == [{**good, "calculate_grad": False}]


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
    with pytest.raises(InputError, match=r"model0 does not fit .*weight is \(2, 3\) in the file"):
        load_checkpoint(tmp_path / "model0", nn.Linear(4, 2))
    with pytest.raises(InputError, match=r"bias is \(2,\) in the file, absent in the model"):
        load_checkpoint(tmp_path / "model0", nn.Linear(3, 2, bias=False))
    whole = (tmp_path / "model0").read_bytes()
    for end in range(0, len(whole), 101):
        (tmp_path / "cut").write_bytes(whole[:end])
        with pytest.raises(InputError, match="cut is corrupt"):
            load_checkpoint(tmp_path / "cut", nn.Linear(3, 2))
    torch.save(nn.Linear(3, 2), tmp_path / "code")
    with pytest.raises(InputError, match="code is corrupt or holds more than tensors"):
        load_checkpoint(tmp_path / "code", nn.Linear(3, 2))
    torch.save({"weight": 3}, tmp_path / "odd")
    with pytest.raises(InputError, match="not a state_dict of tensors"):
        load_checkpoint(tmp_path / "odd", nn.Linear(3, 2))


def test_a_finished_run_is_left_alone_and_another_one_refused(tmp_path):
    folder = tmp_path / "run"
    assert begin_run(folder, {"seed": 1, "steps": 10}, overwrite=False)
    (folder / "model0").write_bytes(b"x")
    # Not finished: it may begin again, without the leftovers.
    assert begin_run(folder, {"seed": 1, "steps": 10}, overwrite=False)
    assert not (folder / "model0").exists()
    finish_run(folder, {"accuracy": 0.5})
    assert not begin_run(folder, {"seed": 1, "steps": 10}, overwrite=False)
    with pytest.raises(InputError, match="steps was 10, is 20"):
        begin_run(folder, {"seed": 1, "steps": 20}, overwrite=False)
    assert json.loads((folder / "run.json").read_text())["results"] == {"accuracy": 0.5}
    assert begin_run(folder, {"seed": 1, "steps": 20}, overwrite=True)


def test_checkpoints_of_other_code_are_not_replaced(tmp_path):
    (tmp_path / "model0").write_bytes(b"x")
    with pytest.raises(InputError, match=r"without a run.json"):
        begin_run(tmp_path, {}, overwrite=False)
    assert (tmp_path / "model0").read_bytes() == b"x"


def test_outputs_know_what_made_them(tmp_path):
    out = tmp_path / "x.pkl"
    assert not output_is_current(out, {"a": (1, 2)})
    out.write_bytes(b"x")
    record_output(out, {"a": (1, 2)}, {})
    assert output_is_current(out, {"a": (1, 2)})
    assert not output_is_current(out, {"a": (1, 3)})


@pytest.mark.parametrize(
    "change",
    [
        lambda weight: weight.to("meta"),
        lambda weight: weight.to_sparse(),
        lambda weight: weight.long(),
        lambda weight: weight.to(torch.complex64),
    ],
)
def test_checkpoints_of_other_than_plain_real_tensors(tmp_path, change):
    model = nn.Linear(2, 3)
    state = model.state_dict()
    torch.save({**state, "weight": change(state["weight"])}, tmp_path / "model0")
    with pytest.raises(InputError, match="weight is no plain tensor of real numbers"):
        load_checkpoint(tmp_path / "model0", model)


def test_a_name_in_a_log_config_stands_for_one_run(tmp_path):
    entry = {"name": "uniform", "iteration": 0, "seed": 12, "uniform": True}
    for key, value in (("seed", 13), ("uniform", False)):
        write_json(tmp_path / "log.json", [entry, {**entry, "iteration": 5, key: value}])
        with pytest.raises(InputError, match=rf"entry 1: {key} of the run 'uniform' is {value}"):
            read_log_config(tmp_path / "log.json")


def test_files_written_together_are_all_new_or_all_old(tmp_path):
    files = {tmp_path / "about": b"new", tmp_path / "a": b"new", tmp_path / "b": b"new"}
    write_together(files)
    blocked = tmp_path / "file" / "c"
    write_text(blocked.parent, "not a folder")
    with pytest.raises(OSError, match="file"):
        write_together(dict.fromkeys([*files, blocked], b"newer"))
    assert [path.read_bytes() for path in files] == [b"new"] * 3
    assert sorted(os.listdir(tmp_path)) == ["a", "about", "b", "file"]


def test_more_checkpoints_than_a_folder_should_hold():
    with pytest.raises(InputError, match="save more than 100,000 checkpoints"):
        steps_to_save(10**9, 250, None)


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
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_a_signal_leaves_nothing_half_written(tmp_path, number, code, word):
    process = run_small_script(tmp_path, "write")
    assert process.stdout.readline() == "\\u03b2\n"
    assert process.stdout.readline() == "writing\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (code, f"script.py: {word}\n")
    assert os.listdir(tmp_path) == ["script.py"]


def write_often(path, mark: str) -> None:
    for number in range(100):
        write_text(path, f"{mark} {number}")


def test_processes_that_write_the_same_file_do_not_remove_each_others(tmp_path):
    """The file is always one of theirs, whole; nobody fails."""
    context = multiprocessing.get_context("fork")
    writers = [
        context.Process(target=write_often, args=(tmp_path / "file", str(writer)))
        for writer in range(3)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert re.fullmatch("[012] 99", (tmp_path / "file").read_text())
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
