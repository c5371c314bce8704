"""What all tests share: the scripts of a folder as modules, golden data, and running a script."""

import gzip
import importlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"
signal.signal(signal.SIGINT, signal.default_int_handler)  # `bash test.sh &` starts with it ignored
ROOT = Path(__file__).resolve().parent.parent
GOLDEN = Path(__file__).resolve().parent / "golden"


def load_folder(folder: Path) -> SimpleNamespace:
    """Every module of an experiment's folder, imported as its scripts import each other.

    The modules of a package in the folder are attributes of the package. The folders share names
    (models, data, preparation), so those of another folder are forgotten first.
    """
    paths = [*folder.glob("*.py"), *folder.glob("preparation/[!_]*.py")]
    names = sorted(".".join(path.relative_to(folder).with_suffix("").parts) for path in paths)
    for name in [*sys.modules]:
        if name in names or name.partition(".")[0] == "preparation":
            del sys.modules[name]
    sys.path.insert(0, str(folder))
    try:
        modules = {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(folder))
    if "preparation" in sys.modules:
        modules["preparation"] = sys.modules["preparation"]
    return SimpleNamespace(**{name: module for name, module in modules.items() if "." not in name})


@pytest.fixture(scope="session")
def classification() -> SimpleNamespace:
    """The modules of classification/, such as ``classification.data.load_dataset``."""
    return load_folder(ROOT / "classification")


@pytest.fixture(scope="session")
def translation() -> SimpleNamespace:
    """The modules of translation/, such as ``translation.scores.predict``."""
    return load_folder(ROOT / "translation")


@pytest.fixture(scope="session")
def copying() -> SimpleNamespace:
    """The modules of SequenceCopying/, such as ``copying.models.read``."""
    return load_folder(ROOT / "SequenceCopying")


@pytest.fixture(scope="module")
def papa() -> SimpleNamespace:
    """The modules of papa/, such as ``papa.data.Collator``; some import others when called."""
    return load_folder(ROOT / "papa")


@pytest.fixture(scope="session")
def plain_translation() -> ModuleType:
    """The plain reference of the translation experiment, benchmarks/reference/translation.py."""
    return plain_reference("translation")


@pytest.fixture(scope="session")
def plain_copying() -> ModuleType:
    """The plain reference of the copying experiment, benchmarks/reference/copying.py."""
    return plain_reference("copying")


def plain_reference(name: str) -> ModuleType:
    """benchmarks/reference/{name}.py as a module."""
    path = ROOT / "benchmarks" / "reference" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"plain_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pytest_collection_modifyitems(items) -> None:
    """Skip the tests marked ``cuda`` where torch finds no CUDA device."""
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("cuda"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, content: str | bytes) -> Path:
    """Write a file, gzipped if its name ends in .gz, and its parent directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


class Hostile:
    """Makes a folder when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("harm",)


class HubRows(list):
    """The rows of one split, with the interface of `datasets`."""

    @property
    def column_names(self):
        return list(self[0])


@pytest.fixture
def hub(monkeypatch) -> SimpleNamespace:
    """Replaces the hub's libraries: ``hub.splits`` are its rows, ``hub.asked`` the requests."""
    state = SimpleNamespace(splits={}, asked=[])

    class HfApi:
        def dataset_info(self, name, revision, timeout):
            return SimpleNamespace(sha=revision or "newest")

    def load_dataset(*name, revision):
        state.asked.append((*name, revision))
        return {split: HubRows(rows) for split, rows in state.splits.items()}

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(HfApi=HfApi))
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return state


@pytest.fixture(autouse=True)
def one_thread():
    """Every test computes on one thread, whatever a script set before."""
    torch.set_num_threads(1)


@pytest.fixture
def golden_classification(tmp_path, monkeypatch) -> Path:
    """The working directory of :func:`copy_golden`."""
    return copy_golden("classification", tmp_path, monkeypatch)


@pytest.fixture
def golden_translation(tmp_path, monkeypatch) -> Path:
    """The working directory of :func:`copy_golden`."""
    return copy_golden("translation", tmp_path, monkeypatch)


def copy_golden(experiment: str, folder: Path, monkeypatch) -> Path:
    """Copy tests/golden/{experiment} to ``folder`` and go there; returns ``folder``."""
    shutil.copytree(GOLDEN / experiment, folder, dirs_exist_ok=True)
    (folder / "outputs").rename(folder / "golden")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def small_set(tmp_path, monkeypatch, classification) -> Path:
    """A working directory with a small dataset "small", a small model config and a log config."""
    make_small_set(tmp_path, classification)
    monkeypatch.chdir(tmp_path)
    return tmp_path


SMALL_RUNS = (("normal_A", 20, False), ("normal_B", 13, False), ("uniform", 12, True))
SMALL_ITERATIONS = (0, 5, 11)
SMALL_MODEL = {"hidden_dim": 6, "intermediate_dim": 5, "embed_dim": 7, "batch_size": 8}


def make_small_set(folder: Path, classification, num_train: int = 70, num_test: int = 30) -> None:
    """Sentences over 40 words, in which "w1" votes for label 1 and "w2" for label 0."""
    from attention_dynamics.storage.files import write_json

    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(40)]
    for split, size in (("train", num_train), ("test", num_test)):
        pairs = []
        for _ in range(size):
            label = int(rng.integers(2))
            sentence = rng.integers(3, 40, rng.integers(1, 12)).tolist()
            sentence.insert(int(rng.integers(len(sentence) + 1)), 1 if label else 2)
            pairs.append([sentence, label])
        write_json(folder / "data" / f"small_{split}.json", {"vocab": words, "XY": pairs}, None)
    write_json(folder / "configs" / "model.json", SMALL_MODEL)
    entries = [
        {"name": name, "iteration": iteration, "seed": seed, "uniform": uniform}
        for name, seed, uniform in SMALL_RUNS
        for iteration in SMALL_ITERATIONS
    ]
    write_json(folder / "configs" / "small_log.json", entries)


def train_small_set(classification) -> None:
    """Train the runs of :func:`make_small_set`'s log config."""
    for _, seed, uniform in SMALL_RUNS:
        args = ["--dataset", "small", "--seed", str(seed), "--steps", "12", "--custom_saves", "0,5"]
        classification.train_classifier.main([*args, *(["--uniform"] if uniform else [])])


SRC_WORDS = ["lima", "kono", "sepu", "taro", "wibe", "duga", "rofe", "mizu", "hacu", "peno"]
TRG_WORDS = ["xad", "yob", "zet", "vul", "jik", "qem", "wor", "gat", "nis", "fup"]
SMALL_VOCAB = 45


def make_small_pairs(folder: Path, translation) -> None:
    """A dataset "small" of 40 + 12 pairs, a small model config and a log config.

    ``folder`` is the working directory.
    """
    from attention_dynamics.storage.files import write_json, write_text

    rng = np.random.default_rng(0)
    for split, size in (("train", 40), ("val", 12)):
        words = [rng.integers(0, 10, rng.integers(1, 8)) for _ in range(size)]
        for side, lexicon in {"aa": SRC_WORDS, "bb": TRG_WORDS}.items():
            lines = [" ".join(lexicon[word] for word in sentence) for sentence in words]
            write_text(folder / f"data/small/{split}.{side}", "\n".join(lines) + "\n")
    write_json(folder / "data/small/about.json", {"languages": ["aa", "bb"]})
    write_json(
        folder / "configs/model.json",
        {"hidden_dim": 8, "dropout": 0.3, "num_layers": 2, "batch_size": 8},
    )
    entries = [
        {"name": name, "iteration": iteration, "seed": seed, "uniform": uniform,
         "calculate_grad": name == "normal_A"}
        for name, seed, uniform in SMALL_RUNS
        for iteration in (0, 3, 9)
    ]  # fmt: skip
    write_json(folder / "configs/small_log.json", entries)
    pairs, _ = translation.data.read_pairs(translation.data.layout_of("small"), "train")
    model = translation.data.make_pieces(folder, pairs, SMALL_VOCAB)
    Path("data/small/small.model").write_bytes(model)


def run_script(script: str, *args: object, cwd: Path) -> subprocess.CompletedProcess:
    """Run ``folder/script.py`` of the repository as a user does; returns the finished process."""
    return subprocess.run(
        [sys.executable, str(ROOT / script), *map(str, args)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )


def assert_refused(process: subprocess.CompletedProcess, *parts: str) -> None:
    """The script ended with exit code 2 and one line on stderr that holds all ``parts``."""
    assert process.returncode == 2, (process.returncode, process.stdout, process.stderr)
    line = process.stderr.strip()
    assert "Traceback" not in line
    assert "\n" not in line, line
    for part in parts:
        assert part in line, line


def refused(function, *args: object, **options: object) -> str:
    """The message, of one line, with which ``function`` rejects its arguments or its input."""
    from attention_dynamics.cli import InputError

    with pytest.raises(InputError) as error:
        function(*args, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def assert_published_layout(ours: dict, golden: dict, **tolerance: float) -> None:
    """Whether the dicts of two dumps hold the same examples, scores within ``tolerance``."""
    for example, wanted in zip(ours["data"], golden["data"], strict=True):
        assert example.keys() == wanted.keys()
        for key, value in wanted.items():
            if isinstance(value, np.ndarray):
                np.testing.assert_allclose(example[key], value, **tolerance, err_msg=str(key))
            else:
                assert example[key] == value, key


def assert_statistics(results: dict, golden: dict, baseline: float, tolerance_of) -> None:
    """Whether statistics are the golden ones, within ``tolerance_of(key, name)``.

    Golden baselines come from unseeded shuffles: both are within ``baseline`` of what is expected.
    """
    assert results.keys() == golden.keys()
    for key, numbers in golden.items():
        for name, value in numbers.items():
            ours, what = results[key][name], f"{key} {name}"
            if value is None:
                assert ours is None, what
            elif name == "baseline":
                exact = results[key]["baseline_exact"]
                assert [ours, value] == pytest.approx([exact, exact], abs=baseline), what
            else:
                tolerance = tolerance_of(key, name)
                np.testing.assert_allclose(ours, value, rtol=0, atol=tolerance, err_msg=what)
