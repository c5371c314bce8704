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
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from attention_dynamics.analysis.ragged import Ragged, offsets_of
from attention_dynamics.cli import InputError
from attention_dynamics.storage.files import write_pickle
from attention_dynamics.storage.pickles import load_pickle

FORMAT, VERSION = "attention_dynamics.logs", 1


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
    """Write the logs in the format above: hardly more bytes than the raw numbers."""
    write_pickle(path, logs_content(logs))


def logs_content(logs: Logs) -> dict:
    """The content of a pickle of the logs in the format above."""
    trg = (
        _as_dict(logs.trg, np.int32) if isinstance(logs.trg, Ragged) else logs.trg.astype(np.int64)
    )
    return {
        "format": FORMAT,
        "version": VERSION,
        "dataset": logs.dataset,
        "metas": dict(logs.metas),
        "splits": dict(logs.splits),
        "index": logs.index.astype(np.int64),
        "src": _as_dict(logs.src, np.int32),
        "trg": trg,
        "arrays": logs.arrays,
    }


def _as_dict(ragged: Ragged, dtype) -> dict:
    return {"values": ragged.values.astype(dtype), "offsets": ragged.offsets}


def load_logs(path: str | os.PathLike) -> Logs:
    """Logs from ``path``, in our format or the published layout.

    Raises InputError when the file is missing, corrupt, of another kind or of a newer version.
    """
    content = load_pickle(path, "logs")
    if not isinstance(content, dict):
        raise InputError(
            f"logs {path} hold a {type(content).__name__}, not the logs of eval_dump.py"
        )
    try:
        if content.get("format") == FORMAT:
            if content["version"] != VERSION:
                raise InputError(
                    f"logs {path} are of version {content['version']!r}, this code reads "
                    f"{VERSION}: dump them again with eval_dump.py"
                )
            trg = content["trg"]
            logs = Logs(
                dataset=content["dataset"],
                src=Ragged(**content["src"]),
                trg=Ragged(**trg) if isinstance(trg, dict) else trg,
                splits=content["splits"],
                index=content["index"],
                metas=content["metas"],
                arrays=content["arrays"],
            )
        elif "metas" in content and "data" in content:
            dataset = Path(path).name.removesuffix("_logs.pkl")
            logs = _read_published(dataset, content["metas"], content["data"])
        else:
            raise InputError(f"{path} does not hold the logs of eval_dump.py")
        _check(logs)
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise InputError(f"logs {path} are corrupt: {type(error).__name__} {error}") from None
    return logs


def _check(logs: Logs) -> None:
    if type(logs.dataset) is not str:
        raise ValueError("dataset must be a name")
    sizes = [logs.splits[split] for split in ("val", "train")]
    if not all(type(size) is int for size in sizes):
        raise ValueError("splits must hold integers")
    if min(sizes) < 0 or not len(logs.src) == len(logs.trg) == len(logs.index) == sum(sizes):
        raise ValueError("the numbers of examples differ between fields")
    for ids in (logs.src, *([logs.trg] if isinstance(logs.trg, Ragged) else [])):
        if not (_is_whole(ids.values) and _is_whole(ids.offsets)):
            raise ValueError("token ids and offsets must be integer arrays")
        if ids.values.min() < 0 or ids.lengths.min() < 1:
            raise ValueError("token ids must be non-negative integers, some in each sentence")
    if not _is_whole(logs.index) or (len(logs.index) and logs.index.min() < 0):
        raise ValueError("index must hold non-negative integers")
    for key, value in logs.metas.items():
        _check_key(key)
        if not isinstance(value, (float, int)) or (isinstance(value, int) and abs(value) > 2**53):
            raise ValueError(f"metas of {key} is {value!r}, not a number")
    for key, array in logs.arrays.items():
        _check_key(key)
        if not isinstance(array, np.ndarray) or array.shape != (logs.num_scores,):
            raise ValueError(f"the scores of {key} do not fit the examples")
        if array.dtype.kind != "f":
            raise ValueError(f"the scores of {key} are of type {array.dtype}")
        if not {(*key[:2], "alpha"), (*key[:2], "beta")} <= logs.arrays.keys():
            raise ValueError(f"{key[0]} lacks alpha or beta at iteration {key[1]}")


def _is_whole(array: object) -> bool:
    return isinstance(array, np.ndarray) and array.ndim == 1 and array.dtype.kind == "i"


def _check_key(key) -> None:
    name, iteration, kind = key
    is_step = type(iteration) is int and iteration >= 0
    if not (isinstance(name, str) and is_step and isinstance(kind, str)):
        raise ValueError(f"{key!r} is not (name, iteration, kind)")


def _read_published(dataset: str, metas: dict, data: list) -> Logs:
    """The published layout: a dict per example; those outside the sample are dropped."""
    keys = [key for key in data[0] if isinstance(key, tuple)]
    alphas = [key for key in keys if key[2] == "alpha"]
    by_split: dict[str, list] = {"val": [], "train": []}
    index: dict[str, list] = {"val": [], "train": []}
    seen = {"val": 0, "train": 0}
    for example in data:
        split = example["split"]
        if all(example.get(key) is not None for key in alphas):
            by_split[split].append(example)
            index[split].append(seen[split])
        seen[split] += 1
    kept = by_split["val"] + by_split["train"]
    if isinstance(data[0]["trg"], (list, tuple)):
        trg = Ragged.from_rows([example["trg"] for example in kept])
    else:
        trg = np.array([int(example["trg"]) for example in kept])
    logs = Logs(
        dataset=dataset,
        src=Ragged.from_rows([example["src"] for example in kept]),
        trg=trg,
        splits={split: len(examples) for split, examples in by_split.items()},
        index=np.array(index["val"] + index["train"], dtype=np.int64),
        metas={key: float(value) for key, value in metas.items()},
    )
    example_offsets = _example_offsets(logs)
    for key in keys:
        values = np.full(logs.num_scores, np.nan, dtype=np.float32)
        present = np.zeros(len(kept), dtype=bool)
        for number, example in enumerate(kept):
            scores = np.ravel(example.get(key) if example.get(key) is not None else [])
            if len(scores):  # Δ that was not asked for is an empty list
                if scores.dtype.kind not in "fiu":
                    raise ValueError(f"scores {key} are no real numbers")
                place = slice(*example_offsets[number : number + 2])
                if len(scores) != len(values[place]):
                    raise ValueError(
                        f"an example has {len(scores)} scores {key}, not {len(values[place])}"
                    )
                with np.errstate(over="ignore"):  # what float32 cannot hold is infinite
                    values[place] = scores
                present[number] = True
        for split in by_split:
            examples = logs.examples(split)
            missing = len(examples) - int(present[examples.start : examples.stop].sum())
            # Δ may be dumped for one split only.
            if missing and (missing < len(examples) or key[2] != "grad"):
                raise InputError(
                    f"logs of {dataset}: {key[2]} of {key[0]} at iteration {key[1]} is missing for "
                    f"{missing} of {len(examples)} {split} examples; dump them again with "
                    "eval_dump.py"
                )
        if present.any():
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
    # In translation, Δ that was not asked for is an empty list.
    checkpoints = dict.fromkeys(key[:2] for key in logs.arrays)
    keys = [(*at, kind) for at in checkpoints for kind in ("alpha", "beta", "grad")]
    dumped = {}
    for split in ("val", "train"):
        for number in logs.examples(split):
            trg = logs.trg[number]
            example = {
                "src": logs.src[number].tolist(),
                "trg": trg.tolist() if isinstance(trg, np.ndarray) else int(trg),
                "split": split,
            }
            length = int(logs.src.lengths[number])
            for key in keys:
                if key not in logs.arrays:
                    example[key] = []
                    continue
                scores = logs.arrays[key][offsets[number] : offsets[number + 1]]
                if isinstance(logs.trg, Ragged):
                    scores = scores.reshape(-1, length)
                example[key] = None if np.isnan(scores).all() else scores.copy()
            dumped[split, int(logs.index[number])] = example
    data = [example for (split, _), example in dumped.items() if split == "val"]
    nothing = dict.fromkeys(keys)
    for place, (src, trg) in enumerate(train_set):
        outside = {"src": list(src), "trg": trg, "split": "train", **nothing}
        data.append(dumped.get(("train", place), outside))
    return {"metas": dict(logs.metas), "data": data}
