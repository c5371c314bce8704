"""report.py: what is on the page, corrupt files, its layout in a browser; generated blocks."""

import fnmatch
import html
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import GOLDEN, ROOT, assert_refused, run_script
from pages import dom_of

from attention_dynamics.cli import InputError
from attention_dynamics.reporting.blocks import pages, update_blocks
from attention_dynamics.reporting.report import write_report_text
from attention_dynamics.reporting.results import EXPERIMENTS
from attention_dynamics.reporting.sections import mean_drops, papa_findings
from attention_dynamics.storage.files import read_json, write_json, write_text
from attention_dynamics.storage.pickles import load_pickle

SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 5"><title>toy, val</title></svg>'
KEY = ("top 5% match", "val")
COPYING = "SequenceCopying/logs/vocab{}seq_length40bsize128no_rep.json"


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    """A root with some results of all four experiments, as the scripts leave them."""
    shutil.copytree(ROOT / "results", tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    for folder in ("classification/results", "translation/results"):
        Path(folder).mkdir(parents=True)
    shutil.copy(GOLDEN / "classification/stats.pkl", "classification/results/published.pkl")
    write_text("classification/figures/toy_val_top5.svg", SVG)
    write_text("classification/figures/toy_tokens.html", "<p>\"slider\" & 'quotes'</p>")
    for vocab, learned in ((40, 1), (60, 9)):
        row = {"setting": Path(COPYING.format(vocab)).stem, "reach 0.95": learned, "of": 10}
        row |= {"share": learned / 10, "low": 0.1, "high": 0.9, "mean acc at the end": 0.875}
        record = {"settings": {"seeds": [0]}, "results": row, "versions": {"torch": "2.13.0"}}
        record["command"] = "seq2seq.py <script>alert(1)</script>"
        write_json(COPYING.format(vocab), record)
    row = {"heads": 72, "share": 1.0, "seeds": 2, "score": 0.5, "score_std": 0.01}
    rows = [{**row, "epoch": e, "drop": 0.0625, "drop_std": 0.002} for e in ("last", "best")]
    one = {"model": "minilm", "task": "cola", "num_heads": 72, "metric": "f1", "rows": rows}
    write_json("papa/results/toy.json", {"minilm_cola": one})
    return tmp_path


def rows_of(text: str) -> list[list[str]]:
    """The cells of all tables, by row."""
    rows = re.findall(r"<tr>(.*?)</tr>", text, re.DOTALL)
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
    return [[html.unescape(re.sub("<.*?>", "", c)).strip() for c in row] for row in rows]


def titles_of(text: str) -> list[str]:
    return re.findall("<h3>(.*?)</h3>", text)


def page_text() -> str:
    """The page; nothing may be left out."""
    text, problems = write_report_text()
    assert problems == []
    return text


def test_report_shows_the_results_next_to_the_authors(root):
    text = page_text()
    rows = {(row[0].split()[0], *row[1:3]) for row in rows_of(text) if len(row) > 2}
    val = load_pickle("results/translation.pkl")["multi30k", *KEY, "val_acc"]
    low, high = val["agr_unif_interval"]
    at_8000 = val["alpha_corrs"][list(val["iterations"]).index(8000)]
    assert rows >= {
        ("agr_unif", f"{val['agr_unif']:.3f} [{low:.3f}, {high:.3f}]", "0.310"),
        ("best", f"{val['best_perf']:.1f}", "66.3"),
        ("8000", f"{at_8000:.3f}", "0.753"),
    }
    # The best performance next to xi is that of the runs that xi is read from, not the gold run's.
    assert f"their best token accuracy (%) is {max(val['alpha_perfs']):.1f}." in text
    assert f"for a random order ({val['baseline_exact']:.3f})." in text
    assert read_json("results/classification.json")["note"] in text
    golden = load_pickle("classification/results/published.pkl")["Furd", *KEY, "test_acc"]
    assert ("agr_unif", f"{golden['agr_unif']:.3f}") in {row[:2] for row in rows}


def test_report_counts_the_runs_that_learn_to_copy(root):
    text = page_text()
    assert ["40 of 60", "9 of 10", "0.90 [0.10, 0.90]", "0.875"] in rows_of(text)
    assert "<li>40 of 60: 9 of 10 seeds learn to copy (accuracy at least 0.95 at any" in text
    assert ["40 of 40, 40 of 60", "0.0011"] in rows_of(text)  # of [[1, 9], [9, 1]]
    # Results made here and those of the repository are apart.
    title = "Seeds that learn to copy"
    assert {title, f"{title} (results that come with the repository)"} < {*titles_of(text)}


def test_mean_drops_averages_the_tasks_of_each_model():
    drops = {
        ("minilm", "cola", 1): {0: 0.0, 36: None, 72: 0.0625},
        ("minilm", "rte", 1): {0: 0.0, 36: 0.5, 72: -0.0004},
        ("minilm", "ner", 1): {0: 0.0, 36: 0.5, 72: 0.0425},
        ("other", "cola", 1): {0: 0.0, 36: 0.25},
        ("twice", "cola", 1): {36: 0.25},
        ("twice", "cola", 2): {36: 0.75},
    }
    content = {}
    for (model, task, number), by_heads in drops.items():
        rows = [{"heads": heads, "epoch": "last", "drop": drop} for heads, drop in by_heads.items()]
        one = {"model": model, "task": task, "num_heads": 72, "rows": rows}
        content[f"{model} {task} {number}"] = one
    rows = [(row["model"], row["heads"], row["tasks"], row["drop"]) for row in mean_drops(content)]
    mean = pytest.approx((0.0625 - 0.0004 + 0.0425) / 3)
    assert rows == [("minilm", 72, 3, mean), ("other", 36, 1, 0.25)]
    # What rounds to zero has no minus.
    assert papa_findings(content)[0].endswith("the score 3.5% (mean of 3 tasks, 0.0% to 6.2%).")


def test_report_is_self_contained_and_well_formed(root):
    text = page_text()
    without_frames = re.sub(r"srcdoc=\"[^\"]*\"", "", text)
    addresses = re.findall(r' (?:src|href)="(.*?)"', without_frames)
    assert addresses and all(address.startswith(("data:", "#")) for address in addresses)
    assert not re.search(r"url\(|@import|https?://", without_frames)
    images = re.findall("<img .*?>", text)
    assert images and all(re.search(r'alt="[^"]+"', image) for image in images)
    ids = re.findall(r' id="(.*?)"', without_frames)
    assert len(ids) == len(set(ids)) and {a[1:] for a in addresses if a[:1] == "#"} <= {*ids}
    assert '<html lang="en">' in text and re.search("<title>[^<]{10,}</title>", text)
    assert text.count("<script") == 1  # the command of a record is text, whatever it contains
    assert "seq2seq.py &lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert 'srcdoc="&lt;p&gt;&#34;slider&#34; &amp; &#39;quotes&#39;&lt;/p&gt;"' in text
    assert page_text() == text  # the same bytes


def test_report_of_a_fresh_clone_shows_the_results_of_the_repository(root):
    for folder in EXPERIMENTS:
        shutil.rmtree(folder, ignore_errors=True)
        Path(folder).mkdir()
    shipped = {path.name for path in Path("results").glob("*.svg")} - {"own_model_val_top5.svg"}
    assert page_text().count("<img ") == len(shipped)
    shutil.rmtree("results")
    assert page_text().count("No results yet.") == len(EXPERIMENTS)


CORRUPT = {
    "results/copying.json": b'{"settings": [{}]}',
    "results/multihead.json": b'{"results": {"shares": [{}]}}',
    "classification/results/published.pkl": b"\x80\x05broken",
    "translation/results/odd.pkl": pickle.dumps({"a": 1}),
    COPYING.format(40): b"{",
    "SequenceCopying/logs/other.json": b'{"results": {}, "command": "x"}',
    "papa/results/toy.json": b'{"minilm_cola": {"rows": [{}]}}',
    "papa/outputs/minilm_cola/sorted/run.json": b"[]",
}


@pytest.mark.parametrize("corrupt", CORRUPT)
def test_report_leaves_out_a_corrupt_file_only(root, corrupt):
    intact = titles_of(page_text())
    (root / corrupt).parent.mkdir(parents=True, exist_ok=True)
    (root / corrupt).write_bytes(CORRUPT[corrupt])
    text, (problem,) = write_report_text()
    assert corrupt in problem
    assert text.count("<b>Left out:</b>") == 1
    assert len(set(intact) - set(titles_of(text))) <= 1


def test_report_script_writes_the_page_and_names_what_it_leaves_out(root):
    process = run_script("report.py", cwd=root)
    assert (process.returncode, process.stdout) == (0, "report/index.html\n"), process.stderr
    assert (root / "report/index.html").read_text() == page_text()
    (root / "papa/results/toy.json").write_text("{")
    process = run_script("report.py", "--out_file", "page.html", cwd=root)
    note, failed = process.stderr.splitlines()
    assert process.returncode == 1 and note.startswith("note: results papa/results/toy.json is")
    assert failed.startswith("report.py: failed: 1 file(s)")
    (root / "empty").mkdir()
    assert_refused(run_script("report.py", cwd=root / "empty"), "go to the root of the repository")


def test_report_without_the_packages_says_how_to_activate_the_environment():
    command = [sys.executable, "-S", str(ROOT / "report.py")]
    process = subprocess.run(command, env={}, capture_output=True, text=True)
    assert process.returncode == 1 and len(process.stderr.splitlines()) == 1
    assert "activate the environment with: source .venv/bin/activate" in process.stderr


def test_report_does_not_scroll_sideways_at_two_widths(root, tmp_path):
    # The page itself reports, from inside frames of both widths, by how much it is wider.
    report = (
        "<script>const root = document.documentElement;"
        "parent.postMessage([innerWidth, root.scrollWidth - root.clientWidth], '*')"
    )
    write_text(tmp_path / "page.html", page_text().replace("</body>", f"{report}</script></body>"))
    frames = "".join(f'<iframe src="page.html" width="{w}"></iframe>' for w in (1280, 390))
    listener = "onmessage = (e) => { document.title += ` ${e.data[0]}:${e.data[1]}`; }"
    style = "<style>iframe { border: 0 }</style>"
    write_text(
        tmp_path / "frames.html", f"<title>w</title>{style}<script>{listener}</script>{frames}"
    )
    dom = dom_of((tmp_path / "frames.html").as_uri(), tmp_path / "profile")
    assert sorted(re.search("<title>w([^<]*)", dom)[1].split()) == ["1280:0", "390:0"]


# --- generated blocks ---

GLANCE = "<!-- generated: results-at-a-glance -->"


def block(call: str) -> str:
    return f"<!-- generated: {call} -->\n<!-- end -->"


@pytest.mark.parametrize("page", [ROOT / page for page in pages()], ids=lambda page: page.name)
def test_pages_match_the_result_files(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert update_blocks(page) == page.read_text()


@pytest.fixture
def page(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(ROOT)
    return tmp_path / "page.md"


def test_update_blocks_writes_the_numbers_of_the_files(page):
    page.write_text(f"Before\n\n{GLANCE}\noutdated\n<!-- end -->\n\nAfter\n")
    text = update_blocks(page)
    assert text.startswith(f"Before\n\n{GLANCE}\n\n| experiment")
    assert text.endswith("|\n\n<!-- end -->\n\nAfter\n") and "outdated" not in text
    val = load_pickle("results/translation.pkl")["multi30k", *KEY, "val_acc"]
    low, high = val["agr_unif_interval"]
    row = f"| {val['agr_unif']:.3f} [{low:.3f}, {high:.3f}]  | 0.310 "
    assert f"(random order: {val['baseline_exact']:.3f})      {row}" in text
    page.write_text(text)
    assert update_blocks(page) == text


@pytest.mark.parametrize(
    "text, message",
    [
        (f"{GLANCE}\n", "a generated block is malformed"),
        (f"{GLANCE} and more\n<!-- end -->", "a generated block is malformed"),
        (block("odd"), "unknown generator"),
        (block("levels"), "wrong arguments"),
        (block("levels results/none.pkl acc"), "results results/none.pkl does not exist"),
        (block("levels results/classification.pkl bleu"), "has no results with bleu"),
        (block("levels results/translation.pkl acc odd"), "has no results with acc and odd"),
        (block("copying results/papa.json"), "a file that lacks"),
    ],
)
def test_update_blocks_names_the_page_and_the_block(page, text, message):
    page.write_text(text)
    with pytest.raises(InputError, match=f"{re.escape(str(page))}: .*{re.escape(message)}"):
        update_blocks(page)


def test_report_checks_and_writes_the_pages(root):
    (root / "README.md").write_text(f"{block('results-at-a-glance')}\n")
    process = run_script("report.py", "--check", cwd=root)
    assert process.returncode == 1
    assert "README.md: generated blocks do not match the result files" in process.stderr
    process = run_script("report.py", "--markdown", cwd=root)
    assert process.stdout == f"{1 + len([*Path('results').glob('*.md')])} pages, 1 changed\n"
    assert run_script("report.py", "--check", cwd=root).returncode == 0


def test_departures_name_tests_that_exist():
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    names = set(re.findall(r"def (test_\w+)", tests))
    departures = read_json(ROOT / "results/departures.json")["departures"]
    assert [departure["number"] for departure in departures] == [*range(1, len(departures) + 1)]
    for departure in departures:
        for pattern in departure["test"].split(", "):
            assert fnmatch.filter(names, pattern), (departure["number"], pattern)
