"""Suspicious labels for annotation tools, and the decisions that come back from Label Studio.

``label-studio.json`` and ``label-studio-min.json`` are exports of Label Studio 1.23.2: the tasks of :func:`audited`
were imported with their interface, and two people annotated them over its API. label-studio-sdk 2.1.2 accepts tasks and
interface (``LabelInterface.validate``, ``validate_task``, ``validate_prediction``).
"""

import csv
import json
import re
import shutil
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest
from data_helpers import save_image
from refusals import all_refused, refused

from symloss.fit import audit_labels, corrections, export_audit
from symloss.fit.audit.decisions import read_decisions

HERE = Path(__file__).parent

CLASSES = ("<b>ham</b> & 'eggs'", 'spam "$5"', "=news")
TEXTS = ["Hello", "=1+1", "</Text><script>alert(1)</script>", "nul \0 and \ud800", "Ünï\ncode", "Bye", "Six", "Good"]


def audited(**more):
    """Return an audit of eight examples, 10 to 17. All but the last look wrong, the first most."""
    given, suggested = np.array([0, 0, 1, 1, 2, 0, 2, 0]), np.array([1, 2, 0, 2, 0, 1, 1, 0])
    probabilities = np.full((8, 3), 0.1)
    probabilities[np.arange(8), suggested] = 0.8
    scores = np.array([-7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 1.0])
    return audit_labels(given, scores, probabilities, class_names=CLASSES, positions=np.arange(10, 18), **more)


def exported(to, tool="label-studio", name="tasks.json", **more):
    more = more or {"columns": {"text": TEXTS}}
    return export_audit(audited(), to / name, tool, **more)


def read(path):
    return json.loads(path.read_text(encoding="ascii"))


def test_tasks_and_interface_of_label_studio_fit_together(tmp_path):
    tasks, interface = exported(tmp_path)
    assert [path.name for path in (tasks, interface)] == ["tasks.json", "tasks.xml"]
    found, view = read(tasks), ElementTree.parse(interface).getroot()
    assert [task["data"]["index"] for task in found] == list(range(10, 17))  # the most suspicious first
    first = found[0]["data"]
    labels = {"given_label": CLASSES[0], "suggested_label": CLASSES[1], "label_score": -7.0}
    assert first == {"symloss_audit": first["symloss_audit"], "index": 10, **labels, "text": "Hello"}
    (prediction,) = found[0]["predictions"]
    assert prediction["model_version"].startswith("symloss ")
    assert prediction["score"] == 0.8
    (result,) = prediction["result"]
    control = view.find(f"Choices[@name='{result['from_name']}']")
    assert control.get("toName") == result["to_name"] == view.find("Text").get("name")
    assert (control.tag.lower(), control.get("choice")) == (result["type"], "single")
    assert result["value"] == {"choices": [CLASSES[1]]}
    # $word is a field of the task in Label Studio, so that a class with a dollar sign needs an alias.
    choices = [(each.get("value"), each.get("alias")) for each in control]
    assert choices == [(CLASSES[0], None), ('spam "$\u20605"', CLASSES[1]), (CLASSES[2], None)]
    fields = re.findall(r"[$](\w+)", interface.read_text().replace(CLASSES[1], ""))
    assert sorted(fields) == ["given_label", "text"]
    assert found[3]["data"]["text"] == "nul \ufffd and \ufffd"  # what no data base holds


def test_several_columns_are_a_table_and_many_classes_a_list(tmp_path):
    tasks, interface = exported(tmp_path, columns={"text": TEXTS, "=size": range(8)}, rows=range(2, 10))
    data, view = read(tasks)[1]["data"], ElementTree.parse(interface).getroot()
    assert data["cells"] == {"text": "=1+1", "=size": "1"}
    assert data["row"] == 3
    assert view.find("Table").get("value") == "$cells"
    assert view.find("Choices").get("layout") is None
    audit = audit_labels([0, 1], [-1.0, 1.0], np.eye(2, 21), n_wrong=1)
    _, interface = export_audit(audit, tmp_path / "many.json", columns={"text": "ab"})
    assert ElementTree.parse(interface).getroot().find("Choices").get("layout") == "select"


def test_images_are_served_from_the_folder_above_theirs(tmp_path):
    files = [f"a&b/{number} #ü.png" for number in range(8)]
    files[1], files[2] = "https://example.org/1.png", str(tmp_path / "photos" / "2.png")
    tasks, interface = exported(tmp_path, files=files, folder=tmp_path / "photos")
    data = [task["data"] for task in read(tasks)]
    assert [each["image"] for each in data[:3]] == [
        "/data/local-files/?d=photos/a%26b/0%20%23%C3%BC.png",
        "https://example.org/1.png",
        "/data/local-files/?d=photos/2.png",
    ]
    assert data[0]["file"] == files[0]
    assert ElementTree.parse(interface).getroot().find("Image").get("value") == "$image"
    files[3] = "../../elsewhere/3.png"
    with refused(ValueError, "Label Studio serves files below one folder", "elsewhere", f"outside of {tmp_path}."):
        exported(tmp_path, name="other.json", files=files, folder=tmp_path / "photos")
    assert {path.name for path in tmp_path.iterdir()} == {"tasks.json", "tasks.xml"}


def test_what_people_decided_in_label_studio():
    expected = [
        (10, "accepted", 1, "1"),
        (10, "rejected", 0, "2"),
        (11, "rejected", 0, "1"),
        (12, "relabelled", 2, "1"),
        (13, "unsure", None, "1"),  # although the suggestion stayed chosen
        (14, "unusable", None, "1"),
        (15, "unsure", None, "1"),  # skipped
    ]  # and 16 is undecided
    for name, decisions in (("label-studio.json", expected), ("label-studio-min.json", expected[:-1])):
        found = read_decisions(HERE / name, audited())  # in the order of time, where JSON-MIN has the latest first
        assert [(each.position, each.decision, each.label, each.annotator) for each in found] == decisions


def test_annotators_have_their_address_where_the_export_has_it(tmp_path):
    path, text = tmp_path / "export.json", (HERE / "label-studio.json").read_text()
    path.write_text(text.replace('"completed_by": 2', '"completed_by": {"id": 2, "email": "ada@example.org"}'))
    assert {each.annotator for each in read_decisions(path, audited())} == {"1", "ada@example.org"}
    path.write_text(text.replace('"completed_by": 2', '"completed_by": null'))
    assert {each.annotator for each in read_decisions(path, audited())} == {"1", "export"}


def test_what_was_chosen_before_a_task_was_skipped_does_not_count(tmp_path):
    path, task = tmp_path / "export.json", read(HERE / "label-studio.json")[1]
    for skipped, decision in ((False, "rejected"), (True, "unsure")):
        task["annotations"][0]["was_cancelled"] = skipped
        path.write_text(json.dumps([task]))
        assert [each.decision for each in read_decisions(path, audited())] == [decision]


def test_accepting_every_suggestion_there_is_the_same_as_here(tmp_path):
    audit, path = audited(), tmp_path / "annotated.json"
    tasks = read(exported(tmp_path)[0])
    for task in tasks:
        task["annotations"] = [{"result": task["predictions"][0]["result"], "completed_by": None}]
    path.write_text(json.dumps(tasks))
    assert corrections(audit, path) == corrections(audit)
    assert len(corrections(audit)) == 7


def test_exports_that_hold_no_decisions_are_refused(tmp_path):
    audit, path = audited(), tmp_path / "export.json"
    task = read(HERE / "label-studio.json")[0]
    small = read(HERE / "label-studio-min.json")[0]
    result = task["annotations"][0]["result"][0]

    def case(ingredients, document):
        def call():
            path.write_text(document if isinstance(document, str) else json.dumps(document))
            read_decisions(path, audit)

        return ValueError, ingredients.replace("PATH", str(path)), call

    def annotated(**changes):
        return [task | {"annotations": [{"result": [result | changes], "completed_by": 1}]}]

    whose = "must be one that `symloss audit --export label-studio` wrote; got another"
    all_refused(
        case("PATH must hold JSON", "id,label\n"),
        case("PATH must hold JSON", "[" * 100_000),
        case("PATH must be Label Studio's export ... a list of tasks", {"tasks": []}),
        case(f"task 1 of PATH {whose}", [3]),
        case(f"task 2 of PATH {whose}", [task, {"data": {"text": "x"}, "annotations": []}]),
        case("task 1 of PATH is about another audit", [small | {"symloss_audit": "0" * 16}]),
        case("task 1 of PATH is about another audit", [small | {"index": 9}]),
        case("task 1 of PATH is about another audit", [small | {"index": [9]}]),
        case("label in task 1 of PATH must be a class; got 'bird'", [small | {"label": "bird"}]),
        case("label in task 1 of PATH must be a class; got 'bird'", annotated(value={"choices": ["bird"]})),
        case("label in task 1 of PATH must be one choice; got [", annotated(value={"choices": list(CLASSES)})),
        case("label in task 1 of PATH must be one choice; got 3", [small | {"label": 3}]),
        case("problem in task 1 of PATH must be one of ... got 'odd'", [small | {"problem": "odd"}]),
        case(
            "task 1 of PATH must be annotated with the labelling interface ... got ... 'mood'",
            annotated(from_name="mood"),
        ),
        case("task 1 of PATH must hold choices as a list", annotated(value={"rating": 3})),
        case("an annotation in task 1 of PATH must hold a JSON object", [task | {"annotations": [1]}]),
        case("task 1 of PATH must hold annotations as a list", [task | {"annotations": None}]),
    )
    with refused(FileNotFoundError, "No export of Label Studio found", "none.json"):
        read_decisions(tmp_path / "none.json", audit)
    with refused(
        ValueError, f"task 1 of {HERE / 'label-studio.json'} is about another audit, or the labels have changed"
    ):
        read_decisions(HERE / "label-studio.json", audit_labels([0, 1], [-1, 1], np.eye(2), n_wrong=1))


def test_a_csv_has_the_suspicious_labels_without_formulas(tmp_path):
    (path,) = exported(tmp_path, "csv", "list.csv", columns={"text": TEXTS, "index": "abcdefgh", "=a": [0] * 8})
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    own = ["index", "given_label", "suggested_label", "label_score", "suggested_probability"]
    assert list(rows[0]) == [*own, "text", "index (data)", "'=a"]
    assert [row["index"] for row in rows] == [str(number) for number in range(10, 17)]
    assert list(rows[1].values()) == ["11", CLASSES[0], "'=news", "-6.0", "0.8", "'=1+1", "b", "0"]
    (path,) = exported(tmp_path, "csv", "plain.csv", rows=range(8), files=["-a.png"] * 8)
    assert path.read_text().splitlines()[2].startswith("11,1,'-a.png,")


def test_records_and_settings_of_argilla(tmp_path):
    """argilla 2.8.0 reads them: ``Settings.from_json`` and ``Dataset.records.from_json``."""
    records, settings = map(read, exported(tmp_path, "argilla", columns={"text": TEXTS, "size": range(8)}))
    assert records[1]["fields"] == {"text": "text: =1+1\nsize: 1", "given_label": CLASSES[0]}
    assert records[1]["suggestions"]["label"].items() >= {"value": "=news", "score": 0.8}.items()
    assert records[1]["id"] == "11"
    (question,) = settings["questions"]
    assert [option["value"] for option in question["settings"]["options"]] == list(CLASSES)
    records, settings = map(read, exported(tmp_path, "argilla", "a.json", files=["a.png"] * 8, folder=tmp_path))
    assert records[0]["fields"]["image"] == str(tmp_path / "a.png")
    assert {field["name"]: field["settings"]["type"] for field in settings["fields"]} == {
        "image": "image",
        "given_label": "text",
    }


def test_labels_of_fiftyone(tmp_path):
    """The importer of ``FiftyOneImageClassificationDataset`` in fiftyone 1.22.1 reads them."""
    files = [f"{number}.png" for number in range(8)]
    (path,) = exported(tmp_path, "fiftyone", files=files, folder=tmp_path)
    found = read(path)
    assert found["classes"] == list(CLASSES)
    assert list(found["labels"]) == [str(tmp_path / file) for file in files[:-1]]
    label = found["labels"][str(tmp_path / "1.png")]
    assert (label["label"], label["confidence"], label["attributes"]["given_label"]) == ("=news", 0.8, CLASSES[0])


def test_files_are_written_whole_and_replaced_only_if_asked(tmp_path):
    tasks, interface = exported(tmp_path / "new" / "folder")
    tasks.unlink()
    interface.write_text("mine")
    with refused(ValueError, f"{interface} exists already; add `--overwrite`"):
        exported(tasks.parent)
    assert [path.name for path in tasks.parent.iterdir()] == ["tasks.xml"]
    exported(tasks.parent, columns={"text": TEXTS}, overwrite=True)
    assert interface.read_text().startswith("<View>")
    interface.unlink()
    interface.mkdir()
    before = tasks.read_bytes()
    with refused(ValueError, f"{interface} exists already"):
        exported(tasks.parent, columns={"text": "abcdefgh"}, overwrite=True)
    assert tasks.read_bytes() == before


def test_exports_that_cannot_be_are_refused(tmp_path):
    all_refused(
        (ValueError, "annotation tool must be one of 'label-studio' ... got 'x'", lambda: exported(tmp_path, "x")),
        (ValueError, "csv must be a .csv file; got ... tasks.json", lambda: exported(tmp_path, "csv")),
        (ValueError, "'text' must have 8 values; got 1", lambda: exported(tmp_path, columns={"text": ["a"]})),
        (ValueError, "'files' must have 8 values; got 1", lambda: exported(tmp_path, files=["a"])),
        (ValueError, "label-studio needs texts, cells ... none. ... csv", lambda: exported(tmp_path, rows=range(8))),
        (ValueError, "fiftyone needs image files to show; these", lambda: exported(tmp_path, "fiftyone")),
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("tool", ["label-studio", "argilla"])
def test_hostile_class_names_and_no_suspects(tmp_path, tool):
    names = ["</Choices>\n\t<a b='\"'>", "nul\0\ud800"]
    audit = audit_labels([0, 1], [1.0, 1.0], np.eye(2), n_wrong=0, class_names=names)
    tasks, interface = export_audit(audit, tmp_path / "tasks.json", tool, columns={"text": "ab"})
    assert read(tasks) == []
    if tool == "label-studio":
        values = [each.get("value") for each in ElementTree.parse(interface).getroot().find("Choices")]
    else:
        values = [each["value"] for each in read(interface)["questions"][0]["settings"]["options"]]
    assert values == [names[0], "nul\ufffd\ufffd"]


@pytest.fixture(scope="module")
def made(tmp_path_factory, warm_python):
    """A run on a table, which holds out some rows, and a fit to image files, with some wrong labels each."""
    folder, random = tmp_path_factory.mktemp("made"), np.random.default_rng(0)
    true, wrong = np.arange(80) % 2, np.arange(80) % 9 == 4
    names = np.array(["=cat", "dog"])[np.where(wrong, 1 - true, true)]
    values = true[:, None] * 4 + random.normal(size=(80, 2))
    rows = [f"{a:.3f},{b:.3f},@{k},{name}" for k, ((a, b), name) in enumerate(zip(values, names, strict=True))]
    (folder / "table.csv").write_text("\n".join(["a,b,note,kind", *rows, ""]))
    for number, (name, bright) in enumerate(zip(names, true, strict=True)):
        image = np.full((8, 8, 3), 60 + 120 * bright, np.uint8) + random.integers(0, 40, (8, 8, 3), dtype=np.uint8)
        save_image(folder / "photos" / name / f"{number}.png", image)
    commands = (
        "train --data table.csv --label kind -l gce --epochs 12 --model mlp:hidden=16 --lr 0.1 --batch 16 -o of-table",
        "fit --data photos --budget 1 --out of-photos",
    )
    for command in commands:
        done = warm_python.run(["-m", "symloss", *command.split()], cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


def audit_rows(path):
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["is_label_issue"] == "True"]
    return sorted(rows, key=lambda row: float(row["label_score"]))


def test_the_command_exports_a_table_and_applies_what_comes_back(made, tmp_path, ends):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    told = ends(0, tmp_path, "audit", "of-table", "--export", "label-studio", "new/tasks.json", "--json")
    assert json.loads(told)["files"][-2:] == ["new/tasks.json", "new/tasks.xml"]
    tasks, flagged = read(tmp_path / "new" / "tasks.json"), audit_rows(tmp_path / "of-table" / "audit.csv")
    assert flagged
    assert [str(task["data"]["row"]) for task in tasks] == [row["row"] for row in flagged]
    assert list(tasks[0]["data"]["cells"]) == ["a", "b", "note"]
    assert all(task["data"]["cells"]["note"] == f"@{task['data']['index']}" for task in tasks)
    for task in tasks:
        task["annotations"] = [{"result": task["predictions"][0]["result"], "completed_by": 1}]
    (tmp_path / "back.json").write_text(json.dumps(tasks))
    for chosen in (("--decisions", "back.json"), ("--all",)):
        ends(0, tmp_path, "audit", "of-table", "--apply", *chosen, "--out", chosen[0].strip("-"))
    assert (tmp_path / "decisions" / "table-corrected.csv").read_text() != (tmp_path / "table.csv").read_text()
    assert (tmp_path / "decisions" / "table-corrected.csv").read_text() == (
        tmp_path / "all" / "table-corrected.csv"
    ).read_text()
    again = ("audit", "of-table", "--export", "label-studio", "new/tasks.json")
    assert "new/tasks.json exists already; add `--overwrite`" in ends(2, tmp_path, *again)
    ends(0, tmp_path, *again, "--overwrite")
    data = (tmp_path / "table.csv").read_bytes()
    told = ends(2, tmp_path, "audit", "of-table", "--export", "csv", "new/../table.csv", "--overwrite")
    assert "`--export` must not replace the data; got 'new/../table.csv'." in told
    assert (tmp_path / "table.csv").read_bytes() == data
    assert "must be a .csv file; got 'x.json'" in ends(2, tmp_path, "audit", "no-run", "--export", "csv", "x.json")
    assert "must be one of 'label-studio', 'csv'" in ends(2, tmp_path, "audit", "of-table", "--export", "no", "x.json")


def test_the_command_exports_image_files(made, ends):
    before = {path.name: path.read_bytes() for path in (made / "of-photos").iterdir()}
    told = ends(0, made, "audit", "of-photos", "--export", "label-studio", "photos.json", "--top", "0")
    assert "look wrong" in told
    flagged = audit_rows(made / "of-photos" / "audit.csv")
    assert flagged
    data = [task["data"] for task in read(made / "photos.json")]
    assert [each["file"] for each in data] == [row["file"].lstrip("'") for row in flagged]
    images = [unquote(each["image"].removeprefix("/data/local-files/?d=")) for each in data]
    assert all((made / image).is_file() for image in images)  # from the folder that the photos' folder is in
    ends(0, made, "audit", "of-photos", "--export", "csv", "list.csv")
    with (made / "list.csv").open(newline="") as file:
        assert [row["file"] for row in csv.DictReader(file)] == [row["file"] for row in flagged]
    ends(0, made, "audit", "of-photos", "--export", "fiftyone", "labels.json")
    assert list(read(made / "labels.json")["labels"]) == [str(made / image) for image in images]
    assert {path.name: path.read_bytes() for path in (made / "of-photos").iterdir()} == before
