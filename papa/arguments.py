"""Command line of the four scripts: the published options and those of the Trainer."""

import argparse
import dataclasses
import math
from typing import Literal, NamedTuple

from transformers import HfArgumentParser, TrainingArguments
from transformers.hf_argparser import HfArg
from transformers.trainer_utils import IntervalStrategy

from attention_dynamics.cli import LARGEST_SEED, InputError, one_line


def option(text: str, default=None, aliases: tuple[str, ...] = ()):
    """A field whose option has the help ``text``, which is followed by the default."""
    return HfArg(help=text, default=default, aliases=list(aliases))


_OVERWRITE = ("--overwrite", "--overwrite_output_dir")


@dataclasses.dataclass
class ModelArguments:
    """Where the encoder comes from."""

    _argument_group_name = "model"  # of --help

    model_name_or_path: str = HfArg(help="name on the hub, directory, or minilm (packaged)")
    tokenizer_name: str | None = option("tokenizer name or directory, if not the model's own")
    cache_dir: str | None = option("cache directory for downloads and encoder states")
    model_revision: str = option("branch, tag or commit of the hub's model", "main")


@dataclasses.dataclass
class DataArguments:
    """Where the examples come from."""

    _argument_group_name = "task and examples"  # of --help

    task_name: str | None = option("GLUE task (cola, ...) or, for words, ner, pos, chunk")
    task_dir: str | None = option("directory or archive of the GLUE files (train.tsv, ...)")
    dataset_name: str | None = option("dataset on the hub")
    dataset_config_name: str | None = option("configuration of --dataset_name")
    train_file: str | None = option("training data: csv, tsv, json; CoNLL, CoNLL-U, json for words")
    validation_file: str | None = option("validation data in the same formats")
    test_file: str | None = option("test data for --do_predict")
    max_seq_length: int = option("tokens per example; longer ones are cut", 128, ("--max_length",))
    pad_to_max_length: bool = option("pad to --max_seq_length, not to the longest in batch", True)
    max_train_samples: int | None = option("number of leading training examples")
    max_eval_samples: int | None = option("number of leading validation examples")
    max_predict_samples: int | None = option("number of leading test examples")
    overwrite_output: bool = option("replace a finished output", False, _OVERWRITE)

    @property
    def files(self) -> dict[str, str | None]:
        """The user's own files by split."""
        return {name: getattr(self, f"{name}_file") for name in ("train", "validation", "test")}

    def max_samples(self, split: str) -> int | None:
        """How many examples of a split are used, None for all of them."""
        kind = {"train": "train", "validation": "eval", "test": "predict"}[split.split("_")[0]]
        return getattr(self, f"max_{kind}_samples")


@dataclasses.dataclass
class TokenArguments:
    """Options of token classification only."""

    _argument_group_name = "labeled words"  # of --help

    text_column_name: str | None = option("column of the words (default: 'tokens', else the first)")
    label_column_name: str | None = option("column of the labels (default: that of --task_name)")
    label_all_tokens: bool = option("label all tokens of a word, not only its first one", False)
    return_entity_level_metrics: bool = option("also report scores of each entity type", False)


@dataclasses.dataclass
class LayoutArguments:
    """The positions of the tokens of an example (Step 0)."""

    _argument_group_name = "layout of the tokens (Step 0)"  # of --help

    use_papa_preprocess: bool = option("use the paper's layout of tokens (Step 0)", False)
    published_token_types: bool = option("leave token types where they were (departure 12)", False)
    drop_unused_positions: bool = option(
        "leave out positions that no example of a batch uses", True
    )


@dataclasses.dataclass
class PapaArguments:
    """Which heads are constant, and what is trained."""

    _argument_group_name = "attention, and what is trained"  # of --help

    use_freeze_extract_pooler: bool = option(
        "classify from the states of all layers, frozen", False
    )
    static_heads_dir: str | None = option("directory of the constants, of a *_avgs_creator script")
    sort_calculating: bool = option("Step 2: learn and write the order of the heads", False)
    sorting_heads_dir: str | None = option("directory of the order (sorted_heads.json)")
    static_heads_num: int = option("Step 3: number of constant heads, the first of the order", 0)
    grad_for_classifier_only: bool = option("train classifier and pooler, not the encoder", False)
    grad_for_classifier_and_static_only: bool = option(
        "train classifier, pooler and constants, not the encoder", False
    )
    cache_encoder_states: bool = option("train on stored encoder states (departure 13)", False)

    @property
    def freezing(self) -> list[str]:
        """Which of the options that freeze the encoder are given."""
        grads = "grad_for_classifier_only", "grad_for_classifier_and_static_only"
        return [name for name in ("sort_calculating", *grads) if getattr(self, name)]


@dataclasses.dataclass(kw_only=True)
class TrainerArguments(TrainingArguments):
    """The Trainer's own options, with the spelling they had when the paper was published."""

    _argument_group_name = "training (options of the transformers library)"  # of --help

    output_dir: str = HfArg(help="output directory of results, checkpoints and the model")
    eval_strategy: IntervalStrategy | str = dataclasses.field(
        default="no",
        metadata={"aliases": ["--evaluation_strategy"], "help": "interval of evaluation"},
    )

    def __post_init__(self):
        """Adapt the library's defaults to this machine."""
        super().__post_init__()
        on_cuda = self.device.type == "cuda"
        self.dataloader_pin_memory = self.dataloader_pin_memory and on_cuda  # else it warns
        # Several GPUs in one process would each get a part of the positions: use torchrun.
        self._n_gpu = min(self.n_gpu, 1)
        if self.ddp_find_unused_parameters is None:
            self.ddp_find_unused_parameters = False  # all that is trained is used; else it warns
        # A loss that is not finite ends training; the library would log another one instead.
        self.logging_nan_inf_filter = False


@dataclasses.dataclass
class AveragesArguments:
    """Options of the scripts that average attention."""

    _argument_group_name = "output and hardware"  # of --help

    output_dir: str = HfArg(help="output directory of the constants")
    per_device_train_batch_size: int = option("batch size", 8)
    seed: int = option("random seed (has no effect on the averages)", 42)
    device: Literal["auto", "cpu", "cuda", "mps"] = option("device of the computation", "auto")
    disable_tqdm: bool = option("no progress bar", False)


class _Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """The description as it is, and the default of each option."""


class _Parser(HfArgumentParser):
    def error(self, message: str):
        self.exit(2, one_line(f"{self.prog}: error: {message} (see --help)") + "\n")


# The library accepts 0 and negative numbers for them.
_POSITIVE = (
    "max_train_samples", "max_eval_samples", "max_predict_samples", "per_device_train_batch_size",
    "per_device_eval_batch_size", "gradient_accumulation_steps", "num_train_epochs",
    "learning_rate",
)  # fmt: skip


def parse(description: str, argv: list[str] | None, *kinds: type) -> tuple:
    """An instance of each of ``kinds`` (dataclasses) from the command line.

    Exits with one line and code 2 on unknown and invalid options.
    """
    parser = _Parser(kinds, description=description, formatter_class=_Help, allow_abbrev=False)
    for action in parser._actions:
        if action.const is False:  # --no_X, with the text of --X
            action.help = f"turn --{action.dest} off"
    try:
        parsed = parser.parse_args_into_dataclasses(argv, look_for_args_file=False)
    except (ValueError, NotImplementedError, ImportError, RuntimeError) as error:
        # Values that TrainingArguments rejects; missing devices and packages.
        parser.error(" ".join(str(error).split()))
    values = {name: value for one in parsed for name, value in vars(one).items()}
    for name in _POSITIVE:
        value = values.get(name)
        if value is not None and not 0 < value < math.inf:
            parser.error(f"--{name} must be a positive number, not {value}")
    if not 0 <= values["seed"] <= LARGEST_SEED:
        parser.error(f"--seed must be from 0 to {LARGEST_SEED}")
    return parsed


def parse_averages(description: str, argv: list[str] | None, *more: type) -> tuple:
    """The arguments of a script that averages attention, and those of ``more`` dataclasses."""
    kinds = (ModelArguments, DataArguments, LayoutArguments, AveragesArguments)
    return parse(description, argv, *kinds, *more)


class Options(NamedTuple):
    """All options of run_papa_glue.py and run_papa_ner.py."""

    model: ModelArguments
    data: DataArguments
    layout: LayoutArguments
    papa: PapaArguments
    trainer: TrainerArguments
    tokens: TokenArguments | None = None  # of run_papa_ner.py only

    @property
    def splits(self) -> list[str]:
        """The splits that are read."""
        wanted = {"train": "do_train", "validation": "do_eval", "test": "do_predict"}
        return [split for split, option in wanted.items() if getattr(self.trainer, option)]


_NEEDS = (
    ("sort_calculating", "do_train"),  # the order is learned
    ("sort_calculating", "static_heads_dir"),
    ("static_heads_num", "static_heads_dir"),
    ("static_heads_num", "sorting_heads_dir"),
    ("grad_for_classifier_and_static_only", "static_heads_num"),
    # Only a head on the states may be trained.
    ("cache_encoder_states", "grad_for_classifier_only"),
    ("cache_encoder_states", "use_freeze_extract_pooler"),
)


def parse_run(description: str, argv: list[str] | None, *more: type) -> Options:
    """The options of a training script; InputError if they contradict each other."""
    kinds = (ModelArguments, DataArguments, LayoutArguments, PapaArguments, TrainerArguments)
    options = Options(*parse(description, argv, *kinds, *more))
    given, frozen = vars(options.papa) | vars(options.trainer), options.papa.freezing
    for option, needed in _NEEDS:
        if given[option] and not given[needed]:
            raise InputError(f"--{option} needs --{needed}")
    if frozen[1:] or (options.papa.sort_calculating and options.papa.static_heads_num):
        both = " and --".join([*frozen, "static_heads_num"][:2])
        raise InputError(f"--{both} exclude each other")
    if not options.splits:
        raise InputError("nothing to do: give --do_train, --do_eval or --do_predict")
    return options
