"""Command line of the four scripts: the published options and those of the Trainer."""

import argparse
import dataclasses
from typing import Literal, NamedTuple

from transformers import HfArgumentParser, TrainingArguments
from transformers.hf_argparser import HfArg
from transformers.trainer_utils import IntervalStrategy

from attention_dynamics.cli import LARGEST_SEED, one_line


@dataclasses.dataclass
class ModelArguments:
    """Where the encoder comes from."""

    _argument_group_name = "model"  # of --help

    model_name_or_path: str = HfArg(
        help="model name on the hub, local directory, or minilm (packaged MiniLM of "
        "papa/requirements.txt)"
    )
    tokenizer_name: str | None = HfArg(
        default=None, help="tokenizer name or directory (default: that of the model)"
    )
    cache_dir: str | None = HfArg(
        default=None, help="cache directory for downloads and encoder states"
    )
    model_revision: str = HfArg(default="main", help="branch, tag or commit of the hub's model")


@dataclasses.dataclass
class DataArguments:
    """Where the examples come from."""

    _argument_group_name = "task and examples"  # of --help

    task_name: str | None = HfArg(
        default=None, help="GLUE task (cola, mrpc, ...), or ner, pos or chunk for labelled words"
    )
    task_dir: str | None = HfArg(
        default=None, help="directory of the task's GLUE files (train.tsv, dev.tsv, ...)"
    )
    dataset_name: str | None = HfArg(default=None, help="dataset on the hub")
    dataset_config_name: str | None = HfArg(default=None, help="configuration of --dataset_name")
    train_file: str | None = HfArg(
        default=None, help="training data: csv, tsv or json; for words CoNLL, CoNLL-U or json"
    )
    validation_file: str | None = HfArg(default=None, help="validation data in the same formats")
    test_file: str | None = HfArg(default=None, help="test data for --do_predict")
    max_seq_length: int = HfArg(
        default=128,
        aliases=["--max_length"],
        help="tokens per example; longer ones are truncated (default: 128)",
    )
    pad_to_max_length: bool = HfArg(
        default=True,
        help="pad to --max_seq_length, not to the longest of the batch (default: true)",
    )
    max_train_samples: int | None = HfArg(default=None, help="number of leading training examples")
    max_eval_samples: int | None = HfArg(default=None, help="number of leading validation examples")
    max_predict_samples: int | None = HfArg(default=None, help="number of leading test examples")
    overwrite_output: bool = HfArg(
        default=False,
        aliases=["--overwrite", "--overwrite_output_dir"],
        help="replace a finished output",
    )

    @property
    def files(self) -> dict[str, str | None]:
        """The user's own files by split."""
        return {
            "train": self.train_file,
            "validation": self.validation_file,
            "test": self.test_file,
        }

    def max_samples(self, split: str) -> int | None:
        """How many examples of a split are used, None for all of them."""
        kind = {"train": "train", "validation": "eval", "test": "predict"}[split.split("_")[0]]
        return getattr(self, f"max_{kind}_samples")


@dataclasses.dataclass
class TokenArguments:
    """Options of token classification only."""

    _argument_group_name = "labelled words"  # of --help

    text_column_name: str | None = HfArg(
        default=None, help="column of the words (default: tokens, or the first one)"
    )
    label_column_name: str | None = HfArg(
        default=None, help="column of the labels (default: {task_name}_tags, or the second one)"
    )
    label_all_tokens: bool = HfArg(
        default=False, help="label all subword tokens of a word, not only its first one"
    )
    return_entity_level_metrics: bool = HfArg(
        default=False, help="also report the scores of each entity type"
    )


@dataclasses.dataclass
class LayoutArguments:
    """The positions of the tokens of an example (Step 0)."""

    _argument_group_name = "layout of the tokens (Step 0)"  # of --help

    use_papa_preprocess: bool = HfArg(
        default=False,
        help="use the paper's layout: first part from position 0, second from the middle, SEP last",
    )
    published_token_types: bool = HfArg(
        default=False,
        help="leave token type ids in place when tokens move, as published (departure 12)",
    )
    drop_unused_positions: bool = HfArg(
        default=True,
        help="leave out positions that no example of the batch uses: same results, faster "
        "(default: true)",
    )


@dataclasses.dataclass
class PapaArguments:
    """Which heads are constant, and what is trained."""

    _argument_group_name = "attention, and what is trained"  # of --help

    use_freeze_extract_pooler: bool = HfArg(
        default=False, help="classify from the states of all layers, not only the last"
    )
    static_heads_dir: str | None = HfArg(
        default=None, help="directory of the constants (avgs.pt of the *_avgs_creator script)"
    )
    sort_calculating: bool = HfArg(
        default=False, help="Step 2: learn and write the order of the heads"
    )
    sorting_heads_dir: str | None = HfArg(
        default=None, help="directory of the order of the heads (sorted_heads.json)"
    )
    static_heads_num: int = HfArg(
        default=0, help="Step 3: number of constant heads (the first ones of the order)"
    )
    grad_for_classifier_only: bool = HfArg(
        default=False, help="frozen encoder: only classifier and pooler are trained"
    )
    grad_for_classifier_and_static_only: bool = HfArg(
        default=False, help="frozen encoder: classifier, pooler and constants are trained"
    )
    cache_encoder_states: bool = HfArg(
        default=False,
        help="train on states of the frozen encoder that are computed once, without dropout "
        "(departure 13)",
    )

    @property
    def freezing(self) -> list[str]:
        """Which of the options that freeze the encoder are given."""
        names = (
            "sort_calculating",
            "grad_for_classifier_only",
            "grad_for_classifier_and_static_only",
        )
        return [name for name in names if getattr(self, name)]


@dataclasses.dataclass(kw_only=True)
class TrainerArguments(TrainingArguments):
    """The Trainer's own options, with the spelling they had when the paper was published."""

    _argument_group_name = "training (options of the transformers library)"  # of --help

    output_dir: str = HfArg(help="output directory of results, checkpoints and the model")
    eval_strategy: IntervalStrategy | str = dataclasses.field(
        default="no",
        metadata={
            "aliases": ["--evaluation_strategy"],
            "help": "interval of evaluation: no, steps or epoch",
        },
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
    per_device_train_batch_size: int = HfArg(default=8, help="batch size")
    seed: int = HfArg(default=42, help="random seed (has no effect on the averages)")
    device: Literal["auto", "cpu", "cuda", "mps"] = HfArg(
        default="auto", help="device of the computation"
    )
    disable_tqdm: bool = HfArg(default=False, help="no progress bar")


class _Parser(HfArgumentParser):
    def error(self, message: str):
        self.exit(2, one_line(f"{self.prog}: error: {message} (see --help)") + "\n")


def parse(description: str, argv: list[str] | None, *kinds: type) -> tuple:
    """The parser, and an instance of each of ``kinds`` (dataclasses) from the command line.

    Exits with one line and code 2 on unknown and invalid options.
    """
    parser = _Parser(
        kinds, description=description, formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )  # fmt: skip
    values = vars(parser.parse_args(argv))
    parsed = []
    for kind in kinds:
        names = [field.name for field in dataclasses.fields(kind) if field.init]
        try:
            parsed.append(kind(**{name: values[name] for name in names}))
        except (ValueError, NotImplementedError, ImportError, RuntimeError) as error:
            # Values that TrainingArguments rejects; missing devices and packages.
            parser.error(" ".join(str(error).split()))
    _check_counts(parser, *parsed)
    return parser, *parsed


def parse_averages(description: str, argv: list[str] | None, *more: type) -> list:
    """The arguments of a script that averages attention, and those of ``more`` dataclasses."""
    kinds = (ModelArguments, DataArguments, LayoutArguments, AveragesArguments)
    return parse(description, argv, *kinds, *more)[1:]


class Options(NamedTuple):
    """All options of run_papa_glue.py and run_papa_ner.py except :class:`TokenArguments`."""

    model: ModelArguments
    data: DataArguments
    layout: LayoutArguments
    papa: PapaArguments
    trainer: TrainerArguments

    @property
    def splits(self) -> list[str]:
        """The splits that are read."""
        wanted = {
            "train": self.trainer.do_train,
            "validation": self.trainer.do_eval,
            "test": self.trainer.do_predict,
        }
        return [split for split, is_wanted in wanted.items() if is_wanted]


def parse_run(description: str, argv: list[str] | None, *more: type) -> tuple:
    """The parser, the options of a training script, and the arguments of ``more`` dataclasses.

    Exits with one line and code 2 on options that contradict each other.
    """
    parser, *parsed = parse(description, argv, *Options.__annotations__.values(), *more)
    options = Options(*parsed[: len(Options._fields)])
    _check_options(parser, options)
    return parser, options, *parsed[len(Options._fields) :]


def _check_options(parser: _Parser, options: Options) -> None:
    papa = options.papa
    if not options.splits:
        parser.error("nothing to do: give --do_train, --do_eval or --do_predict")
    if papa.sort_calculating and not options.trainer.do_train:
        parser.error("--sort_calculating needs --do_train: the order is learned")
    if len(papa.freezing) > 1:
        parser.error(f"--{papa.freezing[0]} and --{papa.freezing[1]} exclude each other")
    epochs = options.trainer.num_train_epochs
    if options.trainer.do_train and options.trainer.max_steps < 1 and not epochs > 0:
        parser.error(f"--num_train_epochs must be above 0, not {epochs}")
    rate = options.trainer.learning_rate
    if not 0 <= rate < float("inf"):
        parser.error(f"--learning_rate must be a number from 0, not {rate}")
    if papa.static_heads_num < 0:
        parser.error(f"--static_heads_num must be at least 0, not {papa.static_heads_num}")
    if papa.sort_calculating and papa.static_heads_num:
        parser.error("--sort_calculating mixes all heads: give no --static_heads_num")
    if (papa.sort_calculating or papa.static_heads_num) and papa.static_heads_dir is None:
        what = "--sort_calculating" if papa.sort_calculating else "--static_heads_num"
        parser.error(f"{what} needs --static_heads_dir, the directory of the constants")
    if papa.static_heads_num and papa.sorting_heads_dir is None:
        parser.error("--static_heads_num needs --sorting_heads_dir, the directory of the order")
    if papa.grad_for_classifier_and_static_only and not papa.static_heads_num:
        parser.error("--grad_for_classifier_and_static_only needs a --static_heads_num above 0")
    if papa.cache_encoder_states and not (
        papa.grad_for_classifier_only and papa.use_freeze_extract_pooler
    ):
        parser.error(
            "--cache_encoder_states needs --grad_for_classifier_only and "
            "--use_freeze_extract_pooler: only then nothing but a head on the states is trained"
        )
    if papa.cache_encoder_states and options.trainer.train_sampling_strategy != "random":
        parser.error(
            f"--train_sampling_strategy {options.trainer.train_sampling_strategy} knows no lengths "
            "of cached states: leave it out"
        )


def _check_counts(parser: _Parser, *parsed) -> None:
    """Reject counts of examples or positions below 1, and seeds that no generator takes."""
    counts = (
        "max_seq_length", "max_train_samples", "max_eval_samples", "max_predict_samples",
        "per_device_train_batch_size", "per_device_eval_batch_size",
    )  # fmt: skip
    for options in parsed:
        for name in counts:
            value = getattr(options, name, None)
            if value is not None and value < 1:
                parser.error(f"--{name} must be at least 1, not {value}")
        seed = getattr(options, "seed", 0)
        if not 0 <= seed <= LARGEST_SEED:
            parser.error(f"--seed must be from 0 to {LARGEST_SEED}, not {seed}")
