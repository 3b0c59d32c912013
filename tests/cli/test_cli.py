"""The command line: options, settings, lists of losses, certificates and citations."""

import json
import pathlib
import re
import subprocess
import sys

import pytest
import typer
import yaml
from in_turn import in_turn
from typer.main import get_command
from typer.testing import CliRunner

import symloss
from symloss.cli import app
from symloss.cli.options import OPTIONS, read_settings, with_options
from symloss.cli.output import bar
from symloss.cli.training import train
from symloss.cli.tune import tune
from symloss.losses.catalogue import RECORDS
from symloss.losses.published import PAPER, PUBLICATIONS

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def printed(*words):
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_help_answers_without_torch(tmp_path):
    """Help must not wait for torch: here torch cannot even be imported."""
    (tmp_path / "torch.py").write_text("raise ImportError('torch was imported')")
    script = "import sys; sys.path.insert(0, '.'); sys.argv = ['symloss', '--help']; import symloss.cli as c; c.main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert "certify" in done.stdout


@in_turn("command", ["train", "compare", "tune", "reproduce"])
def test_help_says_each_default_or_where_it_comes_from(command):
    shown = CliRunner().invoke(app, [command, "--help"], terminal_width=400, env={"COLUMNS": "400"}).stdout
    options = [line for line in shown.splitlines() if line.strip("│ ").startswith("--")]
    assert len(options) > 10
    flags = [line for line in options if "<" not in line]
    without = [line for line in options if "default:" not in line and line not in flags]
    assert [line for line in without if "--settings" not in line] == []
    assert all(f"{name} " in "".join(flags) for name in ("--json", "--help"))
    assert "<bool>" not in shown


def every_command(command, path=""):
    """The options of each command by its name."""
    for name, each in getattr(command, "commands", {}).items():
        yield from every_command(each, f"{path} {name}".strip())
    yield path, [param.name for param in command.params if param.param_type_name == "option" and param.name != "help"]


def test_options_are_few_and_have_one_meaning():
    assert printed("--version").split() == ["symloss", symloss.__version__]
    found = dict(every_command(get_command(app)))
    assert sum(map(len, found.values())) <= 150
    assert len(found["fit"]) <= 16
    for command in ("fit", "train", "compare", "tune", "predict", "data show", "recipe", "reproduce"):
        assert "data" in found[command], command
    assert not {"dataset", "lrs", "weight_decays"} & {name for names in found.values() for name in names}


def test_settings_come_from_files_and_texts_and_the_command_line_overrides_them(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('momentum = 0.5\nlabel = "kind"\nskip-bad = true\nlr = 1\n')
    found = read_settings([str(file), "momentum=0.9", "label=3"], OPTIONS)
    assert found == {"momentum": 0.9, "label": "3", "skip_bad": True, "lr": 1.0}
    seen = []

    @with_options("epochs", settings=("momentum", "label"))
    def command(*, options):
        seen.append((dict(options), options.given))

    toy = typer.Typer()
    toy.command()(command)
    arguments = ["--settings", "momentum=0.9", "-s", "epochs=7", "--epochs", "3"]
    assert CliRunner().invoke(toy, arguments).exit_code == 0
    assert seen == [({"epochs": 3, "momentum": 0.9, "label": "label"}, {"epochs", "momentum"})]
    # The docs list every setting.
    listed = set(re.findall(r"`(\w+)`", (DOCS / "training.md").read_text()))
    for command in (train, tune):
        assert set(command.epilog.rstrip(".").split(": ")[1].split(", ")) <= listed


@in_turn(
    "text, said",
    [
        ("momentun=0.9", "Unknown setting 'momentun' in --settings; did you mean 'momentum'?"),
        ("momentum=fast", "`momentum` in --settings must be a number; got 'fast'"),
        ("epochs=1.5", "`epochs` in --settings must be a whole number; got 1.5"),
        ("epochs=0", "`epochs` must be at least 1; got 0"),
        ("skip_bad=1", "`skip_bad` in --settings must be true or false; got 1"),
        ("no-such.toml", "`--settings` must be a TOML file or NAME=VALUE; got 'no-such.toml'"),
    ],
)
def test_a_wrong_setting_is_one_sentence(text, said, tmp_path):
    with pytest.raises((ValueError, OSError), match=re.escape(said)):
        read_settings([text], OPTIONS)
    broken = tmp_path / "x.toml"
    broken.write_text("momentum 0.9")
    with pytest.raises(ValueError, match="is not valid TOML"):
        read_settings([str(broken)], OPTIONS)


def test_losses_as_a_table_and_as_json():
    table, rows = printed("losses"), json.loads(printed("losses", "--json"))
    assert [row["name"] for row in rows] == symloss.list_losses()
    assert all(row["name"] in table and row["reference"] for row in rows)
    sgce = next(row for row in rows if row["name"] == "sgce")
    assert sgce["presets"]["cifar10"]["values"] == {"q": 0.8}
    assert sgce["facts"]["symmetric"] is True


def test_certify_card_and_json():
    """On raw scores the unhinged loss is convex and has no bound; of unit scores it is the other way round."""
    card = printed("certify", "gce:q=0.5", "--classes", "3")
    for words in ("gce:q=0.5, 3 classes, raw scores", "sum over labels", "(exact to 1e-4)"):
        assert words in card
    data = json.loads(printed("certify", "gce:q=0.5", "--classes", "3", "--json"))
    assert data["symmetric"]["holds"] is False
    assert data["slope"] == pytest.approx(3**-0.5)
    data = json.loads(printed("certify", "unhinged", "-c", "3", "--normalize", "l2", "--json"))
    assert data["scores"] == "scores after UnitScores(temperature=1, eps=1e-05)"
    assert (data["bounded"]["holds"], data["convex"]["holds"], data["symmetric"]["holds"]) == (True, False, True)


def test_certify_a_margin_loss(run_command, tmp_path):
    card = printed("certify", "logistic", "--margin", "--radius", "2")
    for words in ("logistic, margins |z| <= 2", "no   symmetric", "yes  convex", "symmetrized 0 (at least)"):
        assert words in card
    (tmp_path / "mine.py").write_text("def phi(z):\n    return -z.tanh()\n")
    data = json.loads(run_command("certify", "--own", "mine:phi", "--margin", "--json", cwd=tmp_path).stdout)
    assert (data["symmetric"]["holds"], data["convex"]["holds"], data["radius"]) == (True, False, 10.0)
    assert data["surrogate"] is None


def test_certify_a_loss_of_the_users_own(run_command, tmp_path):
    (tmp_path / "mine.py").write_text("def loss(z, y):\n    return -z.gather(1, y[:, None]).squeeze(1)\n")
    data = json.loads(run_command("certify", "--own", "mine:loss", "-c", "3", "--json", cwd=tmp_path).stdout)
    assert data["convex"]["holds"] is True
    assert data["symmetric"]["holds"] is False
    assert data["constants"] == {"lipschitz": "at least", "smoothness": "at least"}


@in_turn(
    "source, line",
    [
        ("def loss(z, y):\n    return z.no_such_thing\n", "AttributeError: 'Tensor' object has no attribute"),
        ("def loss(z, y):\n    raise ValueError('mine')\n", "ValueError: mine"),
        ("import no_such_module_anywhere\n", "ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
    ],
)
def test_a_loss_of_the_users_own_has_its_traceback_after_one_line(run_command, tmp_path, source, line):
    (tmp_path / "mine.py").write_text(source)
    done = run_command("certify", "--own", "mine:loss", "-c", "3", cwd=tmp_path)
    first, second, *rest = done.stderr.splitlines()
    assert done.returncode == 1
    assert first in (f"symloss: this was raised in code of your own, {name}:" for name in ("loss", "mine:loss"))
    assert second == "Traceback (most recent call last):"
    assert any("mine.py" in each for each in rest)
    assert any(each.startswith(line) for each in rest)


@in_turn(
    "arguments, message",
    [
        ("cite sgze", "there is no loss named 'sgze'; did you mean 'sgce'?"),
        ("certify gce:q=-1", "q must be a number in [0, 10]; got -1"),
        ("certify ce --classes 1", "classes must be a whole number in [2, inf); got 1"),
        ("certify unhinged --normalize l3", "l3"),
        ("certify logistic --margin --normalize l2", "`--normalize` must be left out with `--margin`"),
        ("certify logistic --margin --radius -1", "radius must be a number in (0, inf); got -1"),
        ("certify --own nothing", "SPEC must be module:name of a function or module"),
        ("certify --own no_such_module:loss", "got 'no_such_module:loss'"),
        ("certify --own mine:loss", "must return one value for each example"),
        ("certify --own mine:none", "the module has no 'none'"),
        ("predict no-such-run --data digits", "No run found in 'no-such-run', which does not exist. Expected"),
        ("audit table.csv", "No run found in 'table.csv', which is a file. Expected the folder of a finished"),
        ("predict table.csv --data digits", "No run found in 'table.csv', which is a file."),
        ("data show --data digitz", "did you mean 'digits'?"),
        ("data get webvision-mini", "webvision-mini cannot be downloaded from here"),
        ("data show --data=", "got an empty text"),
        ("data show --data no/such/folder", "data must be an existing folder or file"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(run_command, tmp_path, arguments, message):
    (tmp_path / "mine.py").write_text("def loss(z, y):\n    return z\n")
    (tmp_path / "table.csv").write_text("a,label\n1,x\n")
    done = run_command(*arguments.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_progress_is_shown_on_stderr(monkeypatch, capsys):
    """What is piped to another program stays clean. A terminal is simulated by what rich asks for."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    with bar() as shown:
        shown.update(shown.add_task("reading", total=2), completed=1)
    shown = capsys.readouterr()
    assert "reading" in shown.err
    assert shown.out == ""


ENTRY = re.compile(r"@(?P<kind>\w+)\{(?P<key>\w+),\n(?P<fields>(?:  \w+ = \{.*\},\n)+)\}")


def entries(text):
    """The entries of a bibliography by their keys; nothing but comments may be left between them."""
    left = [line for line in ENTRY.sub("", text).splitlines() if line and not line.startswith("%")]
    assert left == []
    return {e["key"]: dict(re.findall(r"  (\w+) = \{(.*)\},", e["fields"])) for e in ENTRY.finditer(text)}


def test_the_paper_and_the_software_are_those_of_the_citation_file():
    found = entries(printed("cite"))
    assert list(found) == ["lemirepaquin2026", "symloss"]
    assert found["symloss"]["note"] == f"Version {symloss.__version__}"
    citation = yaml.safe_load((DOCS.parent / "CITATION.cff").read_text())
    assert found["symloss"]["title"] == f"{{{citation['title']}}}"
    assert found["symloss"]["author"] == f"{{{' and '.join(author['name'] for author in citation['authors'])}}}"
    paper, preferred = found["lemirepaquin2026"], citation["preferred-citation"]
    assert paper["title"].lower() == f"{{{preferred['title']}}}".lower()
    assert paper["year"] == str(preferred["year"])
    names = " and ".join(f"{a['family-names']}, {a['given-names']}" for a in preferred["authors"])
    assert paper["author"] == names.replace("è", r"{\`e}")


@in_turn(
    "loss, key, words",
    [
        ("sgce:q=0.8", "lemirepaquin2026", "Symmetrization of loss functions"),
        ("mae", "ghosh2017", "Sastry, P. S."),
        ("focal", "lin2017", r"Doll{\'a}r, Piotr"),
        ("nce+rce", "ma2020", "Proceedings of the International Conference on Machine Learning"),
    ],
)
def test_a_loss_is_cited_by_what_introduced_it(loss, key, words):
    (found,) = entries(printed("cite", loss)).items()
    assert found[0] == key
    assert words in " ".join(found[1].values())


def test_every_loss_can_be_cited_in_one_bibliography():
    """Two entries with one key would be an error of BibTeX; letters beyond ASCII one of old versions."""
    text = printed("cite", *RECORDS)
    assert text.isascii()
    assert len(re.findall("^@", text, re.MULTILINE)) == len(entries(text)) == len(PUBLICATIONS)
    assert text.count("% ce is the negative log-likelihood") == 1


def test_a_reference_is_complete():
    file = (DOCS.parent / "src" / "symloss" / "losses" / "references.bib").read_text()
    assert len(re.findall("^@", file, re.MULTILINE)) == len(PUBLICATIONS), "an entry was not read"
    for name, publication in PUBLICATIONS.items():
        fields = publication.fields
        assert publication.bibtex.startswith(("@misc{", "@inproceedings{"))
        assert name.lower().replace(" ", "") == publication.bibtex.partition("{")[2].partition(",")[0]
        assert all(re.fullmatch(r"[^,]+, [^,]+", author) for author in fields["author"].split(" and "))
        assert re.fullmatch(r"\d{4}", fields["year"])
        assert ({"booktitle", "series"} <= fields.keys()) == (name != PAPER)
