"""The workflow: its jobs and commands against the papers' grid, small runs, kills, wrong input."""

import contextlib
import hashlib
import os
import random
import signal
import time
from pathlib import Path

import pytest
from conftest import GOLDEN
from grid import commands, copy_repository, job_counts, make_models_small, snakemake, start

from attention_dynamics.storage.files import read_json, write_text

# target -> number of jobs, without the target of a whole grid itself
JOBS = {
    "all": 177,
    "all_classification": 91,
    "all_translation": 45,
    "all_copying": 4,
    "all_papa": 37,
    "classification/results/Furd.pkl": 12,
    "classification/figures/Furd_val_tau.svg": 12,
    "papa/outputs/bert-base-uncased_cola/results/36_seed2/run.json": 3,
}


@pytest.fixture(scope="session")
def empty_copy(tmp_path_factory) -> Path:
    """The repository without data, for dry runs."""
    return copy_repository(tmp_path_factory.mktemp("dry"))


@pytest.fixture(scope="session")
def dry_runs(empty_copy):
    """target -> what a dry run prints, each made once."""
    printed = {}

    def dry_run(target: str) -> str:
        if target not in printed:
            printed[target] = snakemake(empty_copy, "-n", "-p", target)
        return printed[target]

    return dry_run


@pytest.mark.parametrize("target", JOBS)
def test_target_has_the_jobs_of_the_papers_grid(dry_runs, target):
    counts = job_counts(dry_runs(target))
    assert counts.total() - counts[target] == JOBS[target]


def test_commands_of_the_papers_grid(dry_runs):
    expected = (GOLDEN / "workflow/commands.txt").read_text().splitlines()
    assert sorted(commands(dry_runs("all"))) == expected


def test_each_script_is_a_job_step_in_its_folder(dry_runs):
    """The redirection comes before the cd; under SLURM the script is the step's first process."""
    lines = dry_runs("all").splitlines()
    shell = next(line for line in lines if "Shell command" in line and "train_Furd_20" in line)
    assert "exec >classification/logs/train_Furd_20_normal.log 2>&1; cd classification; " in shell
    assert "exec ${SLURM_JOB_ID:+srun --overlap --nodes=1 --ntasks=1 --cpus-per-task=1} " in shell


def test_own_data_and_sources(empty_copy):
    settings = (
        "classification={datasets: [mine, Furd], sources: {Furd: /path/to/my trees, "
        "mine: --train a.csv --test b.csv}}"
    )
    made = commands(snakemake(empty_copy, "-n", "-p", "all_classification", "--config", settings))
    assert "prepare_data.py --dataset Furd --source '/path/to/my trees' --overwrite" in made
    assert "prepare_data.py --dataset mine --train a.csv --test b.csv --overwrite" in made
    dumps = [command for command in made if command.startswith("eval_dump")]
    assert sorted("--make_log_config" in dump for dump in dumps) == [False, True]


# --- Small runs

TINY = """
classification:
  datasets: [mine]
  sources: {mine: --train train.csv --test test.csv}
  seeds: {normal: [20, 13], uniform: [12]}
  options:
    train: --steps 60 --save_every 20 --custom_saves 0,10
    embedding: --epochs 2
"""


def tiny_copy(root: Path, grid: str = TINY) -> Path:
    """A copy with small models and own data, and the grid tiny.yaml."""
    copy_repository(root)
    make_models_small(root)
    for split, count in (("train", 60), ("test", 20)):
        # The label is that of the first word.
        rows = [f"{'good' if n % 2 else 'bad'} word{n % 7} w{n},{n % 2}\n" for n in range(count)]
        write_text(root / f"classification/{split}.csv", "text,label\n" + "".join(rows))
    write_text(root / "tiny.yaml", grid)
    return root


def run_tiny(root: Path, target: str, *args: str, **more) -> str:
    return snakemake(root, target, "--cores", "2", *args, "--configfile", "tiny.yaml", **more)


def checksums(root: Path, *patterns: str) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for pattern in patterns
        for path in sorted(root.glob(pattern))
    }


def test_a_tiny_experiment_is_run_once(tmp_path):
    root = tiny_copy(tmp_path / "copy")
    printed = run_tiny(root, "classification/results/mine.pkl")
    assert "8 of 8 steps (100%) done" in printed
    for run in root.glob("classification/models/mine/*"):
        assert read_json(run / "run.json")["finished"] and not (run / "unfinished.json").exists()
    assert "Nothing to be done" in run_tiny(root, "classification/results/mine.pkl")
    # What is missing, and the command that makes it.
    (root / "classification/outputs/mine_logistic_beta.pkl").unlink()
    (root / "classification/results/mine.pkl").unlink()
    made = commands(run_tiny(root, "classification/results/mine.pkl", "-n", "-p"))
    assert sorted(command.split()[0] for command in made) == [
        "collect_classification_stats.py",
        "logistic_beta.py",
    ]


def test_training_by_hand_counts_as_done(tmp_path):
    """A run.json without Snakemake's own metadata."""
    root = tiny_copy(tmp_path / "copy")
    run = "h_dim=6,b_size=8,seed=20,normal/run.json"
    for name in ("data/mine_train.json", "data/mine_test.json", f"models/mine/{run}"):
        write_text(root / "classification" / name, "{}")
    assert "Nothing to be done" in run_tiny(root, f"classification/models/mine/{run}", "-n")


# --- Kills

ONE_RUN = "classification/models/mine/h_dim=6,b_size=8,seed=20,normal"
LONG = TINY.replace("--steps 60 --save_every 20", "--steps 2000 --save_every 500")


def train_until(root: Path, number: int) -> None:
    """Train one run; the signal ``number`` is sent to all processes once it trains."""
    log = root / "classification/logs/train_mine_20_normal.log"

    def trains() -> bool:
        resumed = (root / ONE_RUN / "state").exists()
        return log.exists() and log.stat().st_size > 0 if resumed else checkpoint.exists()

    checkpoint = root / ONE_RUN / "model0"
    log.unlink(missing_ok=True)
    process = start(root, f"{ONE_RUN}/run.json", "--cores", "1", "--configfile", "tiny.yaml")
    while not trains():
        assert process.poll() is None, (root / "snakemake.txt").read_text()
        time.sleep(0.05)
    os.killpg(process.pid, number)
    process.wait(120)
    assert not (root / ONE_RUN / "run.json").exists()
    assert (root / ONE_RUN / "unfinished.json").exists()


@pytest.mark.slow
def test_ctrl_c_and_kill_end_in_the_same_bytes(tmp_path):
    whole, stopped = tiny_copy(tmp_path / "whole", LONG), tiny_copy(tmp_path / "stopped", LONG)
    run_tiny(whole, f"{ONE_RUN}/run.json")
    train_until(stopped, signal.SIGINT)
    assert (stopped / ONE_RUN / "state").exists()
    train_until(stopped, signal.SIGKILL)  # Snakemake's lock stays
    assert "--unlock" in run_tiny(stopped, f"{ONE_RUN}/run.json", code=1)
    run_tiny(stopped, f"{ONE_RUN}/run.json", "--unlock")
    run_tiny(stopped, f"{ONE_RUN}/run.json")
    assert checksums(stopped, f"{ONE_RUN}/model*") == checksums(whole, f"{ONE_RUN}/model*")
    assert len(checksums(whole, f"{ONE_RUN}/model*")) == 6


@pytest.mark.slow
def test_a_failed_job_keeps_what_scripts_have_finished(tmp_path):
    """Other settings are refused: run.json and the checkpoints stay as they were."""
    root = tiny_copy(tmp_path / "copy")
    run_tiny(root, f"{ONE_RUN}/run.json")
    before = checksums(root, f"{ONE_RUN}/*")
    write_text(root / "tiny.yaml", TINY.replace("--steps 60", "--steps 80"))
    printed = run_tiny(root, f"{ONE_RUN}/run.json", "--retries", "0", code=1)
    assert "steps was 60, is 80" in printed  # the log of the failed job
    assert checksums(root, f"{ONE_RUN}/*") == before


ALL = f"""{TINY}translation:
  datasets: [mine]
  sources:
    mine: --train a.de a.en --val b.de b.en --src_lang de --trg_lang en --vocab_size 18
  options:
    train: --epochs 3 --save_every 5 --custom_saves 0,3
    embedding: --epochs 2
SequenceCopying:
  num_vocab: [6, 8]
  seq_length: 5
  bsize: 4
  options: --steps_s1 40 --save_every 10 --hidden_dim 8 --seeds 3,5
papa:
  runs: [encoder tiny_cola]
  heads: {{encoder: [0, 3, 5, 8]}}
  tasks: {{tiny_cola: --task_dir cola}}
  files: {{tiny_cola: [cola/train.tsv, cola/dev.tsv]}}
  options:
    all: --max_seq_length 16 --pad_to_max_length true --use_papa_preprocess true --disable_tqdm true
    train: >-
      --do_train --do_eval --per_device_train_batch_size 4 --num_train_epochs 3 --learning_rate 1e-3
      --eval_strategy epoch --save_strategy no
resources:
  SequenceCopying: {{copying: {{threads: 1}}}}
"""
MADE = (
    "*/models/mine/*/model*", "*/outputs/*.pkl", "*/results/*.pkl", "*/figures/*.svg",
    "SequenceCopying/logs/*.pkl", "papa/outputs/*/constants/*.pt", "papa/results/*.json",
    "papa/outputs/*/sorted/sorted_heads.json",
)  # fmt: skip


def small_copy(root: Path) -> Path:
    """A copy with small data for all four experiments: 39 jobs."""
    from tiny_task import make_tiny_task  # imports transformers

    tiny_copy(root, ALL)
    for name, count in (("a", 40), ("b", 10)):
        for language, word in (("de", "wort"), ("en", "word")):
            lines = [f"{word}{n % 5} {word}{n % 7} {word}{n % 3}" for n in range(count)]
            write_text(root / f"translation/{name}.{language}", "\n".join(lines) + "\n")
    make_tiny_task(root / "papa")
    return root


def scripts_of(group: int) -> list[int]:
    """The processes of a process group that run a script of an experiment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().decode().split("\0")
            if os.getpgid(int(folder.name)) == group and words[1:2] and words[1].endswith(".py"):
                found.append(int(folder.name))
    return sorted(found)


@pytest.mark.faults
def test_kills_of_random_jobs_end_in_the_same_bytes(tmp_path):
    """All four experiments; a job that is killed three times is run by the next call."""
    whole, killed = small_copy(tmp_path / "whole"), small_copy(tmp_path / "killed")
    assert job_counts(run_tiny(whole, "all", "-n")).total() == 39
    assert "39 of 39 steps (100%) done" in run_tiny(whole, "all")
    assert "Nothing to be done" in run_tiny(whole, "all")
    rng, kills, code = random.Random(0), 0, None
    while code != 0 or kills < 20:
        assert code in (None, 1), (killed / "snakemake.txt").read_text()
        process = start(killed, "all", "--cores", "2", "--configfile", "tiny.yaml")
        while process.poll() is None:
            time.sleep(rng.uniform(0, 4))
            if kills < 20 and (scripts := scripts_of(process.pid)):
                os.kill(rng.choice(scripts), rng.choice((signal.SIGKILL, signal.SIGTERM)))
                kills += 1
        code = process.returncode
    assert checksums(killed, *MADE) == checksums(whole, *MADE)


# --- Wrong input


def test_keep_incomplete_is_required(tmp_path):
    root = tiny_copy(tmp_path / "copy")
    args = ("classification/data/mine_train.json", "--cores", "1", "--workflow-profile", "none")
    printed = snakemake(root, *args, "--configfile", "tiny.yaml", code=1)
    assert "--keep-incomplete is required; use workflow/profiles/default" in printed
    assert not (root / "classification/data").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("classification={datasets: Furd}", "classification: datasets: 'Furd' is not of type"),
        ("classification={seeds: {normal: [x]}}", "classification: seeds: normal: 0: 'x' does not"),
        ("options={train: --seed 3}", "options: --seed determines file names"),
        ("translation={config: absent.json}", "config: translation/absent.json cannot be"),
        ("papa={runs: [roberta-base cola]}", "constant heads of roberta-base are missing"),
    ],
)
def test_a_malformed_grid_ends_in_one_line(empty_copy, settings, message):
    printed = snakemake(empty_copy, "-n", "--quiet", "all", "--config", settings, code=2)
    lines = [line for line in printed.splitlines() if line.startswith("workflow/grid.yaml: ")]
    assert len(lines) == 1 and message in lines[0], printed
    assert "Traceback" not in printed


def test_a_dataset_without_source_or_data(tmp_path):
    root = tiny_copy(tmp_path / "copy")
    args = ("--cores", "1", "classification/results/absent.pkl")
    printed = snakemake(root, *args, code=1)
    errors = [line for line in printed.splitlines() if line.startswith("prepare_data.py: error: ")]
    assert len(errors) == 1 and "absent" in errors[0], printed
