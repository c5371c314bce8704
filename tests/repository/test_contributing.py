"""CONTRIBUTING.md names files, functions and options that exist."""

import re

import pytest
from conftest import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
FILES = [path for path in ROOT.rglob("*") if path.is_file() and ".venv" not in path.parts]


@pytest.mark.parametrize("name", sorted(set(re.findall(r"[\w/]+\.(?:py|sh|json|md)\b", TEXT))))
def test_each_file_exists(name):
    made = {"about.json", "run.json", "_log.json", "headcomb.json"}
    assert name in made or any(path.match(name) for path in FILES)


def test_each_module_of_the_library_is_described():
    described = set(
        re.findall(r"`(\w+\.py)`", TEXT.partition("| module |")[2].partition("\n\n")[0])
    )
    there = {path.name for path in (ROOT / "attention_dynamics").rglob("*.py")}
    assert described == there - {"__init__.py"}


@pytest.mark.parametrize(
    "name", ["METRICS", "FULL", "LAYOUTS", "SHORT", "Baseline", "record_output"]
)
def test_each_name_exists(name):
    assert f"`{name}`" in TEXT
    pattern = re.compile(rf"^(?:def |class )?{name}\b", re.MULTILINE)
    assert any(pattern.search(path.read_text()) for path in FILES if path.suffix == ".py")


def test_the_picture_is_closed():
    picture = re.search(r"```mermaid\n(.*?)```", TEXT, re.DOTALL)[1]
    assert picture.count("subgraph") == len(re.findall(r"^\s*end$", picture, re.MULTILINE))
