"""Scripts that are killed or terminated, or find a full disk, resume to the same files.

pytest tests/faults                 each script is killed once
pytest -m faults                    each is killed at least eight times
"""

import os
import random
import signal
import time
from pathlib import Path

import pytest
from harness import CASES, PATIENCE, Victim, output_of, start

KILLED = [name for name in CASES if not name.endswith(("_12", "_13"))]


@pytest.fixture(scope="module")
def victims(tmp_path_factory):
    """name -> its Victim, prepared when it is first asked for."""
    made = {}

    def victim_of(name: str) -> Victim:
        if name not in made:
            made[name] = Victim(tmp_path_factory.mktemp(name), CASES[name])
        return made[name]

    return victim_of


@pytest.mark.parametrize("name", [name for name in KILLED if not name.startswith("copying_")])
def test_a_killed_script_resumes_to_the_same_bytes(victims, name):
    assert victims(name).kill_until_done(random.Random(name), most=1, timed=0.0) == 1


@pytest.mark.faults
@pytest.mark.parametrize("name", KILLED)
def test_many_kills(victims, name):
    kills, rng = 0, random.Random(f"many {name}")
    while kills < 8:
        kills += victims(name).kill_until_done(rng, most=6, timed=0.5)


@pytest.mark.parametrize(
    "name",
    [
        "classifier", "words", "translator", "pieces", "copying", "copying_batched", "multihead",
        pytest.param("copying_jobs", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_two_sigterms_save_the_state(victims, name):
    """In the middle of a write of the state; of workers, once there is one."""
    victim, in_workers = victims(name), name == "copying_jobs"
    folder = victim.prepared_copy("terminated")
    process = start(folder, victim.case, terminate=not in_workers)
    while in_workers and not list(folder.rglob("*state")):
        assert process.is_alive(), output_of(folder)
        time.sleep(0.005)
    for _ in range(2 * in_workers):
        os.kill(process.pid, signal.SIGTERM)
    process.join(PATIENCE)
    printed = output_of(folder)
    assert process.exitcode == 143, printed
    assert printed.splitlines()[-1] == f"{Path(victim.case.script).name}: terminated"
    assert list(folder.rglob("*state")), printed
    victim.assert_resumes(folder)


def assert_ended_in_one_line(victim: Victim, folder: Path, **faults) -> None:
    """The script ends with exit code 1 or 2, one line that says why, and no half-written file."""
    process = start(folder, victim.case, **faults)
    process.join(PATIENCE)
    printed, name = output_of(folder), Path(victim.case.script).name
    assert process.exitcode in (1, 2) and "Traceback" not in printed, printed
    assert printed.splitlines()[-1].startswith((f"{name}: error: ", f"{name}: failed: ")), printed
    assert not [path for path in folder.rglob(".*") if path.suffix in (".part", ".lock")]


@pytest.mark.parametrize("name", ["classifier", "classifier_dump", "multihead"])
def test_a_script_on_a_full_disk_ends_in_one_line_and_resumes(victims, name):
    """Files may not exceed a limit: only the smallest fit."""
    victim = victims(name)
    folder = victim.prepared_copy("full")
    there = {path.name for path in folder.rglob("*")}
    made = [p for p in (victim.folder / "whole").rglob("*") if p.is_file() and p.name not in there]
    for largest in (250, max(path.stat().st_size for path in made) // 2):
        assert_ended_in_one_line(victim, folder, largest=largest)
    victim.assert_resumes(folder)


@pytest.mark.parametrize(
    ("name", "blocked"), [("classifier", "models"), ("copying", "logs"), ("words", "outputs")]
)
def test_a_script_reports_a_file_in_place_of_a_folder(victims, name, blocked):
    """In place of a folder without write permission, which the superuser ignores."""
    victim = victims(name)
    folder = victim.prepared_copy("blocked")
    (folder / blocked).write_text("not a folder")
    assert_ended_in_one_line(victim, folder)
    assert (folder / blocked).read_text() == "not a folder"
