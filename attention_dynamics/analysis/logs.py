"""What eval_dump measured: the scores α, β, Δ of every checkpoint, and its accuracies.

File format (pickle of plain containers and numpy arrays, protocol 5), version 1::

    {"format": "attention_dynamics.logs", "version": 1, "dataset": str,
     "metas": {(name, iteration, metric): float},         # accuracies, as fractions or percent
     "splits": {"val": examples, "train": examples},      # the val examples come first
     "index": int64 (examples,),                          # place of each example in its data file
     "src": {"values": int32 (tokens,), "offsets": int64 (examples + 1,)},
     "trg": int64 (examples,) labels, or {"values", "offsets"} of token ids,
     "arrays": {(name, iteration, "alpha"|"beta"|"grad"): float32 (scores,)}}

The scores of all examples lie one after another in each array. A *row* is one score vector over the
source tokens: one per example in classification, one per target position in translation.

The published layout (``{"metas": ..., "data": [example, ...]}``, each example a dict of "src",
"trg", "split" and (name, iteration, kind) -> array or None) is read too; it is made by
:func:`published_layout`.
"""

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from attention_dynamics.analysis.ragged import Ragged, offsets_of
from attention_dynamics.cli import InputError
from attention_dynamics.storage.files import write_pickle
from attention_dynamics.storage.pickles import load_pickle

FORMAT, VERSION = "attention_dynamics.logs", 1
SUM_TOLERANCE = 1e-4  # float32 rounding over a few thousand tokens


@dataclass
class Logs:
    """All checkpoints of a dataset; see the module's docstring for the fields and shapes."""

    dataset: str
    src: Ragged
    trg: np.ndarray | Ragged
    splits: dict[str, int]
    index: np.ndarray
    metas: dict[tuple[str, int, str], float] = field(default_factory=dict)
    arrays: dict[tuple[str, int, str], np.ndarray] = field(default_factory=dict)

    def __post_init__(self):
        lengths = self.src.lengths
        if isinstance(self.trg, Ragged):
            rows_per_example = self.trg.lengths - 1  # the targets after <s>
        else:
            rows_per_example = np.ones(len(lengths), dtype=np.int64)
        self.row_example = np.repeat(np.arange(len(lengths)), rows_per_example)
        self.row_offsets = offsets_of(lengths[self.row_example])

    @property
    def num_scores(self) -> int:
        """The length of every array."""
        return int(self.row_offsets[-1])

    def examples(self, split: str) -> range:
        """The examples of a split."""
        start = 0 if split == "val" else self.splits["val"]
        return range(start, start + self.splits[split])

    def rows(self, split: str) -> range:
        """The rows (score vectors) of a split's examples."""
        examples = self.examples(split)
        start, stop = np.searchsorted(self.row_example, [examples.start, examples.stop])
        return range(int(start), int(stop))

    def scores(self, name: str, iteration: int, kind: str, split: str) -> Ragged:
        """The score vectors of one checkpoint, a row per example or target position (no copy)."""
        return self.cut(self.arrays[name, iteration, kind], split)

    def has_scores(self, name: str, iteration: int, kind: str, split: str) -> bool:
        """Whether a checkpoint was dumped with these scores for ``split``.

        Δ may be dumped for one split only; it is NaN in the other.
        """
        key = (name, iteration, kind)
        return key in self.arrays and not np.isnan(self.scores(*key, split).values).all()

    def cut(self, values: np.ndarray, split: str) -> Ragged:
        """The rows of ``split`` in ``values``, an array laid out as those of the logs (no copy)."""
        rows = self.rows(split)
        offsets = self.row_offsets[rows.start : rows.stop + 1]
        return Ragged(values[offsets[0] : offsets[-1]], offsets - offsets[0])

    def iterations(self, name: str) -> list[int]:
        """The iterations dumped for a run, ascending; empty when the run is not there."""
        return sorted({it for run, it, kind in self.arrays if run == name and kind == "alpha"})

    def names(self) -> list[str]:
        """The runs dumped, in order of first appearance."""
        return list(dict.fromkeys(name for name, _, _ in self.arrays))


def save_logs(path: str | os.PathLike, logs: Logs) -> None:
    """Write the logs in the format above."""
    write_pickle(path, logs_content(logs))


def logs_content(logs: Logs) -> dict:
    """The content of a pickle of the logs in the format above."""

    def plain(side: Ragged | np.ndarray) -> dict | np.ndarray:
        if not isinstance(side, Ragged):
            return side.astype(np.int64)
        return {"values": side.values.astype(np.int32), "offsets": side.offsets}

    return {
        "format": FORMAT,
        "version": VERSION,
        "dataset": logs.dataset,
        "metas": dict(logs.metas),
        "splits": dict(logs.splits),
        "index": logs.index.astype(np.int64),
        "src": plain(logs.src),
        "trg": plain(logs.trg),
        "arrays": logs.arrays,
    }


def wrong_sum(logs: Logs, alpha: np.ndarray) -> tuple[int, float] | None:
    """The row of ``alpha`` (scores,) whose sum differs most from 1, and its sum; None if all are 1.

    Departure 7: a tolerance of 1e-6 fails by rounding.
    """
    sums = np.add.reduceat(alpha, logs.row_offsets[:-1], dtype=np.float64)
    worst = int(np.abs(sums - 1).argmax())
    return (worst, float(sums[worst])) if abs(sums[worst] - 1) > SUM_TOLERANCE else None


def load_logs(path: str | os.PathLike) -> Logs:
    """Logs from ``path``, in our format or the published layout.

    Raises InputError when the file is missing, corrupt, of another kind or of a newer version.
    """
    content = load_pickle(path, "logs")
    if not isinstance(content, dict) or (content.get("format") != FORMAT and "data" not in content):
        raise InputError(f"{path} does not hold the logs of eval_dump.py")
    if content.get("version", VERSION) != VERSION:
        raise InputError(
            f"logs {path} are of version {content['version']!r}, this code reads {VERSION}: "
            "dump them again with eval_dump.py"
        )
    try:
        if "data" in content:
            logs = _read_published(Path(path).name.removesuffix("_logs.pkl"), **content)
        else:
            src, trg = (
                Ragged(**v) if isinstance(v := content[side], dict) else v
                for side in ("src", "trg")
            )
            keys = ("splits", "index", "metas", "arrays")
            logs = Logs(content["dataset"], src, trg, *(content[key] for key in keys))
        logs.metas = {key: float(value) for key, value in logs.metas.items()}
        check_logs(logs)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise InputError(f"logs {path} are corrupt: {type(error).__name__} {error}") from None
    return logs


def check_logs(logs: Logs) -> None:
    """Raise ValueError, which says why, if the parts of the logs do not fit each other."""
    sizes = [logs.splits[split] for split in ("val", "train")]
    if min(sizes) < 0 or not len(logs.src) == len(logs.trg) == len(logs.index) == sum(sizes):
        raise ValueError("the numbers of examples in src, trg, index and splits differ")
    texts = (logs.src, logs.trg) if isinstance(logs.trg, Ragged) else (logs.src,)
    if min(text.lengths.min() for text in texts) < 1:
        raise ValueError("an example has no tokens")
    for array in (logs.index, *(part for text in texts for part in (text.values, text.offsets))):
        if array.ndim != 1 or array.dtype.kind != "i" or array.min(initial=0) < 0:
            raise ValueError("index, token ids and offsets must be non-negative integers")
    for key in (*logs.metas, *logs.arrays):
        if [*map(type, key)] != [str, int, str] or key[1] < 0:
            raise ValueError(f"{key!r} is not (name, iteration, kind)")
    for key, array in logs.arrays.items():
        if array.shape != (logs.num_scores,) or array.dtype.kind != "f":
            raise ValueError(f"the scores of {key} do not fit the examples")
        if not {(*key[:2], "alpha"), (*key[:2], "beta")} <= logs.arrays.keys():
            raise ValueError(f"{key[0]} lacks alpha or beta at iteration {key[1]}")


def _read_published(dataset: str, metas: dict, data: list) -> Logs:
    """The published layout: a dict per example; those outside the sample are dropped."""
    keys = [key for key in data[0] if isinstance(key, tuple)]
    alphas = [key for key in keys if key[2] == "alpha"]
    sample: dict[str, list] = {"val": [], "train": []}
    numbers = Counter()
    for example in data:
        split = example["split"]
        if all(example.get(key) is not None for key in alphas):
            sample[split].append((numbers[split], example))
        numbers[split] += 1
    index, examples = zip(*sample["val"], *sample["train"], strict=True)
    src, trg = ([example[side] for example in examples] for side in ("src", "trg"))
    trg = Ragged.from_rows(trg) if isinstance(trg[0], list | tuple) else np.array(trg, int)
    splits = {split: len(part) for split, part in sample.items()}
    logs = Logs(dataset, Ragged.from_rows(src), trg, splits, np.array(index, np.int64), metas)
    sizes = np.diff(_example_offsets(logs)).tolist()
    for key in keys:
        # Δ that was not dumped is an empty list, and None in one of the splits.
        rows = [
            np.full(size, np.nan)
            if (row := example.get(key)) is None or len(row) == 0
            else np.ravel(row)
            for example, size in zip(examples, sizes, strict=True)
        ]
        if [len(row) for row in rows] != sizes:
            raise ValueError(f"the scores of {key} do not fit the examples")
        values = np.concatenate(rows).astype(np.float32)
        if not np.isnan(values).all():
            logs.arrays[key] = values
    return logs


def _example_offsets(logs: Logs) -> np.ndarray:
    """``(examples + 1,)``: where the scores of each example begin in an array."""
    first_rows = np.searchsorted(logs.row_example, np.arange(len(logs.src) + 1))
    return logs.row_offsets[first_rows]


def published_layout(logs: Logs, train_set: list[tuple[list, object]]) -> dict:
    """The logs as the papers' code laid them out, for scripts of one's own that expect it.

    Args:
        logs: what was dumped.
        train_set: (source ids, target) of the whole training set, in the order of its file; the
            examples outside the sample get ``None`` arrays, as published.
    """
    offsets = _example_offsets(logs)
    checkpoints = dict.fromkeys(key[:2] for key in logs.arrays)
    keys = [(*at, kind) for at in checkpoints for kind in ("alpha", "beta", "grad")]
    dumped: dict[str, dict[int, dict]] = {"val": {}, "train": {}}
    for split, examples in dumped.items():
        for number in logs.examples(split):
            src, trg = logs.src[number].tolist(), logs.trg[number].tolist()
            example = {"src": src, "trg": trg, "split": split}
            for key in keys:
                if key not in logs.arrays:
                    example[key] = []  # in translation, Δ that was not asked for
                    continue
                scores = logs.arrays[key][offsets[number] : offsets[number + 1]]
                if isinstance(logs.trg, Ragged):
                    scores = scores.reshape(-1, len(src))
                example[key] = None if np.isnan(scores).all() else scores.copy()
            examples[int(logs.index[number])] = example
    data = [*dumped["val"].values()]
    for number, (src, trg) in enumerate(train_set):
        outside = {"src": list(src), "trg": trg, "split": "train", **dict.fromkeys(keys)}
        data.append(dumped["train"].get(number, outside))
    return {"metas": dict(logs.metas), "data": data}
