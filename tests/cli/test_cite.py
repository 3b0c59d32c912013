"""``symloss cite``: BibTeX of the paper, the software and the sources of the losses."""

import re
from pathlib import Path

import yaml
from in_turn import in_turn
from typer.testing import CliRunner

import symloss
from symloss.cli import app
from symloss.losses.catalogue import RECORDS
from symloss.losses.published import PAPER, PUBLICATIONS

ROOT = Path(__file__).parents[2]
ENTRY = re.compile(r"@(?P<kind>\w+)\{(?P<key>\w+),\n(?P<fields>(?:  \w+ = \{.*\},\n)+)\}")


def cited(*losses):
    done = CliRunner().invoke(app, ["cite", *losses], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def entries(text):
    """The entries of a bibliography by their keys; nothing but comments may be left between them."""
    left = [line for line in ENTRY.sub("", text).splitlines() if line and not line.startswith("%")]
    assert left == []
    return {e["key"]: dict(re.findall(r"  (\w+) = \{(.*)\},", e["fields"])) for e in ENTRY.finditer(text)}


def test_the_paper_and_the_software_are_those_of_the_citation_file():
    found = entries(cited())
    assert list(found) == ["lemirepaquin2026", "symloss"]
    assert found["symloss"]["note"] == f"Version {symloss.__version__}"
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
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
    (found,) = entries(cited(loss)).items()
    assert found[0] == key
    assert words in " ".join(found[1].values())


def test_every_loss_can_be_cited_in_one_bibliography():
    """Two entries with one key would be an error of BibTeX; letters beyond ASCII one of old versions."""
    text = cited(*RECORDS)
    assert text.isascii()
    assert len(re.findall("^@", text, re.MULTILINE)) == len(entries(text)) == len(PUBLICATIONS)
    assert text.count("% ce is the negative log-likelihood") == 1


def test_a_reference_is_complete():
    file = (ROOT / "src" / "symloss" / "losses" / "references.bib").read_text()
    assert len(re.findall("^@", file, re.MULTILINE)) == len(PUBLICATIONS), "an entry was not read"
    for name, publication in PUBLICATIONS.items():
        fields = publication.fields
        assert publication.bibtex.startswith(("@misc{", "@inproceedings{"))
        assert name.lower().replace(" ", "") == publication.bibtex.partition("{")[2].partition(",")[0]
        assert all(re.fullmatch(r"[^,]+, [^,]+", author) for author in fields["author"].split(" and "))
        assert re.fullmatch(r"\d{4}", fields["year"])
        assert ({"booktitle", "series"} <= fields.keys()) == (name != PAPER)
