"""The pages: short enough to read, with links that resolve; CONTRIBUTING.md names what exists."""

import re

import pytest
from conftest import ROOT

PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("results/*.md")]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
FILES = [path for path in ROOT.rglob("*") if path.is_file() and ".venv" not in path.parts]


def anchors(text: str) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_short_and_their_links_resolve(page):
    text = page.read_text()
    assert len(text.splitlines()) <= (160 if page.name == "README.md" else 300)
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for target in re.findall(r"\]\((?!http)([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{page.name} links to {target}"
        if anchor and linked.suffix == ".md":
            assert anchor in anchors(linked.read_text()), f"{page.name} links to {target}"


def test_contributing_names_files_that_exist():
    made = {"about.json", "run.json", "unfinished.json", "_log.json", "headcomb.json"}
    for name in set(re.findall(r"[\w/.-]+\.(?:py|sh|json|md)\b", CONTRIBUTING)) - made:
        assert any(path.match(name) for path in FILES), name


def test_contributing_maps_every_folder():
    folders = {path.relative_to(ROOT).parts[0] for path in FILES if path.suffix == ".py"}
    mapped = set(re.findall("<!-- generated: modules (.*) -->", CONTRIBUTING))
    assert folders - mapped <= {"report.py", "results", "tests", "workflow", "examples"}
