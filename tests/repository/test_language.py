"""Plain English: the words that the glossary replaces occur nowhere a person reads."""

import re
import subprocess

import pytest
from conftest import ROOT

# pattern -> what to write instead
GLOSSARY = {
    r"\bgo(?:es)? on (?:where|after)\b": "resume, resuming at step N",
    r"\bkept after \d|\bto go on\b": "interrupted; state saved at step N",
    r"\banew\b": "again: retrain, recreate, overwrite, recompute",
    r"\bdamaged\b": "corrupt, truncated, malformed",
    r"\bcut short\b": "truncated",
    r"\brising\b": "ascending",
    r"\bfalling\b": "descending",
    r"\bwhole numbers?\b": "integer",
    r"\blook(?:s|ed|ing)? at\b": "evaluate, inspect, read",
    r"\bwhat the model makes of\b": "model outputs",
    r"\bhalf of a surrogate\b": "lone surrogate (invalid Unicode)",
    r"\bwhole files?\b": "atomic write",
    r"\bwritten whole\b": "written atomically",
    r"\bwhere tensors live\b": "device and thread selection",
    r"\bgenerators stood\b": "RNG state",
    r"\btext for the blind\b": "alt text",
    r"\bdata/ holds now\b": "the current data",
    r"\bis there already\b": "already exists",
    r"\bcannot be got\b": "could not be downloaded",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\btaken by itself\b": "used automatically if available",
    r"\byou see\b": "message",
    r"\btimed in alternation\b": "interleaved timings",
    r"\bfiles of strangers\b": "untrusted or corrupt input",
    r"\bas they should be\b": "correct",
    r"\bis no (?:folder|array|directory|text|number)\b": "is not a ...",
    r"\bof weights and data order\b": "random seed (initialization and data order)",
    r"\bmethod A\.\d|\(A\.\d\)": "docs/method.md, section N",
    r"help=\"(?:of|as|likewise) ": "a help text starts with its noun",
    r"\bdata sets?\b": "dataset",
    r"\boptimiser\b": "optimizer",
    r"\ball the same\b": "anyway, or nothing",
    r"\bas a rule\b": "usually",
}
SUFFIXES = (".py", ".md", ".sh", ".html", ".smk", ".yaml", ".toml", ".cff", "Snakefile")


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """The text of each file of the repository."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout
    paths = [ROOT / name for name in listed.split("\n") if name.endswith(SUFFIXES)]
    paths = [path for path in paths if path.exists() and path.name != "test_language.py"]
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


@pytest.mark.parametrize("pattern", GLOSSARY)
def test_language_uses_the_terms_of_the_field(texts, pattern):
    found = [
        f"{name}:{number}: {line.strip()[:90]}"
        for name, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(pattern, line, re.IGNORECASE)
    ]
    assert not found, f"write {GLOSSARY[pattern]!r}:\n" + "\n".join(found[:20])
