"""The batch files: the commands of their dry runs, --help; run.sh and an old Python."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, assert_refused, run_script
from grid import DRY_RUN, MADE, commands, copy_repository, environment, write_program

CONFIG = "--config configs/model.json"


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """The repository without data, and an interpreter for dry runs."""
    root = copy_repository(tmp_path_factory.mktemp("batch"))
    write_program(root / "python", DRY_RUN)
    return root


def run(root: Path, script: str, *args: str, **more: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["bash", str(root / script), *args],
        cwd="/",
        env=environment(**{"PYTHON": str(root / "python"), **more}),
        capture_output=True,
        text=True,
        timeout=120,
    )


def calls(root: Path, script: str, *args: str, of: str, **more: str) -> list[str]:
    """The commands of the batch file's dry run whose script begins with ``of``, sorted."""
    process = run(root, script, *args, **more)
    assert process.returncode == 0, process.stdout + process.stderr
    return sorted(c for c in commands(process.stdout + process.stderr) if c.startswith(of))


def test_jobs_that_would_never_start_are_rejected(root):
    for jobs in ("0", "-1", "two"):
        process = run(root, "classification/train_runs.sh", JOBS=jobs)
        assert_refused(process, f"JOBS must be a number of at least 1, or all, not '{jobs}'")


def test_train_runs_of_chosen_datasets(root):
    made = calls(
        root, "classification/train_runs.sh", "--device", "it's cpu", of="train_",
        DATASETS="Furd SMS", JOBS="3",
    )  # fmt: skip
    steps = "--steps 4000 --save_every 250 --custom_saves 0,10,50,100,150,200,250"
    assert made == sorted(
        f"train_classifier.py --dataset {dataset} --seed {seed} {CONFIG} {steps} "
        r"--device it\'s\ cpu --threads 1"
        for dataset in ("Furd", "SMS")
        for seed in (20, 13, 14, 15, 16, 17, "12 --uniform")
    )


@pytest.mark.parametrize(
    ("batch", "script", "options"),
    [
        ("dump_logs", "eval_dump", f"{CONFIG} --overwrite --threads 1"),
        ("embedding_runs", "embedding_beta", "--epochs 60 --lr 1.5e-4 --overwrite --threads 1"),
        ("logistic_runs", "logistic_beta", "--overwrite"),
    ],
)
def test_options_are_passed_to_the_scripts_of_the_batch_file(root, batch, script, options):
    made = calls(root, f"classification/{batch}.sh", "--overwrite", of=script, DATASETS="SMS")
    assert made == [f"{script}.py --dataset SMS {options}"]


def test_dump_logs_of_translation_makes_the_baselines_too(root):
    script = "translation/dump_logs.sh"
    made = calls(root, script, "--eval_bleu", "last", of="", DATASETS="multi30k")
    # Missing runs are not trained.
    assert [command for command in made if not command.startswith("prepare_")] == [
        "embedding_beta.py --dataset multi30k --threads 1",
        f"eval_dump.py --dataset multi30k {CONFIG} --eval_bleu --include_train_subset "
        "--eval_bleu last --threads 1",
        "ibm1_beta.py --dataset multi30k",
    ]


def test_copying_runs(root):
    made = calls(
        root, "SequenceCopying/copying_runs.sh", "--num_seeds", "4", of="seq2seq", JOBS="2"
    )
    assert made == [
        f"seq2seq.py --no_rep --num_vocab {number} --seq_length 40 --bsize 128 --num_seeds 4 "
        "--jobs 2"
        for number in (40, 60)
    ]


def test_papa_runs(root):
    made = calls(
        root, "papa/papa_runs.sh", "/models/minilm", "wnut17_ner", "--train_file", "my train.conll",
        "--", "--num_train_epochs", "3",
        of="run_papa", HEADS="0 36", SEEDS="7", CACHE="true",
    )  # fmt: skip
    common = "--model_name_or_path /models/minilm --task_name ner --max_seq_length 64 "
    assert all(common in command and r"--train_file my\ train.conll" in command for command in made)
    out = "outputs/minilm_wnut17_ner"
    ends = [
        f"--per_device_train_batch_size 8 --output_dir {out}/constants",
        f"--sort_calculating true --static_heads_dir {out}/constants --output_dir {out}/sorted",
        *(
            f"--grad_for_classifier_only true --cache_encoder_states true --static_heads_dir "
            f"{out}/constants --sorting_heads_dir {out}/sorted --static_heads_num {heads} --seed 7 "
            f"--output_dir {out}/results/{heads}_seed7"
            for heads in (0, 36)
        ),
    ]
    for end in ends:
        (command,) = {command for command in made if command.endswith(end)}
        assert ("--num_train_epochs 3" in command) == ("avgs_creator" not in command)


def test_papa_runs_takes_quarters_of_the_heads(root):
    order = root / "papa/outputs/minilm_cola/sorted/sorted_heads.json"
    order.parent.mkdir(parents=True)
    order.write_text("[[0, 1], [0, 0], [1, 0], [1, 1]]")
    made = calls(root, "papa/papa_runs.sh", "minilm", "cola", of="run_papa_glue.py", SEEDS="0")
    found = {c.split("--static_heads_num ")[1][:1] for c in made if "--static_heads_num" in c}
    assert found == set("01234")


def test_papa_runs_rejects_wrong_tasks(root):
    process = run(root, "papa/papa_runs.sh", "minilm", "colla")
    assert_refused(process, "the task colla is none of cola mnli")


BATCH_FILES = sorted(
    str(path.relative_to(ROOT)) for path in ROOT.glob("*/*.sh") if path.parent.name[0] != "."
)


@pytest.mark.parametrize("script", BATCH_FILES)
def test_help_prints_the_comment_of_the_batch_file(root, script):
    process = run(root, script, "--steps", "3", "--help")
    assert process.returncode == 0, process.stderr
    comment = [
        line.removeprefix("#").removeprefix(" ")
        for line in (ROOT / script).read_text().split("\nset -euo")[0].splitlines()[1:]
    ]
    assert process.stdout.splitlines() == comment
    assert any(f"bash {Path(script).name}" in line for line in comment)


def test_a_failing_batch_file_ends_with_the_reason(root):
    process = run(root, "classification/logistic_runs.sh", DATASETS="Frud", PYTHON=sys.executable)
    assert process.returncode == 1
    assert "prepare_data.py: error: unknown --dataset Frud" in process.stderr.splitlines()[-1]


def test_missing_packages_are_named_in_one_line(root):
    program = f'#!/usr/bin/env bash\nexec {sys.executable} -I -S "$@"\n'
    bare = write_program(root / "bare", program)
    process = run(root, "classification/train_runs.sh", PYTHON=str(bare))
    assert_refused(process, f"error: {bare} lacks packages; activate the environment")


@pytest.mark.parametrize("script", ["run.sh", "test.sh"])
def test_an_old_python_is_refused_in_one_line(tmp_path, script):
    for name in (script, "environment.sh", "requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("bash", "dirname", "basename", "cat", "rm", "uname"):
        (tools / tool).symlink_to(shutil.which(tool))
    old = '#!/usr/bin/env bash\n[[ $1 == --version ]] && { echo "Python 3.9.2"; exit; }\nexit 1\n'
    write_program(tools / "python3", old.replace("/usr/bin/env bash", str(tools / "bash")))
    process = subprocess.run(
        [str(tools / "bash"), str(tmp_path / script)],
        env={"PATH": str(tools), "HOME": str(tmp_path)},
        cwd="/", capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert_refused(process, "Python 3.11 or newer is needed; found Python 3.9.2")
    assert not (tmp_path / ".venv").exists()


def source_environment(root: Path) -> str:
    """What environment.sh prints in the repository ``root``."""
    process = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"source '{root}/environment.sh'"],
        env={**os.environ, "CALLS": str(root.parent / "calls")},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return process.stdout


def test_environment_calls_pip_after_changes_only_and_corrects_a_copied_venv(tmp_path):
    old, new, pip_calls = tmp_path / "old", tmp_path / "old-copy", tmp_path / "calls"
    programs, packages = old / ".venv/bin", old / ".venv/lib/python3.11/site-packages"
    programs.mkdir(parents=True)
    packages.mkdir(parents=True)
    for name in ("environment.sh", "requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, old)
    fake = f'[[ $1 != -m ]] || {{ echo "$*" >>"$CALLS"; exit; }}\nexec {sys.executable} "$@"\n'
    write_program(programs / "python", f"#!/usr/bin/env bash\n{fake}")
    (programs / "ruff").write_text(f"#!{old}/.venv/bin/python\n")
    (packages / "__editable___finder.py").write_text(f"{{'a': '{old}/attention_dynamics'}}")

    assert "installing requirements.txt" in source_environment(old)
    assert source_environment(old) == ""
    assert pip_calls.read_text().count("pip install") == 1
    with open(old / "requirements.txt", "a") as stream:
        stream.write("# changed\n")
    source_environment(old)
    assert pip_calls.read_text().count("pip install") == 2

    shutil.copytree(old, new)
    assert f"copied or moved from {old}: correcting" in source_environment(new)
    assert (new / ".venv/bin/ruff").read_text() == f"#!{new}/.venv/bin/python\n"
    finder = (new / packages.relative_to(old) / "__editable___finder.py").read_text()
    assert finder == f"{{'a': '{new}/attention_dynamics'}}"
    assert (programs / "ruff").read_text() == f"#!{old}/.venv/bin/python\n"
    assert source_environment(new) == ""
    assert pip_calls.read_text().count("pip install") == 2


@pytest.mark.parametrize(
    ("args", "jobs", "code", "message"),
    [
        (["SMS"], "1", 2, "give classification (the default), translation, copying or papa"),
        (["--help"], "1", 0, "bash run.sh copying"),
        ([], "0", 2, "JOBS must be a positive integer"),
    ],
)
def test_run_sh_rejects_wrong_options_and_prints_help(args, jobs, code, message):
    process = subprocess.run(
        ["bash", str(ROOT / "run.sh"), *args],
        env={**os.environ, "JOBS": jobs}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert process.returncode == code and message in process.stdout + process.stderr


def test_pre_commit_runs_the_pinned_ruff():
    (pinned,) = re.findall(r"^ruff==(.+)$", (ROOT / "requirements.txt").read_text(), re.M)
    assert f"rev: v{pinned}\n" in (ROOT / ".pre-commit-config.yaml").read_text()


def test_a_script_rejects_the_library_of_another_copy(tmp_path):
    """A repository that was copied together with its .venv would run the old library."""
    for folder in ("classification", "attention_dynamics"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns(*MADE))
    process = run_script(
        tmp_path / "classification" / "collect_classification_stats.py", "--help", cwd=tmp_path
    )
    assert_refused(
        process, f"expected {tmp_path / 'attention_dynamics'}, got {ROOT / 'attention_dynamics'}"
    )
