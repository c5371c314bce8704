"""What the two prepare_data.py share: options, checks before the work, warnings and the summary."""

import argparse
import contextlib
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from attention_dynamics.cli import InputError, note
from attention_dynamics.reporting.tables import format_table
from attention_dynamics.runs.records import locked
from attention_dynamics.storage import hub
from attention_dynamics.storage.files import check_writable, sha256

TOY = "toy"


@dataclass
class ReadReport:
    """Findings of a reader.

    Attributes:
        expected: split -> counts of the complete public distribution; empty if unknown.
        notes: one sentence each.
    """

    expected: dict = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def add_source_options(parser: argparse.ArgumentParser, unit: str) -> None:
    """Add the options that both scripts have; ``unit`` is "examples" or "pairs"."""
    parser.add_argument("--source", metavar="PATH", help="raw dataset (file, directory or archive)")
    parser.add_argument(
        "--download", action="store_true", help="download the dataset from the Hugging Face hub"
    )
    parser.add_argument(
        "--revision",
        metavar="COMMIT",
        help="with --download: commit of the hub's repository (default: the newest, which is "
        "printed and stored in about.json)",
    )
    parser.add_argument(
        "--drop_duplicates",
        action="store_true",
        help=f"leave out training {unit} that are also test or validation {unit}",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace existing files")


def check_source_options(args: argparse.Namespace, parser: argparse.ArgumentParser) -> list[str]:
    """Return the given options that name the source of the texts; end if they conflict."""
    options = {"--source": args.source, "--download": args.download, "--train": args.train}
    given = [option for option, value in options.items() if value]
    if len(given) > 1:
        parser.error(f"{' and '.join(given)} exclude each other: the texts come from one of them")
    if args.revision and not args.download:
        parser.error("--revision goes with --download")
    if args.dataset == TOY and given:
        parser.error(f"--dataset toy is generated and takes no {given[0]}")
    return given


@contextlib.contextmanager
def reserve_outputs(
    script: str, locked_path: Path, paths: Sequence[Path], overwrite: bool
) -> Iterator[None]:
    """Hold the lock of ``locked_path`` in data/ while the block writes ``paths``.

    Raises InputError if the working directory is another one than the ``script``'s in the
    repository, if a file cannot be written, or exists without ``overwrite``; RunError if another
    process prepares the dataset.
    """
    home, here = Path(script).resolve().parent, Path.cwd()
    if here != home and home.parent in (here, here.parent):
        raise InputError(
            f"working directory {here}: the other scripts read {home}/data, not {here}/data; run "
            f"prepare_data.py in {home}"
        )
    for path in paths:
        check_writable(path)
    with locked(locked_path):
        for path in paths:
            if path.exists() and not overwrite:
                raise InputError(f"{path} already exists; use --overwrite to replace it")
        yield


def file_facts(path: str | os.PathLike) -> dict:
    """The name and the checksum of a file or directory that data are prepared from."""
    return {"name": Path(path).resolve().name, "sha256": sha256(path)}


def download_revision(repository: str, revision: str | None, report: ReadReport) -> str:
    """The commit of a hub repository to download: ``revision``, or the newest, which is noted."""
    commit = hub.resolve_revision(repository, revision)
    if not revision:
        report.notes.append(f"downloaded at --revision {commit}, currently the newest")
    return commit


def incomplete_warning(split: str, counts: str, expected: str) -> str:
    """The warning that a split is not the one of the complete public distribution."""
    return (
        f"{split} has {counts}, the complete public distribution {expected}: its results are not "
        "those of the complete set"
    )


def shared_warning(number: int, examples: str, split: str, dropped: bool) -> str:
    """The warning that ``number`` training examples (or pairs) are also in another split."""
    fate = "left out" if dropped else "kept (--drop_duplicates leaves them out)"
    return f"training {examples} that are also {split} {examples}: {number:,}, {fate}"


def empty_warning(split: str, empty: int, total: int, unit: str) -> str | None:
    """A warning if more than 5% of the documents (or pairs) of a split have no text, else None."""
    if empty > 0.05 * total:
        return (
            f"MOST LIKELY MISREAD: {empty:,} of {total:,} {split} {unit} ({empty / total:.0%}) "
            "have no text; check the columns, the line ends and the encoding of the files"
        )
    return None


def length_columns(lengths: np.ndarray, unit: str) -> dict:
    """Columns of the summary: minimum (in ``unit``), mean, median and maximum of lengths."""
    return {
        f"min {unit}": int(lengths.min()),
        "mean": round(float(lengths.mean()), 3),
        "median": float(np.median(lengths)),
        "max": int(lengths.max()),
    }


def summarize_preparation(
    args: argparse.Namespace,
    argv: list[str] | None,
    origin: dict,
    splits: list[dict],
    totals: dict,
    notes: list[str],
    warnings: list[str],
) -> dict:
    """Print the tables of splits and totals (notes and warnings go to stderr).

    Returns the content of about.json; ``origin`` are its entries about the source.
    """
    print(format_table(splits, digits=1))
    print()
    print(format_table([{"": name, args.dataset: value} for name, value in totals.items()]))
    for one in notes:
        note(one)
    for warning in warnings:
        print(f"WARNING: {warning}", file=sys.stderr)
    # Without the directories of absolute paths, which are private.
    argv = sys.argv[1:] if argv is None else argv
    words = [re.sub(r"^(--\w+=)?/.*/", r"\1", str(word)) for word in argv]
    command = shlex.join(["python", "prepare_data.py", *words])
    about = {"dataset": args.dataset, "command": command, "seed": args.seed}
    notices = {"notes": notes, "warnings": warnings}
    return {**about, **origin, "splits": splits, **totals, **notices}
