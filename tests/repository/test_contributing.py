"""CONTRIBUTING.md names files, functions and options that exist."""

import re

import pytest
from conftest import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
CODE = [
    "attention_dynamics",
    "classification",
    "translation",
    "SequenceCopying",
    "papa",
    "benchmarks",
]
FILES = [path for path in ROOT.rglob("*") if path.is_file() and ".venv" not in path.parts]


@pytest.mark.parametrize("name", sorted(set(re.findall(r"[\w/.-]+\.(?:py|sh|json|md)\b", TEXT))))
def test_each_file_exists(name):
    made = {"about.json", "run.json", "unfinished.json", "_log.json", "headcomb.json"}
    assert name in made or any(path.match(name) for path in FILES)


@pytest.mark.parametrize("folder", CODE)
def test_map_names_every_module(folder):
    section = TEXT.partition(f"### {folder}/")[2].partition("\n#")[0]
    modules = {p.relative_to(ROOT / folder).as_posix() for p in (ROOT / folder).rglob("*.py")}
    modules = {name for name in modules if not name.endswith("__init__.py")}
    modules = {name for name in modules if not name.startswith("reference/")}
    assert set(re.findall(r"^\| `([\w/]+\.py)` \|", section, re.MULTILINE)) == modules


@pytest.mark.parametrize(
    "name", ["DATASETS", "LAYOUTS", "SHORT", "LEVELS", "Baseline", "GENERATORS"]
)
def test_each_name_exists(name):
    assert f"`{name}`" in TEXT
    pattern = re.compile(rf"^(?:def |class )?{name}\b", re.MULTILINE)
    assert any(pattern.search(path.read_text()) for path in FILES if path.suffix == ".py")


def test_the_picture_is_closed():
    picture = re.search(r"```mermaid\n(.*?)```", TEXT, re.DOTALL)[1]
    assert picture.count("subgraph") == len(re.findall(r"^\s*end$", picture, re.MULTILINE))
