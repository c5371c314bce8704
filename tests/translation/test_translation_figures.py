"""Figures, tables and the page of matrices of translation, down to what a browser shows."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import GOLDEN, run_script
from pages import check_self_contained, check_texts_apart, dom_of, numbers_of, texts_of

from attention_dynamics.analysis.logs import Logs
from attention_dynamics.analysis.ragged import Ragged
from attention_dynamics.analysis.statistics import summarize
from attention_dynamics.reporting.figures import draw_dynamics
from attention_dynamics.reporting.tables import curve_rows, level_rows, result_tables
from attention_dynamics.reporting.viewer import attention_page, choose_examples

ITERATIONS = [0, 50, 500, 4000]
HOSTILE = '▁</script><script>document.title="taken over"</script>'
PIECES = [
    "<pad>", "<s>", "</s>", "<unk>", "▁Mann", "▁man", "nes", ",", "▁", HOSTILE, "▁a&b", "'q\"",
]  # fmt: skip
METRIC = "top 5% match"


def truth_of(src: Ragged, trg: Ragged) -> np.ndarray:
    """(scores,) a target piece translates the source piece at the same position."""
    marks = []
    for s, t in zip(src.lengths, trg.lengths, strict=True):
        same = np.eye(t - 1, s, k=1, dtype=bool)
        same[-1] = False
        marks.append(same.ravel())
    return np.concatenate(marks)


def made_up_logs(runs=("normal_A", "normal_B", "uniform"), seed=0) -> Logs:
    """24 pairs (16 val, 8 train); β finds the truth from iteration 50 on, α from 500 on."""
    rng = np.random.default_rng(seed)
    sides = [
        Ragged.from_rows(
            [[1, *rng.integers(4, len(PIECES), rng.integers(4, 11)), 2] for _ in range(24)]
        )
        for _ in range(2)
    ]
    logs = Logs("made_up", *sides, {"val": 16, "train": 8}, np.r_[0:16, 0:8])
    truth = truth_of(*sides)
    row_lengths = np.diff(logs.row_offsets)
    for run in runs:
        for place, t in enumerate(ITERATIONS):
            noise = rng.normal(size=(3, logs.num_scores))
            alpha = np.exp(noise[0] + 6 * truth * (t >= 500))
            alpha /= np.repeat(np.add.reduceat(alpha, logs.row_offsets[:-1]), row_lengths)
            beta = -12 + 2 * noise[1] + 5 * truth * (t >= 50)
            logs.arrays[run, t, "alpha"] = alpha.astype(np.float32)
            logs.arrays[run, t, "beta"] = beta.astype(np.float32)
            if run == "normal_A":
                logs.arrays[run, t, "grad"] = noise[2].astype(np.float32)
            for split in ("val", "train"):
                logs.metas[run, t, f"{split}_acc"] = 20.0 * place + rng.uniform(0, 5)
                logs.metas[run, t, f"{split}_bleu"] = 12.0 * place + rng.uniform(0, 3)
    return logs


def summary(logs: Logs, split: str = "val", kind: str = "acc") -> dict:
    rng = np.random.default_rng(5)
    baselines = {"px": rng.random(logs.num_scores), "ibm1": truth_of(logs.src, logs.trg) + 0.0}
    other = "train" if split == "val" else "val"
    return summarize(logs, METRIC, split, f"{split}_{kind}", f"{other}_{kind}", baselines)


def place_of(logs: Logs, example: int) -> slice:
    """The slice of the scores of an example, counted from the lengths."""
    sizes = (logs.trg.lengths - 1) * logs.src.lengths
    return slice(int(sizes[:example].sum()), int(sizes[: example + 1].sum()))


@pytest.fixture(scope="module")
def logs() -> Logs:
    return made_up_logs()


@pytest.fixture(scope="module")
def result(logs) -> dict:
    return summary(logs)


def test_draw_dynamics_in_percent_and_bleu(logs, result):
    options = {"title": "made up", "metric": METRIC, "percent": True}
    figure = draw_dynamics(result, **options, perf_label="validation token accuracy")
    written = [text.get_text() for text in texts_of(figure)]
    assert f"$A(\\beta^{{ibm1}}, \\beta^{{uf}})$ = {result['agr_ibm1']:.3f}: IBM Model 1" in written
    assert any("normal run, 95% interval" in text for text in written)
    assert figure.axes[1].get_ylabel() == "validation token accuracy (%)"
    assert any(f"{result['xi_unif']:.1f}% at iteration" in text for text in written)
    low, high = figure.axes[1].get_ylim()
    assert -10 < low < 5 and 60 < high < 70  # percent already: not times 100
    check_texts_apart(figure)
    bleu = summary(logs, kind="bleu")
    figure = draw_dynamics(bleu, **options, perf_label="BLEU", unit="")
    assert figure.axes[1].get_ylabel() == "BLEU"
    xi = next(text.get_text() for text in texts_of(figure) if "xi" in text.get_text())
    assert f"{bleu['xi_unif']:.1f} at iteration" in xi and "%" not in xi
    check_texts_apart(figure)


def test_tables_have_no_spread_of_a_single_run(logs, result):
    rows = curve_rows(result, "token accuracy")
    assert [row["agreement of α"] for row in rows] == [f"{x:.3f}" for x in result["alpha_corrs"]]
    assert [row["token accuracy"] for row in rows] == [f"{x:.3f}" for x in result["alpha_perfs"]]
    two = made_up_logs(("normal_A", "normal_B", "normal_C", "uniform"))
    assert all("±" in row["agreement of α"] for row in curve_rows(summary(two), "accuracy"))
    theirs = curve_rows(result, "token accuracy", {9999: 0.5})[-1]  # a checkpoint of theirs alone
    assert [*theirs.values()][:3] == [9999, None, 0.5]

    results = {("made_up", METRIC, "val", "val_acc"): result}
    rows = level_rows(results, "token accuracy")
    names = [row["statistic"] for row in rows]
    assert names[:5] == ["agr_unif", "agr_px", "agr_ibm1", "agr_grad", "agr_normal"]
    assert [name for name in names if name.startswith("xi_")][2] == "xi_ibm1"
    assert set(rows[0]) == {"statistic", "made_up val"}
    best = next(row for row in rows if row["statistic"] == "best token accuracy (gold run)")
    assert best["made_up val"] == f"{result['best_perf']:.1f}"
    assert "±" not in result_tables(results, "token accuracy", "text")


def test_choose_examples_prefers_pairs_of_moderate_length():
    lengths = [(5, 5), (4, 8), (8, 4), (20, 20), (21, 8), (8, 21)]
    src, trg = (Ragged.from_rows([[1] * n for n in side]) for side in zip(*lengths, strict=True))
    logs = Logs("lengths", src, trg, {"val": 6, "train": 0}, np.arange(6))
    assert choose_examples(logs, "val", 2) == [0, 3]


def test_matrix_page_has_the_numbers_and_marks(logs):
    marked, example = truth_of(logs.src, logs.trg), 16 + 2
    page = attention_page(logs, PIECES, [example], perf="train_acc", marked=marked)
    assert "train pair 2" in page and "true word alignment" in page
    cells = re.findall(r'<td class="cell([^"]*)">', page)
    place = place_of(logs, example)
    assert [bool(cell) for cell in cells] == [*marked[place], *marked[place]]
    exact = logs.arrays["uniform", 50, "beta"][place]
    # Six significant digits: a relative error of 5e-6 at most.
    np.testing.assert_allclose(numbers_of(page)["scores"][0]["beta"][1], exact, rtol=5e-6)
    apart = made_up_logs(("normal_A",))
    for kind in ("alpha", "beta"):
        apart.arrays["uniform", 0, kind] = logs.arrays["uniform", 0, kind]
    page = attention_page(apart, PIECES, [0])
    assert numbers_of(page)["iterations"] == [0]
    assert "true word alignment" not in page


def test_matrix_page_shows_pieces_as_words():
    src, trg = Ragged.from_rows([[1, 4, 6, 7, 8, 2]]), Ragged.from_rows([[1, 5, 3, 2]])
    logs = Logs("one", src, trg, {"val": 1, "train": 0}, np.arange(1))
    for run in ("normal_A", "uniform"):
        for kind in ("alpha", "beta"):
            logs.arrays[run, 0, kind] = np.zeros(18, dtype=np.float32)
    page = attention_page(logs, PIECES, [0])
    columns = re.findall(r'<th scope="col"[^>]*><span>([^<]*)</span>', page)
    assert columns == 2 * ["&lt;s&gt;", "Mann", "·nes", ",", "␣", "&lt;/s&gt;"]
    rows = re.findall(r'<th scope="row"[^>]*>([^<]*)</th>', page)
    assert rows == 2 * ["man", "&lt;unk&gt;", "&lt;/s&gt;"]
    assert "Mannnes, → man&lt;unk&gt;" in page


def test_matrix_page_colors_the_cells_in_a_browser(tmp_path, logs):
    hostile = PIECES.index(HOSTILE)
    example = next(e for e in range(16) if hostile in logs.src[e] and hostile in logs.trg[e])
    marked, place = truth_of(logs.src, logs.trg), place_of(logs, example)
    options = {"perf": "val_acc", "perf_label": "token accuracy", "marked": marked}
    page = tmp_path / "page.html"
    page.write_text(attention_page(logs, PIECES, [example], **options))
    check_self_contained(page.read_text())
    assert "<script>document" not in page.read_text()
    shape = rows, columns = len(logs.trg[example]) - 1, len(logs.src[example])
    truth = marked[place].reshape(shape)
    for t in (50, 4000):
        dom = dom_of(f"{page.as_uri()}#iteration={t}", tmp_path / "profile")
        assert f"<b>iteration {t}</b>" in dom
        assert f"token accuracy: normal_A {logs.metas['normal_A', t, 'val_acc']:.1f}%" in dom
        cells = re.findall(r'<td class="cell([^"]*)" style="--v: ?([\d.]+);?">', dom)
        alpha = logs.arrays["normal_A", t, "alpha"][place].reshape(shape)
        beta = logs.arrays["uniform", t, "beta"][place].reshape(shape)
        expected = [alpha / alpha.max(axis=1)[:, None], np.exp(beta - beta.max(axis=1)[:, None])]
        shown = np.array([float(value) for _, value in cells]).reshape(2, rows, columns)
        np.testing.assert_allclose(shown, expected, atol=6e-4)  # rounded to three decimals
        tops = [" top" in classes for classes, _ in cells]
        tops = np.array(tops).reshape(2, rows, columns).argmax(axis=2)
        np.testing.assert_array_equal(tops, [alpha.argmax(axis=1), beta.argmax(axis=1)])
        assert f"at the same position in {(tops[0] == tops[1]).sum()} of {rows} rows" in dom
        found = [truth[np.arange(rows), top].sum() for top in tops]
        aligned = truth.any(axis=1).sum()
        assert f"α in {found[0]}, β^uf in {found[1]} of {aligned}" in dom
        # The hostile piece is a word on the page, and nothing that ran.
        assert "<title>made_up: where attention goes</title>" in dom


def test_plot_dynamics_reads_published_logs(tmp_path):
    dataset = "news_commentary_v14_en_nl"
    shutil.copytree(GOLDEN / "translation" / "data", tmp_path / "data")
    shutil.copytree(GOLDEN / "translation" / "outputs", tmp_path / "outputs")
    # A true alignment, in which the first words translate each other and nothing else does.
    folder = tmp_path / "data" / "news-commentary-v14-en-nl"
    sides = [json.loads((folder / f"val.{side}").read_text()) for side in ("src", "trg")]
    words = [[len(src.split()), len(trg.split())] for src, trg in zip(*sides, strict=True)]
    truth = {"words": {"val": words}, "links": {"val": [[[0, 0]] for _ in words]}}
    (folder / "truth.json").write_text(json.dumps(truth))
    options = ("--dataset", dataset, "--metric", METRIC, "--perf", "bleu", "--examples", 12, 3)
    done = run_script("translation/plot_dynamics.py", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].endswith(f"python ibm1_beta.py --dataset {dataset}")
    assert lines[1:] == [
        f"figures/{dataset}_matrices.html",
        *(f"figures/{dataset}_val_bleu_top5.{suffix}" for suffix in ("svg", "png", "csv")),
    ]
    page = Path(tmp_path / lines[1]).read_text()
    assert "val pair 12" in page and "val pair 3" in page
    assert "Zwei Jungen spielen mit Murmeln." in page
    # "Zwei" is one piece, the first after <s>; "Two" is "Tw" and "o".
    first = page[page.index('class="alpha"') : page.index('class="beta"')]
    rows = [re.findall(r'class="cell[^"]*"', row) for row in first.split("<tr>")[2:]]
    trues = [[place for place, cell in enumerate(row) if " true" in cell] for row in rows]
    assert trues == [[1], [1], *([] for _ in trues[2:])]
