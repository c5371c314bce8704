"""Every command of README.md and docs/: run on small data in a clean folder, or its options read.

What is run is the very line of the page, with options behind it that make it small (SMALL) and
files in place of /path/to/... (SOURCES). A batch file is run with a stand-in for Python that makes
a dry run of the workflow; its commands are then run in this process, which loads torch once. What
would take minutes even so (PARSED: run.sh, test.sh, MiniLM, searching good heads) is not run here:
its options are read, or its syntax checked; it is tried by hand.
"""

import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import ROOT, load_folder, write
from grid import DRY_RUN, commands, make_models_small, write_program

from attention_dynamics.storage.files import read_json

COMMAND = re.compile(r"(?:[A-Z]+=\S+ +)*(python|bash|cd) ")

# Options that make a step small; the last of two equal options counts.
TRAIN, DUMP = "--custom_saves 0,3 ", "--make_log_config --overwrite "
SMALL = {
    "classification/train_classifier.py": TRAIN + "--steps 6",
    "classification/eval_dump.py": DUMP,
    "classification/embedding_beta.py": "--epochs 1",
    "classification/../examples/own_model.py": "--steps 2 --test_set_size 20",
    "translation/prepare_data.py": "--vocab_size 26 --overwrite",
    "translation/train_translation.py": TRAIN + "--epochs 1",
    "translation/eval_dump.py": DUMP + "--beam_size 1",
    "translation/embedding_beta.py": "--epochs 1",
    "SequenceCopying/seq2seq.py": "--num_seeds 1 --steps_s1 11 --hidden_dim 8 --jobs 1",
    "SequenceCopying/toy_dynamics.py": "--time 20",
}
# Not run, only read: the script's parse_args, or bash -n of a batch file.
PARSED = re.compile(
    r"SequenceCopying/(multihead|copying_runs)|papa/|\./(run|test)\.sh|\./(benchmarks|results)/"
)

# docs/cluster.md has the commands of the workflow, which tests/repository/test_workflow.py runs.
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted(ROOT.glob("docs/*.md")) if page.name != "cluster.md"),
]


def blocks(text: str) -> list[list[str]]:
    """The commands of each code block that has any: without comments, continued lines joined."""
    found = []
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        lines = block.replace("\\\n", " ").splitlines()
        if any(re.match(r"for |\w+=", line) and not COMMAND.match(line) for line in lines):
            lines = expanded(block)
        commands = [shlex.join(shlex.split(line, comments=True)) for line in lines]
        commands = [line for line in commands if line]
        if any(COMMAND.match(line) for line in commands):
            found.append(commands)
    return found


def expanded(block: str) -> list[str]:
    """The commands of a block with loops and variables, as the shell would run them."""
    noted = "".join(
        f"{name}() {{ printf '%q ' {name} \"$@\"; echo; }}\n" for name in ("python", "bash", "cd")
    )
    done = subprocess.run(
        ["bash", "-euc", noted + block], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def sentences(count: int) -> list[str]:
    drawn = np.random.default_rng(count).integers(0, 12, (count, 4))
    return [
        " ".join(f"word{i}" for i in row) + f" n{n + 1000 * count}" for n, row in enumerate(drawn)
    ]


def write_sources(root: Path) -> dict[str, Path]:
    """Small data in the forms that the README speaks of; the placeholder of each -> its path."""

    def write_lines(path: str, lines: list[str]) -> None:
        write(root / path, "\n".join([*lines, ""]))

    for split, count in (("train", 40), ("dev", 6), ("test", 12)):
        trees = []
        for n, sentence in enumerate(sentences(count)):
            tree = "(2 good)" if n % 2 else "(2 bad)"
            for word in sentence.split():
                tree = f"(2 {tree} (2 {word}))"
            trees.append(f"({4 * (n % 2)}{tree[2:]}")
        write_lines(f"sources/trees/{split}.txt", trees)
    for split, count in (("train", 40), ("val", 8)):
        for language in ("de", "en"):
            write_lines(f"sources/task1/raw/{split}.{language}.gz", sentences(count))
    for name, count in (("train", 40), ("test", 12)):
        rows = [
            f'"{"bad" if n % 2 else "good"}, {s}",{1 + 4 * (n % 2)}'
            for n, s in enumerate(sentences(count))
        ]
        write_lines(f"classification/{name}.csv", ["review,stars", *rows])
    for name, count in (("a", 40), ("b", 8)):
        for language in ("de", "en"):
            write_lines(f"translation/{name}.{language}", sentences(count))
    return {f"/path/to/{name}": root / "sources" / name for name in ("trees", "task1/raw")}


@pytest.fixture(scope="module")
def clean_copy(tmp_path_factory) -> Path:
    """The repository as a clone has it (no ignored file), with small model configs."""
    root = tmp_path_factory.mktemp("clone")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True,
        check=True,
    ).stdout.decode()  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if not name.startswith(("tests/", "benchmarks/results/")) and (ROOT / name).exists():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name)
    make_models_small(root)
    write_program(root / "recorder.sh", DRY_RUN)
    return root


class Runner:
    """Runs command lines in a copy of the repository, in this process."""

    def __init__(self, root: Path, monkeypatch):
        self.root, self.monkeypatch = root, monkeypatch
        self.folder = "."
        self.modules: dict[str, SimpleNamespace] = {}
        self.ran: set[str] = set()

    def line(self, line: str) -> None:
        words = shlex.split(line)
        settings = dict(word.split("=", 1) for word in words if re.match("[A-Z]+=", word))
        command, name, *options = words[len(settings) :]
        path = self.root / self.folder / name
        assert path.exists(), line
        if command == "cd":
            self.folder = "." if name == ".." else name
        elif command == "python":
            self.python([name, *options])
        elif PARSED.match(f"{self.folder}/{name}"):
            subprocess.run(["bash", "-n", str(path)], check=True)
        else:
            self.batch([name, *options], settings)

    def batch(self, words: list[str], settings: dict[str, str]) -> None:
        environment = {
            "PATH": "/usr/bin:/bin", "PYTHON": str(self.root / "recorder.sh"),
            "PYTHONPATH": str(ROOT), **settings, "JOBS": "1",
        }  # fmt: skip
        done = subprocess.run(
            ["bash", *words], cwd=self.root / self.folder, env=environment, capture_output=True,
            text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        for command in commands(done.stdout + done.stderr):
            self.python(shlex.split(command))

    def python(self, words: list[str]) -> None:
        self.monkeypatch.chdir(self.root / self.folder)
        script = f"{self.folder}/{words[0]}"
        options = [*words[1:], *SMALL.get(script, "").split()]
        self.monkeypatch.setattr(sys, "argv", [words[0], *options])
        if PARSED.match(script):
            if self.folder != ".":
                getattr(self.of_folder(), Path(script).stem).parse_args(options)
        elif "/" in words[0]:  # it imports modules of its own folder, and rejects another library
            path = (ROOT / script).resolve()
            subprocess.run([sys.executable, str(path), *options], check=True)
        elif self.folder == ".":
            runpy.run_path(str(self.root / script))["main"](options)
        else:
            getattr(self.of_folder(), Path(script).stem).main(options)
        self.ran.add(script)

    def of_folder(self) -> SimpleNamespace:
        """The modules of the current folder of the copy."""
        if self.folder not in self.modules:
            self.modules[self.folder] = load_folder(self.root / self.folder)
        return self.modules[self.folder]


def test_commands_of_every_page_run(clean_copy, monkeypatch, capsys):
    monkeypatch.chdir(clean_copy)
    sources = write_sources(clean_copy)
    text = "\n".join(page.read_text() for page in PAGES)
    for placeholder, path in sources.items():
        text = text.replace(placeholder, str(path))
    runner = Runner(clean_copy, monkeypatch)
    for block in blocks(text):
        runner.folder = "."
        for line in block:
            if line == "source .venv/bin/activate":
                continue
            assert COMMAND.match(line), f"not a command: {line}"
            runner.line(line)
    # The tutorial ends in the report, without a file written by hand.
    page = (clean_copy / "report" / "index.html").read_text()
    for folder in ("classification", "translation"):
        assert f"from {folder}/results/mine.pkl" in page
        assert f"{folder}/figures/mine_val_" in page
        entries = read_json(clean_copy / folder / "configs/mine_log.json")
        assert {"normal_A", "normal_B", "uniform"} <= {entry["name"] for entry in entries}
    assert SMALL.keys() <= runner.ran


def test_pages_have_known_placeholders_and_existing_scripts():
    text = "\n".join(page.read_text() for page in PAGES)
    assert set(re.findall(r"/path/to/[\w/]+", text)) <= {
        "/path/to/trees",
        "/path/to/task1/raw",
        "/path/to/CoLA",  # only read: MiniLM takes minutes
    }
    for name in re.findall(r"`(?:python|bash) ([\w/]+\.(?:py|sh))", text):
        assert [*ROOT.glob(f"**/{name}")], name


def test_troubleshooting_quotes_messages_of_the_code():
    """The messages in the first column, except for names and numbers, are in the code."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    rows = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert len(rows) >= 8
    paths = [path for glob in ("*/*.py", "*/*/*.py", "*.sh") for path in ROOT.glob(glob)]
    code = "".join(path.read_text() for path in paths if ".venv" not in path.parts)
    code = re.sub(r'"\s+f?"', "", re.sub(r"\{[^{}]*\}|\$\([^()]*\)", "*", code))
    names = r"configs/mine_log\.json|data/mine|node7|Python [\d.]+(?=,)|UTF-16|\b(600|8000|4321)\b"
    for row in rows:
        assert re.sub(names, "*", row) in code, row
