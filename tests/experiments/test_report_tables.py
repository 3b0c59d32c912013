"""The tables in three formats, read back and compared with figures that numpy computes from the raw results."""

import csv
import io
import itertools
import json
import math
import re
import shutil
import subprocess

import numpy as np
import pytest
from in_turn import in_turn
from run_helpers import HOSTILE, own, result, write_cell, write_run
from scipy import stats

from symloss.experiments import FORMATS, compose, load_table, plan, read_runs
from symloss.training.settings import displayed_profile

SECTION = '<section class="table".*?</section>'
MINI = "mini (reduced: not the published protocol)"
DIFFERENCE = re.compile(r"\$[+-]?\d+\.\d\$ \(\$p (< 0\.001|0\.00[1-9]|[01]\.\d\d)\$\)")
PREAMBLE = r"""\documentclass[11pt]{article}
\usepackage[margin=1in]{geometry}
\usepackage{times}\usepackage{latexsym}\usepackage{amsmath,amssymb,amsthm}\usepackage{graphicx}\usepackage{natbib}
\usepackage{hyperref}\usepackage{xcolor}\usepackage{bm}\usepackage{mathrsfs}\usepackage{url}\usepackage{booktabs}
\usepackage{nicefrac}\usepackage{microtype}\usepackage{makecell}\usepackage{multirow}\usepackage{fancybox}
\usepackage{dirtytalk}\usepackage{lmodern}\usepackage{subcaption}\usepackage{calrsfs}\usepackage{textcomp}
\begin{document}
%s
\end{document}
"""


def written(runs, format, tables=None):
    return FORMATS[format](compose(read_runs(runs), tables))


def table1(runs, noises=("clean", "sym:0.8", "asym:0.4"), losses=("ce", "sgce", "alpha-mae"), seeds=3):
    """A part of table 1, with figures near the published ones.

    For each place: mean, standard deviation, published, difference, and whether it is the best of its column.
    """
    found, random = {}, np.random.default_rng(0)
    for cell in plan("table1", losses=losses, noise=noises, seeds=seeds):
        accuracy = float(np.clip(cell.published.value / 100 + random.normal(0, 0.01), 0, 1))
        noise = cell.noise.replace("asym", "asym-blocks") if cell.dataset == "cifar100" else cell.noise
        classes = [f"class {i}" for i in range(10 if cell.dataset == "cifar10" else 100)]
        folder = write_cell(runs, cell, accuracy, classes=classes, noise=noise)
        raw = result(folder)["last"]["test_accuracy"]
        found.setdefault((cell.dataset, cell.row, cell.noise), []).append(100 * raw)
    places = {}
    for (dataset, row, noise), values in found.items():
        printed = load_table("table1").published(dataset, row, noise)
        mean, std = np.mean(values), np.std(values, ddof=1)
        best = max(np.mean(found[dataset, loss, noise]) for loss in losses)
        far = (mean - printed.value) / np.sqrt(std**2 + printed.spread**2)
        places[dataset, row, noise] = mean, std, printed, far, mean == best
    return places


@pytest.fixture(scope="module")
def part_of_table1(tmp_path_factory):
    """Written once, for tests that only read: the folder, and what is expected of it."""
    runs = tmp_path_factory.mktemp("table1")
    return runs, table1(runs)


def text(mean, std):
    return f"{mean:.2f}({std:.2f})"


def lines_of_csv(content):
    return list(csv.DictReader(io.StringIO(content)))


def test_csv_has_every_cell_with_its_figures(part_of_table1):
    runs, wanted = part_of_table1
    rows = lines_of_csv(written(runs, "csv"))
    assert len(rows) == len(wanted) == 2 * 3 * 3
    for row in rows:
        mean, std, printed, far, best = wanted[row["dataset"], row["title"].lower(), row["noise"]]
        assert (row["table"], row["profile"], row["n"], row["seeds"]) == ("table1", "full", "3", "0 1 2")
        figures = [float(row[name]) for name in ("mean", "std", "published", "published_spread", "difference")]
        assert figures == pytest.approx([mean, std, printed.value, printed.spread, far], abs=1e-5)
        assert (row["published_bold"], row["top"]) == (str(int(printed.bold)), str(int(best)))


def markdown_tables(content):
    """Rows of every table, cells as lists of lines."""
    rows = [line for line in content.splitlines() if line.startswith("|") and not line.startswith("| ---")]
    return [[cell.strip().split("<br>") for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


def test_markdown_has_ours_published_and_difference(part_of_table1):
    runs, wanted = part_of_table1
    content = written(runs, "markdown")
    datasets = iter(("cifar10", "cifar100"))
    seen = 0
    for row in markdown_tables(content):
        if row[0] == ["loss"]:
            dataset, heads = next(datasets), [cell[0] for cell in row[1:]]
            continue
        for noise, (ours, printed, far) in zip(heads, row[1:], strict=True):
            mean, std, published, z, best = wanted[dataset, row[0][0].lower(), noise]
            assert ours.rstrip("\u2020") == (f"**{text(mean, std)}**" if best else text(mean, std))
            assert printed == (f"**{published.text}**" if published.bold else published.text)
            distance, _, chance = far.partition(" sd, p ")
            assert float(distance) == pytest.approx(z, abs=0.0501)
            p = stats.ttest_ind_from_stats(mean, std, 3, published.value, published.spread, 3, equal_var=False).pvalue
            assert float(chance.removeprefix("< ")) == pytest.approx(max(p, 0.001), abs=0.0051)
            seen += 1
    assert seen == len(wanted)
    assert "n = 3" in content


def latex_rows(content):
    """Cells of every line between the rules of tabular, without the commands around a cell."""
    around = r"\\hline|\\multirow\{\d+\}\{\*\}|\\quad|\\multicolumn\{\d+\}\{[^}]*\}"
    for body in re.findall(r"\\begin\{tabular\}\{[^}]*\}(.*?)\\end\{tabular\}", content, flags=re.S):
        for line in re.sub(around, "", body).split("\\\\"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)&", line)]
            if any(cells):
                yield [cell[1:-1] if cell.startswith("{") else cell for cell in cells]


def columns_of(content):
    for specification in re.findall(r"\\begin\{tabular\}\{([^}]*)\}", content):
        yield len(specification.replace("|", ""))


def test_latex_has_the_same_figures(part_of_table1):
    runs, wanted = part_of_table1
    content = written(runs, "latex")
    (columns,) = columns_of(content)
    upper, lower, *rows = latex_rows(content)
    assert upper[:3] == ["Data sets", "Loss functions", "Clean"]
    assert lower == ["", "", "", "0.8", "0.4"]
    dataset = row = ""
    for first, title, *cells in rows:
        assert 2 + len(cells) == columns
        dataset = first or dataset
        if title not in ("published", "difference"):
            row = title.replace("$\\alpha$", "alpha").lower()
        found = [wanted[dataset, row, noise] for noise in ("clean", "sym:0.8", "asym:0.4")]
        if title == "published":
            assert cells == [bold(printed.text, printed.bold) for _, _, printed, _, _ in found]
        elif title == "difference":
            assert all(DIFFERENCE.fullmatch(cell) for cell in cells)
            assert [float(cell.split("$")[1]) for cell in cells] == pytest.approx([far[3] for far in found], abs=0.0501)
        else:
            plain = [cell.removesuffix(r"$^\dagger$") for cell in cells]
            assert plain == [bold(text(mean, std), best) for mean, std, _, _, best in found]
    assert len(rows) == 2 * 3 * 3


def test_latex_keeps_figures_under_their_noise_when_data_sets_have_different_ones(tmp_path):
    for dataset, noise, accuracy in (("cifar10", "clean", 0.9), ("cifar100", "sym:0.8", 0.2)):
        (cell,) = plan("table1", datasets=[dataset], losses=["ce"], noise=[noise], seeds=1)
        write_cell(tmp_path, cell, accuracy, classes=[str(i) for i in range(10)])
    upper, lower, *rows = latex_rows(written(tmp_path, "latex"))
    assert (upper[2], lower[3]) == ("Clean", "0.8")
    assert [row[2:] for row in rows if row[1] == "CE"] == [["90.00", "-"], ["-", "20.00"]]


def bold(text, is_bold):
    return rf"\textbf{{{text}}}" if is_bold else text


def balanced(content):
    plain = re.sub(r"\\[\\{}%]", "", "\n".join(line for line in content.splitlines() if not line.startswith("%")))
    depths = list(itertools.accumulate((char == "{") - (char == "}") for char in plain))
    return min(depths) == depths[-1] == 0


def test_latex_is_well_formed_whatever_the_names(tmp_path):
    evil = r"alpha-MAE\input{x} & 50% of $a_b^c$ {~} #1 \\ " + "Zo\u00eb \u4e2d \u03b1 \u0141" + HOSTILE
    write_run(tmp_path / "a", own(data=evil, loss=evil, noise="matrix:" + evil), 0.5, noise="sym:0.4")
    write_run(tmp_path / "b%\nc", own(loss="gce"), 0.5, finished=False)
    content = written(tmp_path, "latex")
    assert balanced(content)
    assert content.isascii()
    assert not re.search(r"(?m)^[^%].*\\input", content)
    assert r"Zo\"{e} [U+4E2D] $\alpha$" in content
    assert r"$\alpha$-MAE\textbackslash{}input\{x\}" in content
    (columns,) = columns_of(content)
    for line in content.split(r"\begin{tabular}")[1].split("\\\\"):
        unescaped = re.sub(r"\\textbackslash\{\}|\\&", "", line)
        if "end{tabular}" not in line:
            assert unescaped.count("&") == columns - 1
    assert r"b%\nc" not in content
    assert "% Without a figure: b% c (unfinished: 2 of 3 epochs)" in content


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex here")
def test_latex_compiles_with_the_packages_of_the_paper(tmp_path):
    runs = tmp_path / "runs"
    table1(runs)
    write_run(runs / "own", own(data=HOSTILE, loss="gce_{a}^b~#%&\\"), 0.5)
    (tmp_path / "a.tex").write_text(PREAMBLE.replace("%s", written(runs, "latex")))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "a.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    lacking = re.search(r"File `(\S+)' not found", done.stdout)
    if lacking:
        pytest.skip(f"this TeX has no {lacking[1]}")
    assert done.returncode == 0, done.stdout[-2000:]


def test_cells_with_fewer_runs_say_so_and_empty_ones_keep_what_was_published(tmp_path):
    for cell in plan("table1", datasets=["cifar10"], losses=["ce", "sgce"], noise=["clean", "sym:0.8"]):
        if cell.noise != "clean" or (cell.row, cell.seed) == ("ce", 1):
            write_cell(tmp_path, cell, 0.9)
    row = next(row for row in lines_of_csv(written(tmp_path, "csv")) if (row["title"], row["noise"]) == ("CE", "clean"))
    printed, other = (load_table("table1").published("cifar10", loss, "clean") for loss in ("ce", "sgce"))
    assert (row["n"], row["seeds"], row["std"]) == ("1", "1", "")
    assert float(row["difference"]) == pytest.approx((90 - printed.value) / printed.spread, abs=1e-5)
    content = written(tmp_path, "markdown")
    assert f"90.00 n=1<br>{printed.text}<br>" in content
    assert f"-<br>{other.text}<br>-" in content


def test_standard_errors_are_converted(tmp_path):
    values = [0.983, 0.985, 0.988]
    for cell, value in zip(plan("mnist-lenet5", losses=["mae"], noise=["sym:0.2"]), values, strict=True):
        write_cell(tmp_path, cell, value, draw=0)
    (row,) = lines_of_csv(written(tmp_path, "csv"))
    s, t = 100 * np.std(values, ddof=1), 0.1 * math.sqrt(3)
    assert float(row["difference"]) == pytest.approx((100 * np.mean(values) - 98.5) / math.hypot(s, t), abs=1e-5)
    assert row["published_spread_kind"] == "s.e."


def test_tables_that_test_on_other_data_take_its_figure(tmp_path):
    for cell in plan("table3", datasets=["webvision-mini"], losses=["ce", "sgce"]):
        folder = write_cell(tmp_path, cell, 0.6, classes=[str(i) for i in range(50)])
        if cell.row == "sgce":
            evaluation = {"accuracy": 0.7, "examples": 100}
            (folder / "evaluation-webvision-mini-imagenet.json").write_text(json.dumps(evaluation))
    rows = lines_of_csv(written(tmp_path, "csv"))
    found = [(row["title"], row["dataset"], row["mean"]) for row in rows if row["table"]]
    for title, imagenet in (("CE", ""), ("SGCE (BN)", "70.0")):
        assert {(title, "webvision-mini-imagenet", imagenet), (title, "webvision-mini", "60.0")} <= set(found)
    assert len(found) == 4
    assert [row["status"] for row in rows if not row["table"]] == ["not tested on webvision-mini-imagenet yet"]
    content = written(tmp_path, "markdown")
    assert "not tested on webvision-mini-imagenet yet" in content
    assert "webvision-mini, as given" in content, "scraped labels are not called clean"


def test_mini_never_mixes_with_full_and_always_says_so(tmp_path):
    for profile, accuracy in (("full", 0.9), ("mini", 0.5)):
        for cell in plan("digits", losses=["ce", "gce"], noise=["sym:0.4"], seeds=2, profile=profile):
            write_cell(tmp_path, cell, accuracy)
    # Neither where no recipe is left that they belong to.
    write_run(tmp_path / "odd", own(profile="mini", lr=0.123), 0.3)
    rows = lines_of_csv(written(tmp_path, "csv"))
    expected = {("digits", "full", "90.0"), ("digits", MINI, "50.0"), ("runs-1", MINI, "30.0")}
    assert {(row["table"], row["profile"], row["mean"]) for row in rows} == expected
    for format, part in (("markdown", "(?m)^## .*$"), ("latex", r"\\caption\{.*\}"), ("html", "(?s)" + SECTION)):
        sections = re.findall(part, written(tmp_path, format))
        assert [MINI[1:] in section for section in sections] == [False, True, True], format
    for section in sections[1:]:
        shown = re.findall(r"<h[23]>.*?</h[23]>|<summary>.*?</summary>", section)
        assert len(shown) > 3
        assert all(MINI in part for part in shown)
    assert displayed_profile("mini") == MINI


def test_published_code_never_mixes_with_the_formulas_and_is_compared_with_what_was_published(tmp_path):
    for profile, accuracy in (("full", 0.9), ("published-code", 0.5)):
        for cell in plan("table1", datasets=["cifar10"], losses=["ce", "gce"], noise=["clean"], profile=profile):
            write_cell(tmp_path, cell, accuracy)
    rows = lines_of_csv(written(tmp_path, "csv"))
    code = displayed_profile("published-code")
    assert "public implementation" in code
    assert "reduced" not in code
    assert {(row["profile"], row["mean"]) for row in rows} == {("full", "90.0"), (code, "50.0")}
    assert all(row["difference"] for row in rows)
    for format, part in (("markdown", "(?m)^## .*$"), ("latex", r"\\caption\{.*\}"), ("html", "(?s)" + SECTION)):
        sections = re.findall(part, written(tmp_path, format))
        assert [code[1:] in section for section in sections] == [False, True], format
    commands = re.findall("(?m)^- Command: `(symloss reproduce .*)`$", written(tmp_path, "markdown"))
    assert [command.endswith(" --as-published-code") for command in commands] == [False, True]


def test_own_runs_stand_together_if_they_differ_in_loss_noise_and_seed_only(tmp_path):
    values = {}
    for loss, noise, seed in itertools.product(("sgce:q=0.2", "ce"), ("asym:0.4", "clean", "sym:0.4"), range(2)):
        accuracy = 0.6 + 0.02 * seed + 0.1 * (loss == "ce") + 0.001 * len(noise)
        settings = own(loss=loss, noise=noise, seed=seed, weight_decay=0.03 if loss == "ce" else 0.001)
        write_run(tmp_path / settings.key, settings, accuracy, best=accuracy + 0.01)
        values.setdefault((loss, noise), []).append((accuracy, accuracy + 0.01))
    write_run(tmp_path / "longer", own(epochs=5), 0.5)
    content = written(tmp_path, "markdown")
    headings = [line for line in content.splitlines() if line.startswith("## ")]
    assert headings == ["## digits, epochs 3", "## digits, epochs 5"]
    assert "chosen by the noisy validation labels" in content
    head, *rows = markdown_tables(content)[:3]
    assert head == [["loss"], ["weight decay"], ["clean"], ["sym:0.4"], ["asym:0.4"]]
    assert [row[:2] for row in rows] == [[["ce"], ["0.03"]], [["sgce:q=0.2"], ["0.001"]]]
    for row in rows:
        for noise, (last, best) in zip(("clean", "sym:0.4", "asym:0.4"), row[2:], strict=True):
            pairs = 100 * np.array(values[row[0][0], noise])
            shown = text(pairs[:, 0].mean(), pairs[:, 0].std(ddof=1))
            assert last == (f"**{shown}**" if row[0] == ["ce"] else shown)
            assert best == "best " + text(pairs[:, 1].mean(), pairs[:, 1].std(ddof=1))


@in_turn("data, said", [("mine.csv", "as given"), ("digits", "clean")])
def test_labels_that_nobody_vouches_for_are_said_to_be_as_given(tmp_path, data, said):
    """And stand before those with noise, as clean ones do; the data's own test part is not called clean either."""
    for noise, q in itertools.product(("sym:0.4", "clean"), (0.2, 0.4)):
        write_run(tmp_path / f"{len(noise)} {q}", own(data=data, noise=noise, loss=f"sgce:q={q}"), 0.5)
    write_run(tmp_path / "cut-off", own(data=data, noise="clean", seed=1), 0.5, finished=False)
    for format in FORMATS:
        content = written(tmp_path, format).lower().replace("clean validation", "")  # a setting
        assert ("clean" in content) == (said == "clean"), format
        assert said in content
        assert format == "csv" or content.index(said) < content.index("0.4" if format == "latex" else "sym:0.4")


def test_own_data_without_a_test_set_is_measured_on_validation(tmp_path):
    last = {"epoch": 3, "validation_accuracy": 0.25}
    write_run(tmp_path / "run", own(data="mine.csv"), 0.5, test=0, last=last)
    content = written(tmp_path, "markdown")
    assert "held-out examples with noisy labels" in content
    assert "| ce | 0 | 25.00<br>best 45.00 |" in content


def test_footer_says_what_made_the_figures(tmp_path):
    """More seeds than were published are of the table too."""
    table1(tmp_path, noises=("clean",), losses=("ce",), seeds=4)
    write_run(tmp_path / "odd", own(), 0.5, versions={"symloss": "0.0.9", "processor": "Another one"})
    footer = written(tmp_path, "markdown").partition("### How this was made")[2]
    for said in (
        *("9 finished runs", "A processor (x86\\_64), 2 threads a run (8 runs)", "Another one (unknown) (1 run)"),
        *("commit 0123abc", "commit unknown", "Python 3.11.7", "torch 2.13.0", "n = 1, 4", "13.5 s in all"),
        *("standard deviation (n - 1)", "full: the whole recipe"),
        "`symloss reproduce table1 --losses ce --noise clean --seeds 4`",
    ):
        assert said in footer


@in_turn("format", FORMATS)
def test_runs_without_a_figure_are_named_in_every_format(tmp_path, format):
    write_run(tmp_path / "cut-off", own(seed=1), 0.5, finished=False)
    content = written(tmp_path, format)
    assert "No run is finished yet" in content or format == "csv"
    write_run(tmp_path / "whole", own(), 0.5)
    for each in (content, written(tmp_path, format)):
        assert "cut-off" in each
        assert "2 of 3 epochs" in each


def test_one_table_can_be_chosen(tmp_path):
    """These very runs are part of the ablation too; without asking for it, it is only mentioned."""
    table1(tmp_path, noises=("clean",), losses=("sgce",))
    write_run(tmp_path / "own", own(), 0.5)
    both, only = (written(tmp_path, "markdown", tables) for tables in (None, ["ablation"]))
    assert "--table ablation" in both
    assert re.findall(r"^## \w+", both, flags=re.M) == ["## table1", "## digits"]
    assert re.findall(r"^## \w+", only, flags=re.M) == ["## ablation"]
    assert "4 of them not of the tables that are shown" in only


def test_no_text_becomes_a_formula(tmp_path):
    for i, evil in enumerate(("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", " =1")):
        write_run(tmp_path / f"={i}", own(data=evil, loss=evil, model=evil, seed=i), 0.5)
    write_run(tmp_path / "=cut", own(data="=2", seed=9), 0.5, finished=False)
    cells = [cell for row in csv.reader(io.StringIO(written(tmp_path, "csv"))) for cell in row]
    assert "'=1+1" in cells
    for cell in cells:
        if cell.lstrip()[:1] in tuple("=+-@"):
            float(cell)


def test_markdown_of_any_names_is_only_words(tmp_path):
    evil = f"a|b `c` *d* [e](http://f) {HOSTILE}\n# g"
    write_run(tmp_path / "a`b", own(data=evil, loss=evil), 0.5)
    content = written(tmp_path, "markdown")
    assert "<img" not in content
    assert not re.search(r"(?<!\\)\[e\]|(?<!\\)`c`|^# g", content, flags=re.M)
    assert {len(row) for row in markdown_tables(content)} == {3}


def test_rows_of_a_grid_have_names_of_their_own_and_the_command_can_be_pasted(tmp_path):
    losses = ["sgce q=0.1 temperature=1 weight_decay=0.001", "sgce q=0.9 temperature=1 weight_decay=0.001"]
    for cell in plan("sensitivity", losses=losses, noise=["sym:0.6"], seeds=1):
        write_cell(tmp_path, cell, 0.5)
    assert [row["title"] for row in lines_of_csv(written(tmp_path, "csv"))] == losses
    assert f"--losses '{','.join(losses)}'" in written(tmp_path, "markdown")


def test_a_reduced_table_compares_the_order_of_losses_and_not_their_figures(tmp_path):
    accuracies = {"ce": 0.5, "mae": 0.7, "gce": 0.6, "sgce": 0.65}
    for profile in ("full", "scale16"):
        cells = plan("table1", datasets=["cifar10"], losses=accuracies, noise=["sym:0.6"], seeds=1, profile=profile)
        for cell in cells:
            write_cell(tmp_path / profile, cell, accuracies[cell.row])
        rows = lines_of_csv(written(tmp_path / profile, "csv"))
        assert len(rows) == 4
        assert all(bool(row["difference"]) == (profile == "full") for row in rows)
        printed = [load_table("table1").published("cifar10", loss, "sym:0.6").value for loss in accuracies]
        rho = stats.spearmanr(list(accuracies.values()), printed).statistic
        said = f"Rank correlation (Spearman) of ours and the published losses, cifar10 sym:0.6: {rho:.2f} of 4 losses."
        assert said in written(tmp_path / profile, "markdown")
    for cell in plan("table1", datasets=["cifar10"], losses=accuracies, noise=["sym:0.8"], seeds=1):
        write_cell(tmp_path / "alike", cell, 0.1)
    assert "Rank correlation" not in written(tmp_path / "alike", "markdown")
