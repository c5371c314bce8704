"""The pages: short enough to read, with links that resolve."""

import re

import pytest
from conftest import ROOT

PAGES = [
    *ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("results/*.md")
]  # fmt: skip


def anchors(text: str) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{page.name} links to {target}"
        if anchor and linked.suffix == ".md":
            assert anchor in anchors(linked.read_text()), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_at_most_300_lines(page):
    most = 160 if page.name == "README.md" else 300
    assert len(page.read_text().splitlines()) <= most
