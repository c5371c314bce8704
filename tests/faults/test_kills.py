"""Scripts that are killed at any moment and started again end in the very same files.

pytest tests/faults                 each script is killed once
pytest -m faults                    each is killed at least eight times
"""

import random

import pytest
from harness import CASES, Victim

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


@pytest.mark.faults
@pytest.mark.parametrize("name", KILLED)
def test_many_kills(victims, name):
    victim, kills, runs = victims(name), 0, 0
    rng = random.Random(f"many {name}")
    while kills < 8:
        kills += victim.kill_until_done(rng, most=6, timed=0.5)
        runs += 1
    print(f"{name}: {kills} kills in {runs} runs")
