"""Full disks and folders that cannot be written (corrupt files: tests/library/test_fuzz.py)."""

import shutil
from pathlib import Path

import pytest
import torch
from harness import CASES, PATIENCE, Victim, assert_ended_in_one_line, finish, result_of, start
from torch import nn

from attention_dynamics.cli import InputError
from attention_dynamics.runs.checkpoints import load_checkpoint, save_checkpoint


@pytest.fixture(scope="module")
def victims(tmp_path_factory):
    """name -> its Victim, prepared when it is first asked for."""
    made = {}

    def victim_of(name: str) -> Victim:
        if name not in made:
            made[name] = Victim(tmp_path_factory.mktemp(name), CASES[name])
        return made[name]

    return victim_of


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 20), nn.Linear(20, 3))


def test_load_checkpoint_rejects_a_tensor_marked_as_a_folder(tmp_path):
    """One changed bit in the zip directory: torch would skip it and keep uninitialized memory."""
    path, model = tmp_path / "model0", small_model()
    save_checkpoint(path, model)
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\x01\x02")  # of the last member
    content[entry + 38] ^= 0x10  # its external attributes
    path.write_bytes(content)
    with pytest.raises(InputError, match="model0"):
        load_checkpoint(path, small_model())


@pytest.mark.parametrize(
    "name",
    ["classifier", "classifier_dump", "words", "multihead"],
)
def test_script_on_a_full_disk_ends_in_one_line_and_resumes(victims, name):
    """Files may not exceed a limit: only the smallest fit."""
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
    "copying": ["logs", "logs/vocab6seq_length5bsize4no_rep.parts"],
    "multihead": ["multihead_runs"],
}


@pytest.mark.parametrize("name", BLOCKED)
def test_script_reports_a_file_in_place_of_a_folder(victims, name):
    """In place of a folder without write permission, which the superuser ignores."""
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


def test_script_reports_a_folder_in_place_of_a_file(victims):
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
