"""Checks of figures and html pages that several tests share."""

import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text


def texts_of(figure: Figure) -> list[Text]:
    """The texts in the axes and their legends."""
    legends = [legend.get_texts() for axes in figure.axes if (legend := axes.get_legend())]
    texts = itertools.chain(*(axes.texts for axes in figure.axes), *legends)
    return [text for text in texts if text.get_text()]


def check_texts_apart(figure: Figure) -> None:
    """No text of the figure overlaps another one or leaves the figure."""
    figure.draw_without_rendering()
    texts = texts_of(figure)
    boxes = [text.get_window_extent() for text in texts]
    for number, box in enumerate(boxes):
        name = texts[number].get_text()
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1, name
        assert figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1, name
        for other in range(number):
            assert not box.overlaps(boxes[other]), (name, texts[other].get_text())


def check_self_contained(page: str) -> None:
    """The page loads nothing, and has two scripts: its numbers and its code."""
    assert page.count("<script") == 2
    assert not re.search(r"https?:|//[a-z]|@import|url\(|\bsrc=", page)
    assert re.findall(r'href="([^"]*)"', page) == ["data:,"]


def numbers_of(page: str) -> dict:
    """The numbers in a page with a slider."""
    text = re.search(r'<script type="application/json" id="numbers">(.*?)</script>', page)[1]
    return json.loads(text)


def dom_of(address: str, profile: Path) -> str:
    """The document after headless Chromium has run the scripts of ``address``; else skip."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    browser = next(filter(None, map(shutil.which, names)), None)
    if browser is None:
        pytest.skip("no Chromium")
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        f"--user-data-dir={profile}", "--virtual-time-budget=2000", "--dump-dom", address,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout
