"""The batch files: the grid, going on after a failure, JOBS; and run.sh on an old Python."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Stands in for Python: notes its arguments, fails for seed 15, sleeps when told to; lacks LACKING.
INTERPRETER = """#!/usr/bin/env bash
[[ $1 != -c ]] || { echo "${LACKING:-}"; exit; }
echo "$*" >>"$CALLS"
[[ "$*" != *"--seed 15"* ]] || { echo "seed 15 went wrong"; exit 3; }
if [[ -n "${SLEEP:-}" ]]; then exec sleep "$SLEEP"; fi
echo "fine"
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    """A copy of all batch files, with an interpreter that only notes its calls."""
    for experiment in ("classification", "translation", "SequenceCopying", "papa"):
        (tmp_path / experiment).mkdir()
        for path in (ROOT / experiment).glob("*.sh"):
            shutil.copy(path, tmp_path / experiment)
    shutil.copy(ROOT / "batch.sh", tmp_path)
    (tmp_path / "python").write_text(INTERPRETER)
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def environment(folder: Path, **more: str) -> dict:
    return {**os.environ, "PYTHON": str(folder / "python"), "CALLS": str(folder / "calls"), **more}


def run(
    folder: Path, script: str, *args: str, experiment: str = "classification", **more: str
) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["bash", str(folder / experiment / script), *args],
        cwd="/",
        env=environment(folder, **more),
        capture_output=True,
        text=True,
        timeout=60,
    )


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def test_the_grid_is_the_papers_and_goes_on_after_a_failure(folder):
    process = run(folder, "train_runs.sh", "--threads", "1", DATASETS="Furd SMS", JOBS="3")
    assert process.returncode == 1
    assert "2 job(s) failed" in process.stderr
    assert "train_Furd_15_normal (logs/train_Furd_15_normal.log)" in process.stderr
    assert "FAILED train_Furd_15_normal: seed 15 went wrong" in process.stderr
    assert "FAILED train_SMS_15_normal: for the same reason" in process.stderr
    made = calls(folder)
    assert len(made) == 14
    saves = "--steps 4000 --save_every 250 --custom_saves 0,10,50,100,150,200,250 --threads 1"
    expected = {
        f"train_classifier.py --dataset {dataset} --seed {seed} {saves}"
        for dataset in ("Furd", "SMS")
        for seed in (20, 13, 14, 15, 16, 17)
    } | {
        f"train_classifier.py --dataset {dataset} --seed 12 --uniform {saves}"
        for dataset in ("Furd", "SMS")
    }
    assert set(made) == expected
    log = folder / "classification" / "logs" / "train_SMS_20_normal.log"
    assert log.read_text() == "fine\n"


def test_the_other_batch_files(folder):
    for script in ("dump_logs.sh", "embedding_runs.sh", "logistic_runs.sh"):
        process = run(folder, script, "--overwrite", DATASETS="")
        assert process.returncode == 0, process.stderr
    made = calls(folder)
    datasets = ["IMDB", "Furd", "AG_News", "Newsgroups", "Yelp", "Amzn", "SMS"]
    assert made[:7] == [f"eval_dump.py --dataset {name} --overwrite" for name in datasets]
    slow = {"IMDB", "Yelp", "Amzn"}
    assert made[7:14] == [
        f"embedding_beta.py --dataset {name} --epochs 60 --lr "
        f"{'5e-5' if name in slow else '1.5e-4'} --overwrite"
        for name in datasets
    ]
    assert made[14:] == [f"logistic_beta.py --dataset {name} --overwrite" for name in datasets]


def test_the_grid_of_translation(folder):
    for script in ("train_runs.sh", "dump_logs.sh"):
        process = run(folder, script, "--overwrite", experiment="translation", DATASETS="")
        assert process.returncode == 0, process.stderr
    made = calls(folder)
    epochs = {
        "multi30k": 20, "iwslt14": 30, "news_commentary_v14_en_nl": 40,
        "news_commentary_v14_en_pt": 30, "news_commentary_v14_it_pt": 40,
    }  # fmt: skip
    saves = "--save_every 2000 --custom_saves 0,50,100,500,1000,1500 --overwrite"
    assert made[:15] == [
        f"train_translation.py --dataset {name} --seed {run} --epochs {number} {saves}"
        for name, number in epochs.items()
        for run in ("20", "12 --uniform", "13")
    ]
    assert made[15:] == [
        call
        for name in epochs
        for call in (
            f"eval_dump.py --dataset {name} --eval_bleu --include_train_subset --overwrite",
            f"embedding_beta.py --dataset {name}",
            f"ibm1_beta.py --dataset {name}",
        )
    ]


def test_the_settings_of_copying(folder):
    process = run(folder, "copying_runs.sh", "--num_seeds", "4", experiment="SequenceCopying")
    assert process.returncode == 0, process.stderr
    assert calls(folder) == [
        "seq2seq.py --no_rep --num_vocab 40 --num_seeds 4",
        "seq2seq.py --no_rep --num_vocab 60 --num_seeds 4",
        "plot_copying.py",
    ]


@pytest.mark.parametrize(
    "script",
    sorted(
        str(path.relative_to(ROOT)) for path in ROOT.glob("*/*.sh") if path.parent.name[0] != "."
    ),
)
def test_help_prints_what_the_batch_file_says_of_itself(folder, script):
    experiment, name = script.split("/")
    process = run(folder, name, "--steps", "3", "--help", experiment=experiment)
    assert process.returncode == 0, process.stderr
    comment = [
        line.removeprefix("#").removeprefix(" ")
        for line in (ROOT / script).read_text().split("\nset -euo")[0].splitlines()[1:]
    ]
    assert process.stdout.splitlines() == comment
    assert any(f"bash {name}" in line for line in comment)
    assert not (folder / "calls").exists() and not (folder / experiment / "logs").exists()


@pytest.mark.parametrize("jobs", ["0", "two", "-1"])
def test_jobs_must_be_a_number(folder, jobs):
    process = run(folder, "train_runs.sh", JOBS=jobs)
    assert process.returncode == 2
    assert f"JOBS must be a whole number above 0, not '{jobs}'" in process.stderr
    assert not (folder / "calls").exists()


@pytest.mark.parametrize("script", ["classification/train_runs.sh", "papa/papa_runs.sh"])
def test_packages_that_are_missing_are_named_once(folder, script):
    experiment, name = script.split("/")
    process = run(folder, name, "a", "b_cola", experiment=experiment, LACKING="numpy, torch")
    assert process.returncode == 2
    assert process.stderr.startswith(f"{name}: error: {folder / 'python'} lacks numpy, torch: ")
    assert "source ../.venv/bin/activate" in process.stderr and "bash run.sh" in process.stderr
    assert process.stderr.count("\n") == 1
    assert not (folder / "calls").exists() and not (folder / experiment / "logs").exists()


@pytest.mark.parametrize(
    ("python", "lacking"),
    [("-I -S", "lacks attention_dynamics, numpy, torch: "), ("--none", "or does not run: ")],
)
def test_a_python_without_packages(folder, python, lacking):
    """A real one that sees none of them (-I: no PYTHONPATH, -S: no site-packages); a broken one."""
    bare = f'#!/usr/bin/env bash\nexec {sys.executable} {python} "$@"\n'
    (folder / "python").write_text(bare)
    process = run(folder, "train_runs.sh", DATASETS="SMS")
    assert process.returncode == 2
    assert lacking in process.stderr and process.stderr.count("\n") == 1


@pytest.mark.parametrize("to_all", [False, True])
def test_an_interrupt_ends_the_children(folder, to_all):
    """It comes to the batch file alone (kill), or to all of its group (timeout, a scheduler)."""
    process = subprocess.Popen(
        ["bash", str(folder / "classification" / "logistic_runs.sh")],
        env=environment(folder, SLEEP="300", JOBS="2"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 30
    while not (folder / "calls").exists() or len(calls(folder)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (os.killpg if to_all else os.kill)(process.pid, signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 143
    assert "logistic_runs.sh: stopped, ending " in stderr
    assert "error" not in stderr and "FAILED" not in stderr
    assert stdout.count("ended  logistic_") == 2
    sleeping = subprocess.run(["pgrep", "-f", "^sleep 300$"], capture_output=True, text=True)
    assert not sleeping.stdout.strip()


@pytest.mark.parametrize("script", ["run.sh", "test.sh"])
def test_an_old_python_is_refused_in_one_line(tmp_path, script):
    for name in (script, "environment.sh", "requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("bash", "dirname", "basename", "cat", "rm"):
        (tools / tool).symlink_to(shutil.which(tool))
    old = '#!/usr/bin/env bash\n[[ $1 == --version ]] && { echo "Python 3.9.2"; exit; }\nexit 1\n'
    (tools / "python3").write_text(old.replace("/usr/bin/env bash", str(tools / "bash")))
    (tools / "python3").chmod(0o755)
    process = subprocess.run(
        [str(tools / "bash"), str(tmp_path / script)],
        env={"PATH": str(tools), "HOME": str(tmp_path)},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == 2
    assert "Python 3.11 or newer is needed; found Python 3.9.2" in process.stderr
    assert process.stderr.count("\n") == 1
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize("args", [["SMS"], ["translation", "papa"], ["--help"]])
def test_run_sh_knows_three_experiments(args):
    process = subprocess.run(
        ["bash", str(ROOT / "run.sh"), *args], capture_output=True, text=True, timeout=60
    )
    assert process.returncode == 2
    assert "give classification (the default), translation or papa" in process.stderr
    assert process.stderr.count("\n") == 1
