"""The figures over training, and the page of colored tokens, down to what a browser shows."""

import csv
import html
import math
import re
import shutil

import numpy as np
import pytest
from conftest import GOLDEN, assert_refused, refused, run_script
from pages import check_self_contained, check_texts_apart, dom_of, numbers_of, texts_of

from attention_dynamics.analysis.logs import Logs
from attention_dynamics.analysis.ragged import Ragged
from attention_dynamics.analysis.statistics import summarize
from attention_dynamics.cli import InputError
from attention_dynamics.names import LEVELS
from attention_dynamics.reporting.figures import draw_dynamics, write_figure
from attention_dynamics.reporting.tables import result_records
from attention_dynamics.reporting.viewer import attention_page, choose_examples, examples_at

ITERATIONS = [0, 10, 100, 1000]
HOSTILE = '</script><script>document.title="taken over"</script>'
WORDS = ["<pad>", "<bos>", "<eos>", "<unk>", "good", "bad", "film", HOSTILE, "a&b", "'quote\""]


def made_up_logs(runs=("normal_A", "normal_B", "normal_C", "uniform"), seed=0) -> Logs:
    """24 sentences (16 val, 8 train); from iteration 100 on attention goes to "good" and "bad"."""
    rng = np.random.default_rng(seed)
    labels = np.arange(24) % 2
    rows = []
    for label in labels:
        row = rng.integers(6, len(WORDS), rng.integers(5, 12))
        row[rng.integers(len(row))] = 4 if label else 5
        rows.append([1, *row, 2])
    src = Ragged.from_rows(rows)
    logs = Logs("made_up", src, labels, {"val": 16, "train": 8}, np.r_[0:16, 0:8])
    evidence = np.isin(src.values, (4, 5))
    for run in runs:
        for t in ITERATIONS:
            noise = rng.normal(size=(3, len(src.values)))
            alpha = np.exp(noise[0] + 6 * evidence * (t >= 100))
            alpha /= np.repeat(np.add.reduceat(alpha, src.offsets[:-1]), src.lengths)
            beta = noise[1] + (src.values == 4) * 4.0 - (src.values == 5) * 4.0
            for kind, values in (("alpha", alpha), ("beta", beta), ("grad", noise[2])):
                logs.arrays[run, t, kind] = values.astype(np.float32)
            logs.metas[run, t, "test_acc"] = 0.5 + 0.1 * ITERATIONS.index(t) + rng.uniform(0, 0.05)
            logs.metas[run, t, "train_acc"] = 0.9
    return logs


def signs(logs: Logs) -> np.ndarray:
    return np.repeat(2 * logs.trg - 1, logs.src.lengths)


def summary(logs: Logs, metric: str = "top 5% match") -> dict:
    baselines = {"px": np.random.default_rng(5).normal(size=logs.num_scores)}
    return summarize(logs, metric, "val", "test_acc", "train_acc", baselines, signs(logs))


@pytest.fixture(scope="module")
def logs() -> Logs:
    return made_up_logs()


@pytest.fixture(scope="module")
def result(logs) -> dict:
    return summary(logs)


OPTIONS = {"title": "made up", "metric": "top 5% match", "perf_label": "validation accuracy"}


def test_write_figure_writes_the_numbers_as_csv_and_the_same_bytes_again(tmp_path, result):
    records = result_records(result)
    paths, again = (
        write_figure(tmp_path / stem, lambda: draw_dynamics(result, **OPTIONS), records, "t")
        for stem in ("figures/made.up_val", "again")
    )
    # A dot in the name is no suffix to be replaced.
    assert [path.name for path in paths] == [f"made.up_val.{s}" for s in ("svg", "png", "csv")]
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]
    assert paths[1].read_bytes().startswith(b"\x89PNG")
    with open(paths[2], newline="") as stream:
        rows = list(csv.DictReader(stream))
    # csv keeps floats whole, so the equality is exact.
    assert rows == [{k: "" if v is None else str(v) for k, v in r.items()} for r in records]


def test_result_records_hold_the_statistics_and_put_xi_at_the_crossing(result):
    assert (result["alpha_corrs"] > 0.5).tolist() == [False, False, True, True]
    rows = result_records({**result, "agr_unif": 0.5, "agr_px": 1.0, "xi_px": None})
    curve = [row for row in rows if row["statistic"] == "alpha_corrs"]
    assert [row["iteration"] for row in curve] == ITERATIONS
    for name, key in (("value", "alpha_corrs"), ("std", "alpha_corrs_std")):
        assert [row[name] for row in curve] == list(result[key])
    rows = {row["statistic"]: row for row in rows}
    numbers = [rows["agr_grad"][name] for name in ("value", "iteration", "low", "high")]
    keys = ("agr_grad", "agr_grad_iteration", "agr_grad_interval")
    assert numbers == [*np.hstack([result[key] for key in keys])]
    assert rows["xi_unif"]["iteration"] == 100
    assert (rows["xi_px"]["iteration"], rows["xi_px"]["value"]) == (None, None)
    assert rows["baseline_exact"]["value"] == result["baseline_exact"]
    assert "agr_logistic" not in rows  # not measured here


def test_draw_dynamics_keeps_labels_inside_in_the_order_of_the_lines(result):
    levels = {}
    for height, name in enumerate(LEVELS):
        levels |= {f"agr_{name}": height / 9, f"agr_{name}_interval": (height / 9, height / 9)}
    figure = draw_dynamics({**result, **levels}, **OPTIONS, include_normal=True)
    check_texts_apart(figure)
    labels = [text.get_text() for text in texts_of(figure)]
    meanings = [level.label for level in LEVELS.values()]
    found = [m for label in labels for m in meanings if label.endswith(f": {m}")]
    assert found == meanings[::-1]


def test_draw_dynamics_of_a_single_run_with_an_undefined_level():
    result = summary(made_up_logs(runs=("normal_A", "normal_B", "uniform")), "kendall tau")
    result = {**result, "agr_px": math.nan, "xi_unif": None, "agr_unif": 2.0}
    figure = draw_dynamics(result, **OPTIONS)
    written = " ".join(text.get_text() for text in texts_of(figure))
    assert "normal run, 95% interval" in written and "bag of embeddings" not in written
    assert "none" in written  # ξ
    check_texts_apart(figure)


@pytest.mark.parametrize("iterations", [[0], [0, 1], [0, 50, 100, 300_000]])
def test_draw_dynamics_has_ticks_for_any_iterations(result, iterations):
    n = len(iterations)
    cut = {key: value[:n] for key, value in result.items() if key.startswith("alpha_")}
    figure = draw_dynamics({**result, **cut, "iterations": iterations}, **OPTIONS)
    figure.draw_without_rendering()
    ticks = [int(tick.get_text().replace(",", "")) for tick in figure.axes[1].get_xticklabels()]
    assert {iterations[0], iterations[-1]} <= set(ticks)


def test_examples_are_half_of_each_label_by_seed_or_the_given_ones(logs):
    chosen = choose_examples(logs, "val", 6, seed=3)
    assert chosen == choose_examples(logs, "val", 6, seed=3)
    assert any(chosen != choose_examples(logs, "val", 6, seed=seed) for seed in range(4, 8))
    assert logs.trg[chosen].tolist() == [0, 0, 0, 1, 1, 1]
    assert all(16 <= example < 24 for example in choose_examples(logs, "train", 5))
    # A single label fills up; if no example is of moderate length, those closest to it.
    rows = [[1] * length for length in (2, 80, 4, 90, 65, 3)]
    odd = Logs("odd", Ragged.from_rows(rows), np.ones(6), {"val": 6, "train": 0}, [])
    assert choose_examples(odd, "val", 3) == [0, 2, 5]
    assert examples_at(logs, "val", [3, 0]) == [3, 0]
    assert examples_at(logs, "train", [3]) == [19]
    for place in (8, -1):
        assert f"no example {place}: its 8 examples" in refused(examples_at, logs, "train", [place])


def test_token_page_names_what_is_missing(logs):
    with pytest.raises(InputError, match="use a word that its vocabulary of 5 lacks"):
        attention_page(logs, WORDS[:5], range(16), signs(logs))
    with pytest.raises(InputError, match="no iteration that both normal_A and uniform have"):
        attention_page(made_up_logs(("normal_A",)), WORDS, [0], signs(logs))


def hostile_example(logs: Logs) -> tuple[int, slice]:
    """A positive val example that has the hostile word, and the slice of its scores."""
    hostile = WORDS.index(HOSTILE)
    example = next(e for e in range(16) if logs.trg[e] == 1 and hostile in logs.src[e])
    return example, slice(logs.src.offsets[example], logs.src.offsets[example + 1])


def test_token_page_has_the_numbers_and_marks(logs):
    marked = np.isin(logs.src.values, (4, 5))
    example, place = hostile_example(logs)
    options = {"perf": "test_acc", "label_names": ("no", "yes")}
    page = attention_page(logs, WORDS, [example], signs(logs), marked=marked, **options)
    assert '<span class="label">yes</span>' in page
    check_self_contained(page)
    assert HOSTILE not in page and "&lt;/script&gt;&lt;script&gt;document.title=" in page
    numbers = numbers_of(page)
    assert numbers["iterations"] == ITERATIONS
    for number, t in enumerate(ITERATIONS):
        scores = numbers["scores"][0]
        # Four significant digits: a relative error of 5e-4 at most.
        alpha = logs.arrays["normal_A", t, "alpha"][place]
        np.testing.assert_allclose(scores["alpha"][number], alpha, rtol=5e-4)
        beta = (logs.arrays["uniform", t, "beta"] * signs(logs))[place]
        np.testing.assert_allclose(scores["beta"][number], beta, rtol=5e-4)
        assert numbers["perfs"]["uniform"][number] == logs.metas["uniform", t, "test_acc"]
    # One planted word in each sentence, one sample of the mark in the legend.
    assert len(re.findall(r'class="token[^"]* marked"', page)) == marked[place].sum()
    assert "evidence planted" in page
    assert "evidence planted" not in attention_page(logs, WORDS, [example], signs(logs))


def test_token_page_colors_the_words_in_a_browser(tmp_path, logs):
    example, place = hostile_example(logs)
    options = {"perf": "test_acc", "perf_label": "test accuracy"}
    page = tmp_path / "page.html"
    page.write_text(attention_page(logs, WORDS, [example], signs(logs), **options))
    for t in (10, 1000):
        dom = dom_of(f"{page.as_uri()}#iteration={t}", tmp_path / "profile")
        percent = 100 * logs.metas["normal_A", t, "test_acc"]
        assert f"<b>iteration {t}</b>" in dom
        assert f"test accuracy: normal_A {percent:.1f}%" in dom
        found = re.findall(r"--a: ?([\d.]+); --up: ?([\d.]+); --down: ?([\d.]+);", dom)
        alpha = logs.arrays["normal_A", t, "alpha"][place]
        beta = logs.arrays["uniform", t, "beta"][place]  # a positive example: the sign is +1
        votes = beta / np.abs(beta).max()
        expected = np.stack([alpha / alpha.max(), votes.clip(0), (-votes).clip(0)], axis=1)
        # Rounded twice: to four significant digits in the page, to three decimals in the colors.
        np.testing.assert_allclose(np.array(found, dtype=float), expected, atol=2e-3)
        # The hostile token is a word on the page, and nothing that ran.
        assert "<title>made_up: where attention goes</title>" in dom


ATTACK = (
    "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "' onclick='alert(1)",
    "\"><svg onload=alert(1)>", "{{ 7 * 7 }}", "</span></div><!--", "\u2028&lt;script&gt;", "]]>",
)  # fmt: skip


@pytest.mark.parametrize("is_pair", [False, True])
def test_tokens_are_text_on_the_pages(is_pair):
    """A page of hostile tokens has the tags of one of plain tokens, and shows them as they are."""
    ids = Ragged.from_rows([np.array([1, *range(4, 4 + len(ATTACK)), 2])])
    trg = ids if is_pair else np.array([1])
    logs = Logs("small", ids, trg, {"val": 1, "train": 0}, np.array([0]))
    for name in ("normal_A", "uniform"):
        for kind in ("alpha", "beta"):
            logs.arrays[name, 0, kind] = np.linspace(0.1, 0.2, logs.num_scores, dtype=np.float32)
    tags = []
    for words in (ATTACK, [f"word{n}" for n in range(len(ATTACK))]):
        vocabulary = ["<pad>", "<s>", "</s>", "<unk>", *words]
        if is_pair:
            page = attention_page(logs, [f"▁{word}" for word in vocabulary], [0])
        else:
            page = attention_page(logs, vocabulary, [0], np.ones(logs.num_scores))
        assert all(word in html.unescape(page) for word in words)
        tags.append(re.findall(r"</?\w+", page))
    assert tags[0] == tags[1]


def test_plot_dynamics_script_reads_published_logs(tmp_path):
    for folder in ("data", "outputs"):
        shutil.copytree(GOLDEN / "classification" / folder, tmp_path / folder)
    (tmp_path / "outputs" / "Furd_logistic_beta.pkl").unlink()
    options = ("--dataset", "Furd", "--metric", "top 5% match", "--examples", 7)
    done = run_script("classification/plot_dynamics.py", *options, cwd=tmp_path)
    missing, *paths = done.stdout.splitlines()
    assert missing.startswith("outputs/Furd_logistic_beta.pkl does not exist")
    assert missing.endswith("python logistic_beta.py --dataset Furd")
    assert paths == [
        "figures/Furd_tokens.html",
        *(f"figures/Furd_val_top5.{suffix}" for suffix in ("svg", "png", "csv")),
    ]
    assert len([*(tmp_path / "figures").iterdir()]) == 4
    assert 'val example 7: <span class="label">' in (tmp_path / paths[0]).read_text()
    done = run_script(
        "classification/plot_dynamics.py", *options, "--num_examples", 2, cwd=tmp_path
    )
    assert_refused(done, "--num_examples: not allowed with argument --examples")
