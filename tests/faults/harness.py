"""Scripts in processes of their own that are killed and started again, and what they leave behind.

A process is forked from a server that has imported torch already, so that a start takes a tenth of
a second. It runs ``main`` of the script through ``run_script``, as a user's process does.
"""

import contextlib
import importlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from conftest import ROOT, load_folder, make_small_pairs, make_small_set
from tiny_task import make_tiny_task

# What a record says of the machine and the time, which differs between two runs of one command.
VOLATILE = {
    "started", "finished", "commit", "seconds", "seconds_per_step", "training_seconds",
    "peak_memory_mb",
    # of the Trainer; train_loss is left out of a run that went on
    "train_loss", "train_runtime", "train_samples_per_second", "train_steps_per_second",
    "eval_runtime", "eval_samples_per_second", "eval_steps_per_second",
    "predict_runtime", "predict_samples_per_second", "predict_steps_per_second",
}  # fmt: skip

# What takes long to import; torch asks for its compiler when the first optimizer is made.
PRELOADED = [
    "torch", "torch._dynamo", "scipy.stats", "sentencepiece", "sacrebleu", "tqdm",
    "transformers.trainer", "accelerate", "sklearn.metrics", "attention_dynamics.reporting.figures",
    "attention_dynamics.analysis.logs", "attention_dynamics.runs.training",
]  # fmt: skip


# Seconds that a process may take; a machine may be very busy.
PATIENCE = 900


class Case(NamedTuple):
    """A script to be killed.

    Attributes:
        script: from the root of the repository.
        args: its options.
        before: cases that make what it reads.
        patches: values of module attributes that make it small: {"training.GOOD": 0.3}.
    """

    script: str
    args: str
    before: tuple[str, ...] = ()
    patches: dict = {}  # noqa: RUF012


ENCODER = (
    "--model_name_or_path encoder --task_name cola --task_dir cola --max_seq_length 16 "
    "--per_device_train_batch_size 4 --use_papa_preprocess true"
)
PAPA = (
    f"{ENCODER} --do_train --do_eval --do_predict --num_train_epochs 5 --eval_strategy epoch "
    "--save_strategy steps --save_steps 2 --save_total_limit 3 --static_heads_dir constants "
    "--disable_tqdm true --learning_rate 1e-3 --use_cpu true"
)
COPYING = "--hidden_dim 8 --bsize 4 --device cpu"
CLASSIFIER = "--dataset small --steps 60 --save_every 7 --custom_saves 0,5,11,40"
TRANSLATOR = "--dataset small --epochs 6 --save_every 4 --custom_saves 3,9"
CASES = {
    "classifier": Case("classification/train_classifier.py", f"{CLASSIFIER} --seed 20"),
    "classifier_13": Case("classification/train_classifier.py", f"{CLASSIFIER} --seed 13"),
    "classifier_12": Case(
        "classification/train_classifier.py", f"{CLASSIFIER} --seed 12 --uniform"
    ),
    "words": Case("classification/embedding_beta.py", "--dataset small --epochs 12 --bsize 8"),
    "classifier_dump": Case(
        "classification/eval_dump.py",
        "--dataset small",
        ("classifier", "classifier_13", "classifier_12"),
    ),
    "translator": Case("translation/train_translation.py", f"{TRANSLATOR} --seed 20"),
    "translator_13": Case("translation/train_translation.py", f"{TRANSLATOR} --seed 13"),
    "translator_12": Case("translation/train_translation.py", f"{TRANSLATOR} --seed 12 --uniform"),
    "pieces": Case("translation/embedding_beta.py", "--dataset small --epochs 8 --bsize 8"),
    "translator_dump": Case(
        "translation/eval_dump.py",
        "--dataset small --include_train_subset --eval_bleu last",
        ("translator", "translator_13", "translator_12"),
    ),
    "copying": Case(
        "SequenceCopying/seq2seq.py",
        f"{COPYING} --no_rep --num_vocab 6 --seq_length 5 --steps_s1 40 --save_every 3 "
        "--seeds 3,5,6 --jobs 1",
    ),
    "copying_batched": Case(
        "SequenceCopying/seq2seq.py",
        f"{COPYING} --no_rep --num_vocab 6 --seq_length 5 --steps_s1 40 --save_every 3 "
        "--seeds 3,5 --grouping batched",
    ),
    "copying_jobs": Case(
        "SequenceCopying/seq2seq.py",
        f"{COPYING} --no_rep --num_vocab 6 --seq_length 5 --steps_s1 120 --save_every 3 "
        "--seeds 3,5,6 --jobs 2",
    ),
    "multihead": Case(
        "SequenceCopying/multihead.py",
        f"{COPYING} --seq_length 3 --num_steps 21 --num_good 3 --num_bad 3 --num_random 3 "
        "--num_heads 2 --num_samples 2 --jobs 1",
        patches={"training.GOOD": 0.3, "training.TRIAL_EVALUATION_SIZE": 40},
    ),
    "papa_constants": Case(
        "papa/run_papa_glue_avgs_creator.py", f"{ENCODER} --device cpu --output_dir constants"
    ),
    "papa_order": Case(
        "papa/run_papa_glue.py",
        f"{PAPA} --sort_calculating true --output_dir order",
        ("papa_constants",),
    ),
    "papa_heads": Case(
        "papa/run_papa_glue.py",
        f"{PAPA} --grad_for_classifier_only true --sorting_heads_dir order --static_heads_num 5 "
        "--output_dir heads",
        ("papa_constants", "papa_order"),
    ),
}


def start(
    folder: Path,
    case: Case,
    kill_at: int | None = None,
    largest: int | None = None,
    terminate: bool = False,
):
    """The process that runs ``case`` in ``folder``.

    It kills itself at file event ``kill_at``, and can write no file of more than ``largest`` bytes.
    With ``terminate`` it gets SIGTERM in the middle of the first write of its resume state, again
    at each file event of the following 10 ms, and at their end.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=_run, args=(folder, case, kill_at, largest, terminate))
    process.start()
    return process


def finish(folder: Path, case: Case) -> int:
    """Run ``case`` to its end; how many file events it took. AssertionError when it fails."""
    process = start(folder, case)
    process.join(PATIENCE)
    assert process.exitcode == 0, output_of(folder)
    return int((folder / "events.txt").read_text())


def assert_ended_in_one_line(folder: Path, case: Case, process) -> None:
    """The process has ended with exit code 1 or 2, one line that says why, and no half file."""
    process.join(PATIENCE)
    printed = output_of(folder)
    assert process.exitcode in (1, 2), printed
    assert "Traceback" not in printed, printed
    name = case.script.split("/")[1]
    assert printed.splitlines()[-1].startswith((f"{name}: error: ", f"{name}: failed: ")), printed
    left = [path for path in folder.rglob(".*") if path.suffix in (".part", ".lock")]
    assert not left, left


def output_of(folder: Path) -> str:
    """What the last process in ``folder`` has printed, on stdout and stderr."""
    return (folder / "printed.txt").read_text()


def _run(
    folder: Path,
    case: Case,
    kill_at: int | None,
    largest: int | None,
    terminate: bool,
) -> None:
    os.chdir(folder)
    with open("printed.txt", "wb") as printed:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
    experiment, script = case.script.split("/")
    sys.path.insert(0, str(ROOT / experiment))
    sys.argv = [case.script, *case.args.split()]
    module = importlib.import_module(script.removesuffix(".py"))
    # On tiny models states are to be written often, whatever their share of the time is.
    patches = {"attention_dynamics.runs.training._FRACTION": 100.0, **case.patches}
    for name, value in patches.items():
        setattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2], value)
    if largest is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    events = _watch_files(kill_at)
    if terminate:
        sys.addaudithook(_terminator())
    from attention_dynamics.cli import run_script

    run_script(module.main)
    kill_at = None
    Path("events.txt").write_text(str(len(events)))


def _watch_files(kill_at: int | None) -> list:
    """The events of files of the working folder, as they come; at one of them, SIGKILL."""
    events = []

    def hook(event: str, args: tuple) -> None:
        if event not in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree"):
            return
        if not isinstance(args[0], str | os.PathLike) or os.path.isabs(args[0]):
            return
        if len(events) + 1 == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        events.append(event)

    sys.addaudithook(hook)
    return events


def _terminator():
    """The audit hook that sends the SIGTERMs of :func:`start`."""
    last = threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGTERM))

    def hook(event: str, args: tuple) -> None:
        if event == "os.rename" and last.ident is None and str(args[1]).endswith("state"):
            last.start()
            os.kill(os.getpid(), signal.SIGTERM)
        elif event in ("open", "os.rename", "os.remove") and last.is_alive():
            os.kill(os.getpid(), signal.SIGTERM)

    return hook


def make_folder(folder: Path, case: Case) -> None:
    """Fill the new ``folder`` with what ``case`` reads."""
    folder.mkdir()
    if case.script.startswith("classification"):
        make_small_set(folder, load_folder(ROOT / "classification"))
    if case.script.startswith("translation"):
        with contextlib.chdir(folder):
            make_small_pairs(folder, load_folder(ROOT / "translation"))
    if case.script.startswith("papa"):
        make_tiny_task(folder)
    for name in case.before:
        finish(folder, CASES[name])


def result_of(folder: Path) -> dict[str, object]:
    """All files of ``folder``: their bytes, or of a JSON file what is the same in every run.

    The Trainer's checkpoints are left out: which it keeps depends on what it has been through.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir() or name in ("printed.txt", "events.txt") or "/checkpoint-" in name:
            continue
        content = path.read_bytes()
        found[name] = _lasting(json.loads(content)) if path.suffix == ".json" else content
    return found


def _lasting(value: object) -> object:
    if isinstance(value, dict):
        return {key: _lasting(entry) for key, entry in value.items() if key not in VOLATILE}
    if isinstance(value, list):
        return [_lasting(entry) for entry in value]
    return value


class Victim:
    """A case in a prepared folder, with the result of a run that nobody has killed."""

    def __init__(self, folder: Path, case: Case):
        """Prepare ``case`` in ``folder``/prepared, and run it in ``folder``/whole."""
        self.case, self.folder = case, folder
        make_folder(folder / "prepared", case)
        shutil.copytree(folder / "prepared", folder / "whole")
        begun = time.perf_counter()
        self.events = finish(folder / "whole", case)
        self.seconds = time.perf_counter() - begun
        self.result = result_of(folder / "whole")

    def prepared_copy(self, name: str) -> Path:
        """A new folder ``name`` in which the case can be run."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder / "prepared", folder)
        return folder

    def kill_until_done(self, rng: random.Random, most: int, timed: float) -> int:
        """Start, kill, start again, ... to the end; how often it was killed.

        A kill comes at a time with the probability ``timed``, else at a file event; both are drawn.
        After ``most`` kills it is left to finish. AssertionError when the result differs from that
        of the whole run.
        """
        folder = self.prepared_copy("killed")
        kills = 0
        while kills < most:
            if rng.random() < timed:
                process = start(folder, self.case)
                process.join(rng.uniform(0, self.seconds))
                process.kill()
                process.join()
            else:
                process = start(folder, self.case, rng.randrange(1, self.events + 1))
                process.join(PATIENCE)
            assert process.exitcode in (0, -signal.SIGKILL), output_of(folder)
            if process.exitcode == 0:
                break
            kills += 1
        finish(folder, self.case)
        assert result_of(folder).keys() == self.result.keys()
        assert result_of(folder) == self.result
        return kills
