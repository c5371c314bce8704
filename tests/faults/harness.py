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
import time
from pathlib import Path
from typing import NamedTuple

from conftest import ROOT, load_folder, make_small_pairs, make_small_set
from tiny_task import make_tiny_task

# What a record says of the machine and the time, which differs between two runs of one command.
VOLATILE = {
    "started", "finished", "commit", "seconds", "seconds_per_step", "training_seconds",
    "peak_memory_mb",
    # of the Trainer; a resumed run has no train_loss
    "train_loss", "train_runtime", "train_samples_per_second", "train_steps_per_second",
    "eval_runtime", "eval_samples_per_second", "eval_steps_per_second",
    "predict_runtime", "predict_samples_per_second", "predict_steps_per_second",
}  # fmt: skip

# What takes long to import; torch imports its compiler when the first optimizer is made.
PRELOADED = [
    "torch", "torch._dynamo", "scipy.stats", "sentencepiece", "sacrebleu", "tqdm",
    "transformers.trainer", "accelerate", "sklearn.metrics", "attention_dynamics.reporting.figures",
    "attention_dynamics.analysis.logs", "attention_dynamics.runs.training",
]  # fmt: skip

PATIENCE = 900  # seconds that a process may take; a machine may be very busy


class Case(NamedTuple):
    """A script to be killed, its options, the cases that make what it reads, and patches.

    The patches are values of module attributes that make it small.
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
MULTIHEAD = (
    "--hidden_dim 8 --bsize 4 --device cpu --seq_length 3 --num_steps 21 --num_good 3 --num_bad 3 "
    "--num_random 3 --num_heads 2 --num_samples 2 --jobs 1"
)
COPYING = (
    "--hidden_dim 8 --bsize 4 --device cpu --no_rep --num_vocab 6 --seq_length 5 --save_every 3"
)
SEQ2SEQ = "SequenceCopying/seq2seq.py"
CLASSIFIER = "--dataset small --steps 60 --save_every 7 --custom_saves 0,5,11,40"
TRANSLATOR = "--dataset small --epochs 6 --save_every 4 --custom_saves 3,9"
CASES = {
    **{
        f"{name}{suffix}": Case(script, f"{options} --seed {seed}")
        for name, script, options in (
            ("classifier", "classification/train_classifier.py", CLASSIFIER),
            ("translator", "translation/train_translation.py", TRANSLATOR),
        )
        for suffix, seed in (("", "20"), ("_13", "13"), ("_12", "12 --uniform"))
    },
    "classifier_dump": Case(
        "classification/eval_dump.py",
        "--dataset small",
        ("classifier", "classifier_13", "classifier_12"),
    ),
    "words": Case("classification/embedding_beta.py", "--dataset small --epochs 12 --bsize 8"),
    "translator_dump": Case(
        "translation/eval_dump.py",
        "--dataset small --include_train_subset --eval_bleu last",
        ("translator", "translator_13", "translator_12"),
    ),
    "pieces": Case("translation/embedding_beta.py", "--dataset small --epochs 8 --bsize 8"),
    "copying": Case(SEQ2SEQ, f"{COPYING} --steps_s1 40 --seeds 3,5,6 --jobs 1"),
    "copying_batched": Case(SEQ2SEQ, f"{COPYING} --steps_s1 40 --seeds 3,5 --grouping batched"),
    "copying_jobs": Case(SEQ2SEQ, f"{COPYING} --steps_s1 120 --seeds 3,5,6 --jobs 2"),
    "multihead": Case(
        "SequenceCopying/multihead.py",
        MULTIHEAD,
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


def start(folder: Path, case: Case, **faults):
    """The process that runs ``case`` in ``folder``, with the ``faults`` of :func:`_run`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=_run, args=(folder, case), kwargs=faults)
    process.start()
    return process


def finish(folder: Path, case: Case) -> int:
    """Run ``case`` to its end and return the number of its file events."""
    process = start(folder, case)
    process.join(PATIENCE)
    assert process.exitcode == 0, output_of(folder)
    return int((folder / "events.txt").read_text())


def output_of(folder: Path) -> str:
    """What the last process in ``folder`` has printed, on stdout and stderr."""
    return (folder / "printed.txt").read_text()


def _run(
    folder: Path,
    case: Case,
    kill_at: int | None = None,
    largest: int | None = None,
    terminate: bool = False,
) -> None:
    """Run ``case``, with SIGKILL at file event ``kill_at``, and no file of more than ``largest``.

    With ``terminate`` it gets SIGTERM twice in the middle of the first write of its resume state.
    """
    os.chdir(folder)
    with open("printed.txt", "wb") as printed:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
    experiment, script = case.script.split("/")
    sys.path.insert(0, str(ROOT / experiment))
    sys.argv = [case.script, *case.args.split()]
    module = importlib.import_module(script.removesuffix(".py"))
    # On tiny models states are to be written often, whatever fraction of the time they take.
    patches = {"attention_dynamics.runs.training._FRACTION": 100.0, **case.patches}
    for name, value in patches.items():
        setattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2], value)
    if largest is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    events, terms = [], [signal.SIGTERM] * 2 if terminate else []

    def hook(event: str, args: tuple) -> None:
        if event not in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree"):
            return
        if not isinstance(args[0], str | os.PathLike) or os.path.isabs(args[0]):
            return
        events.append(event)
        if len(events) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if event == "os.rename" and str(args[1]).endswith("state"):
            while terms:
                os.kill(os.getpid(), terms.pop())

    sys.addaudithook(hook)
    from attention_dynamics.cli import run_script

    run_script(module.main)
    number, kill_at = len(events), None
    Path("events.txt").write_text(str(number))


def result_of(folder: Path) -> dict[str, object]:
    """All files of ``folder``: their bytes, or of a JSON file what is the same in every run.

    The Trainer's checkpoints are left out: which it keeps depends on the interruptions.
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
    return [_lasting(entry) for entry in value] if isinstance(value, list) else value


class Victim:
    """A case in a prepared folder, with the result of a run that nobody has killed."""

    def __init__(self, folder: Path, case: Case):
        """Prepare ``case`` in ``folder``/prepared, and run it in ``folder``/whole."""
        self.case, self.folder = case, folder
        prepared = folder / "prepared"
        prepared.mkdir()
        if case.script.startswith("classification"):
            make_small_set(prepared, load_folder(ROOT / "classification"))
        if case.script.startswith("translation"):
            with contextlib.chdir(prepared):
                make_small_pairs(prepared, load_folder(ROOT / "translation"))
        if case.script.startswith("papa"):
            make_tiny_task(prepared)
        for name in case.before:
            finish(prepared, CASES[name])
        begun = time.perf_counter()
        whole = self.prepared_copy("whole")
        self.events = finish(whole, case)
        self.seconds = time.perf_counter() - begun
        self.result = result_of(whole)

    def prepared_copy(self, name: str) -> Path:
        """A new folder ``name`` in which the case can be run."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder / "prepared", folder)
        return folder

    def assert_resumes(self, folder: Path) -> None:
        """A run to the end in ``folder`` has the result of the run that nobody has killed."""
        finish(folder, self.case)
        result = result_of(folder)
        assert result.keys() == self.result.keys()
        assert [name for name in result if result[name] != self.result[name]] == []

    def kill_until_done(self, rng: random.Random, most: int, timed: float) -> int:
        """Start, kill, start again, ... to the end; return the number of kills, at most ``most``.

        A kill comes at a random time with the probability ``timed``, else at a random file event.
        """
        folder = self.prepared_copy("killed")
        kills = 0
        while kills < most:
            if rng.random() < timed:
                process = start(folder, self.case)
                process.join(rng.uniform(0, self.seconds))
                process.kill()
            else:
                process = start(folder, self.case, kill_at=rng.randrange(1, self.events + 1))
            process.join(PATIENCE)
            assert process.exitcode in (0, -signal.SIGKILL), output_of(folder)
            if process.exitcode == 0:
                break
            kills += 1
        self.assert_resumes(folder)
        return kills
