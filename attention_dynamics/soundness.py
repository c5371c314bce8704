"""Whether the installation and what was made with it are sound: versions, checksums, golden values.

Each function returns (problems, what was checked): a line for each thing that is not as it should
be, and a few words that say how much was looked at.
"""

import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attention_dynamics
from attention_dynamics.errors import InputError
from attention_dynamics.files import read_json, sha256
from attention_dynamics.inventory import check_root, same_data

# Of each experiment those that compare with the published code's own numbers, and are quick.
GOLDEN_TESTS = (
    "tests/test_classification_golden.py::test_every_score_and_accuracy_of_every_checkpoint",
    "tests/test_classification_golden.py::test_the_statistics",
    "tests/test_translation_golden.py::test_read_gives_every_score",
    "tests/test_copying.py::test_golden_forward",
    "tests/test_papa_reference.py::test_averages_are_the_published_ones",
    "tests/test_papa_reference.py::test_the_order_is_the_published_one",
    "tests/test_papa_models.py::test_results_are_the_published_ones",
)


def environment_problems() -> tuple[list[str], str]:
    """The pins of requirements.txt, and which copy of the library is in use."""
    check_root()
    problems = []
    pins = pinned_versions(Path("requirements.txt"))
    for package, wanted in pins.items():
        try:
            found = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            problems.append(f"{package} {wanted} is not installed: bash test.sh installs it")
            continue
        if found.partition("+")[0] != wanted:
            problems.append(
                f"{package} is {found}, but requirements.txt says {wanted}: numbers may differ; "
                "bash test.sh installs what is missing"
            )
    library = Path(attention_dynamics.__file__).resolve().parent
    if library != Path("attention_dynamics").resolve():
        problems.append(f"the library in use is {library}, not the one here: pip install -e .")
    return problems, f"{len(pins)} packages and the library"


def pinned_versions(path: Path) -> dict[str, str]:
    """package -> version of the lines ``package==version``. InputError without the file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: is this the root of the repository?") from None
    found = [re.fullmatch(r"([A-Za-z0-9_.-]+)==(\S+)", line.strip()) for line in lines]
    return dict(match.groups() for match in found if match)


def file_problems() -> tuple[list[str], str]:
    """The checksums in records: of outputs, of the checkpoints they name, and of data."""
    problems, checked = [], 0
    for record, path, wanted in recorded_files():
        checked += 1
        if wanted is None:
            problems.append(str(path))
        elif not path.exists():
            problems.append(f"{path} is gone, but {record} describes it: make it again")
        elif sha256(path)[: len(wanted)] != wanted:
            problems.append(f"{path} is not the file that {record} describes: make it again")
    for record, folder, dataset, checksum in _recorded_data():
        checked += 1
        if not same_data(folder, dataset, checksum):
            problems.append(f"{record} is of other data than {folder}/data holds now")
    return problems, f"{checked} checksums"


def recorded_files() -> Iterator[tuple[Path, Path | str, str | None]]:
    """(record, file, its checksum or the first digits of it); (record, problem, None) for bad ones.

    Outputs of the three folders with their .json, and the checkpoints that a dump was made from.
    """
    patterns = (
        "classification/outputs/*.json", "translation/outputs/*.json",
        "SequenceCopying/logs/*.json", "SequenceCopying/re_*headcomb.json",
    )  # fmt: skip
    for record in (path for pattern in patterns for path in sorted(Path().glob(pattern))):
        try:
            content = read_json(record, "record")
        except InputError as error:
            yield record, str(error), None
            continue
        if not isinstance(content, dict) or not isinstance(content.get("sha256"), str):
            yield record, f"record {record} has no checksum: make what it describes again", None
            continue
        yield record, record.with_suffix(".pkl"), content["sha256"]
        settings = content.get("settings")
        for checkpoint in settings.get("checkpoints", []) if isinstance(settings, dict) else []:
            yield record, Path(record.parts[0]) / checkpoint[0], checkpoint[1]


def _recorded_data() -> Iterator[tuple[Path, str, str, str]]:
    """(record, folder, data set, checksum of the data) of runs and outputs."""
    for folder in ("classification", "translation"):
        base = Path(folder)
        for record in sorted([*base.glob("models/*/*/run.json"), *base.glob("outputs/*.json")]):
            try:
                content = read_json(record, "record")
            except InputError:
                continue  # of outputs it has been named; status names that of a run
            settings = content.get("settings") if isinstance(content, dict) else None
            if isinstance(settings, dict) and "data" in settings and "dataset" in settings:
                yield record, folder, settings["dataset"], settings["data"]


def golden_problems() -> tuple[list[str], str]:
    """The golden values of the published code, by the tests that hold them."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *GOLDEN_TESTS]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    lines = done.stdout.splitlines()
    failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    if done.returncode and not failed:
        last = (done.stderr.splitlines() or lines or ["no output"])[-1]
        failed = [f"the tests could not be run: {last}"]
    count = re.search(r"(\d+) passed", done.stdout)
    return failed, f"{count[1] if count else 0} tests against tests/golden"
