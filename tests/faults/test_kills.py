"""Scripts that are killed or terminated at any moment and rerun end in the very same files.

pytest tests/faults                 each script is killed once
pytest -m faults                    each is killed at least eight times
"""

import os
import random
import signal
import time
from pathlib import Path

import pytest
from harness import CASES, PATIENCE, Victim, finish, output_of, result_of, start

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
def test_a_killed_script_goes_on_to_the_same_bytes(victims, name):
    kills = victims(name).kill_until_done(random.Random(name), most=1, timed=0.0)
    assert kills == 1


@pytest.mark.parametrize(
    "name",
    ["classifier", "words", "translator", "pieces", "copying", "copying_batched", "multihead"],
)
def test_two_sigterms_save_the_state(victims, name):
    victim = victims(name)
    folder = victim.prepared_copy("terminated")
    process = start(folder, victim.case, terminate=True)
    process.join(PATIENCE)
    assert_state_saved(victim, folder, process)


@pytest.mark.slow
def test_two_sigterms_save_the_states_of_the_workers(victims):
    victim = victims("copying_jobs")
    folder = victim.prepared_copy("terminated")
    process = start(folder, victim.case)
    while not list(folder.rglob("*state")):
        assert process.is_alive(), output_of(folder)
        time.sleep(0.005)
    for _ in range(2):
        os.kill(process.pid, signal.SIGTERM)
        time.sleep(0.01)
    process.join(PATIENCE)
    assert_state_saved(victim, folder, process)


def assert_state_saved(victim, folder, process) -> None:
    """The process has ended by SIGTERM and left a state from which it resumes to the same bytes."""
    printed = output_of(folder)
    assert process.exitcode == 143, printed
    assert printed.splitlines()[-1] == f"{Path(victim.case.script).name}: terminated"
    assert list(folder.rglob("*state")), printed
    finish(folder, victim.case)
    assert result_of(folder) == victim.result


@pytest.mark.faults
@pytest.mark.parametrize("name", KILLED)
def test_many_kills(victims, name):
    victim, kills, runs = victims(name), 0, 0
    rng = random.Random(f"many {name}")
    while kills < 8:
        kills += victim.kill_until_done(rng, most=6, timed=0.5)
        runs += 1
    print(f"{name}: {kills} kills in {runs} runs")
