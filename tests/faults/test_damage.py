"""Full disks, folders that cannot be written, and files that were cut or changed."""

import io
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from harness import CASES, PATIENCE, Victim, assert_ended_in_one_line, finish, result_of, start
from torch import nn

from attention_dynamics.cli import InputError
from attention_dynamics.runs.checkpoints import load_checkpoint, save_checkpoint
from attention_dynamics.runs.outputs import load_state
from attention_dynamics.runs.records import begin_run, finish_run
from attention_dynamics.runs.training import Training

SETTINGS = {"seed": 1, "data": "0123456789abcdef", "config": {"hidden_dim": 4}, "saves": [0]}

# Of files: one place of so many bytes is changed, one cut of so many is made.
FEW, MANY = 199, 10
AMOUNTS = [FEW, pytest.param(MANY, marks=pytest.mark.faults)]


@pytest.fixture(scope="module")
def victims(tmp_path_factory):
    """name -> its Victim, prepared when it is first asked for."""
    made = {}

    def victim_of(name: str) -> Victim:
        if name not in made:
            made[name] = Victim(tmp_path_factory.mktemp(name), CASES[name])
        return made[name]

    return victim_of


def damaged(content: bytes, every: int):
    """Cuts and changed bytes of ``content``, of which there is one for each ``every`` bytes."""
    rng = np.random.default_rng(every)
    for place in range(0, len(content), every):
        yield content[:place]
        changed = bytearray(content)
        at = min(place + int(rng.integers(every)), len(content) - 1)
        changed[at] ^= int(rng.integers(1, 256))
        yield bytes(changed)


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 20), nn.Linear(20, 3))


def bytes_of(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("every", AMOUNTS)
def test_damaged_checkpoints(tmp_path, every):
    """Refused, or the very weights: not all bytes of a file mean something."""
    path, model = tmp_path / "model0", small_model()
    save_checkpoint(path, model)
    refused = 0
    for content in damaged(path.read_bytes(), every):
        path.write_bytes(content)
        other = small_model()
        try:
            load_checkpoint(path, other)
        except InputError as error:
            assert str(path) in str(error)
            refused += 1
        for name, value in model.state_dict().items():
            assert value.equal(other.state_dict()[name])
    assert refused


@pytest.mark.parametrize("every", AMOUNTS)
def test_damaged_states(tmp_path, every):
    path, model = tmp_path / "state", small_model()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    training = Training(path, SETTINGS, model, optimizer, 1, {"seen": [1.5]})
    with training, training.update():
        training.check_finite(model(torch.ones(6)).sum()).backward()
        optimizer.step()
    content = load_state(path, SETTINGS)
    plain = bytes_of(content)
    refused = 0
    for changed in damaged(path.read_bytes(), every):
        path.write_bytes(changed)
        try:
            assert bytes_of(load_state(path, SETTINGS)) == plain
        except InputError as error:
            assert f"file {path} is damaged: remove it" in str(error)
            refused += 1
    assert refused


def test_a_tensor_called_a_folder_is_refused(tmp_path):
    """One bit in the list of the zip file: torch would skip it, and keep what memory held."""
    path, model = tmp_path / "model0", small_model()
    save_checkpoint(path, model)
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\x01\x02")  # of the last member
    content[entry + 38] ^= 0x10  # its external attributes
    path.write_bytes(content)
    with pytest.raises(InputError, match="model0"):
        load_checkpoint(path, small_model())


@pytest.mark.parametrize("every", AMOUNTS)
@pytest.mark.parametrize("finished", [True, False])
def test_damaged_run_records(tmp_path, every, finished):
    """A run is left alone only when it is the one that is asked for, and finished."""
    folder = tmp_path / "run"
    begin_run(folder, SETTINGS, False)
    (folder / "model0").write_bytes(b"x")
    if finished:
        finish_run(folder, {"test_acc": {"0": 0.5}})
    record = folder / ("run.json" if finished else "unfinished.json")
    whole = record.read_bytes()
    for content in damaged(whole, max(every // 20, 1)):
        record.write_bytes(content)
        (folder / "model0").write_bytes(b"x")
        try:
            begun = begin_run(folder, SETTINGS, False)
        except InputError as error:
            assert str(folder) in str(error) and "--overwrite" in str(error)
            assert (folder / "model0").exists() and record.read_bytes() == content
        else:
            assert begun or finished


@pytest.mark.parametrize(
    "name",
    ["classifier", "classifier_dump", "words", "translator", "pieces", "copying", "multihead"],
)
def test_a_full_disk_ends_in_one_line_and_the_same_command_goes_on(victims, name):
    """No file may be larger than a limit: the smallest fit, the others do not."""
    victim = victims(name)
    prepared = {
        str(path.relative_to(victim.folder / "prepared"))
        for path in (victim.folder / "prepared").rglob("*")
    }
    made = [
        path.stat().st_size
        for path in (victim.folder / "whole").rglob("*")
        if str(path.relative_to(victim.folder / "whole")) not in prepared and path.is_file()
    ]
    folder = victim.folder / "full"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(victim.folder / "prepared", folder)
    for largest in (250, max(made) // 2):
        process = start(folder, victim.case, largest=largest)
        assert_ended_in_one_line(folder, victim.case, process)
    finish(folder, victim.case)
    assert result_of(folder) == victim.result


BLOCKED = {
    "classifier": ["models", "models/small/h_dim=6,b_size=8,seed=20,normal"],
    "classifier_dump": ["outputs", "outputs/small_logs.parts"],
    "words": ["outputs"],
    "translator": ["models/small"],
    "pieces": ["outputs"],
    "copying": ["logs", "logs/vocab6seq_length5bsize4no_rep.parts"],
    "multihead": ["multihead_runs"],
}


@pytest.mark.parametrize("name", BLOCKED)
def test_a_file_where_a_folder_should_be(victims, name):
    """Stands for a folder that cannot be written, which nothing is to the superuser."""
    victim = victims(name)
    for blocked in BLOCKED[name]:
        folder = victim.folder / "blocked"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(victim.folder / "prepared", folder)
        if (folder / blocked).exists():
            shutil.rmtree(folder / blocked)
        (folder / blocked).parent.mkdir(parents=True, exist_ok=True)
        (folder / blocked).write_text("no folder")
        assert_ended_in_one_line(folder, victim.case, start(folder, victim.case))
        assert (folder / blocked).read_text() == "no folder"


def test_a_folder_where_a_file_should_be(victims):
    victim = victims("classifier")
    run = Path("models/small/h_dim=6,b_size=8,seed=20,normal")
    for blocked, named in {
        run / "state": "normal/state",
        run / "model5": "normal holds 1 checkpoint(s) without a run.json",
        run / "run.json": "run.json is a folder",
        run.parent / f".{run.name}.lock": ".lock",
    }.items():
        folder = victim.folder / "blocked"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(victim.folder / "prepared", folder)
        (folder / blocked).mkdir(parents=True)
        process = start(folder, victim.case)
        process.join(PATIENCE)
        printed = (folder / "printed.txt").read_text()
        assert process.exitcode in (1, 2) and "Traceback" not in printed, printed
        assert named in printed
