"""``symloss recipe``: why a setting is what it is, by one command."""

import json

from typer.testing import CliRunner

from symloss.cli import app


def recipe(*words):
    done = CliRunner().invoke(app, ["recipe", *words])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_why_a_parameter_is_what_it_is_here():
    found = json.loads(recipe("sgce", "--data", "cifar10", "--json"))
    assert found["settings"]["loss"]["value"] == "sgce:q=0.8"
    published = {"layer": "preset of sgce for cifar10", "value": 0.8, "source": "Lemire Paquin 2026, table 5"}
    default = {"layer": "loss sgce", "value": 0.7, "source": "not published; ours"}
    assert found["parameters"]["q"] == published | {"overrides": [default]}
    files = {layer["name"]: layer["file"] for layer in found["layers"]}
    assert files["preset of sgce for cifar10"] == "losses/presets.toml"
    written = json.loads(recipe("sgce:q=0.3", "--data", "cifar10", "--json"))["parameters"]["q"]
    assert (written["value"], written["source"]) == (0.3, "as given")
    assert written["overrides"] == [published, default]


def test_parameters_of_one_loss_may_have_different_sources():
    found = json.loads(recipe("anl-ce:alpha=3", "--data", "cifar10", "--json"))
    assert found["settings"]["loss"]["value"] == "anl-ce:alpha=3,beta=5.0"
    parameters = found["parameters"]
    assert (parameters["alpha"]["source"], parameters["beta"]["layer"]) == ("as given", "preset of anl-ce for cifar10")
    found = json.loads(recipe("focal", "--data", "digits", "--json"))
    gamma = found["parameters"]["gamma"]
    assert (found["settings"]["loss"]["value"], gamma["value"], gamma["layer"]) == ("focal", 0.5, "loss focal")


def test_a_cell_says_what_its_profile_overrides():
    found = json.loads(recipe("table1/cifar10/sgce/sym:0.8", "--profile", "scale16", "--json"))
    lr = found["settings"]["lr"]
    assert (lr["value"], lr["source"], lr["layer"]) == (0.05, "profile scale16", "profile scale16")
    # The protocol sets it; the paper prints it for this loss.
    assert lr["overrides"][0] == {"layer": "protocol cifar10", "value": 0.01, "source": "the paper, table 5"}
    assert found["published"]["text"] == "61.06(1.60)"


def test_people_read_value_source_what_it_overrides_and_the_files():
    for words in (("sgce", "--data", "cifar10"), ("table1/cifar10/sgce/sym:0.8",)):
        lines = recipe(*words).splitlines()
        decay = next(line for line in lines if line.startswith("weight_decay"))
        assert decay.split(maxsplit=2)[1:] == ["0.005", decay[decay.index("the paper, table 5") :]]
        assert "0.0001 (as the baselines' in the public implementation of Ye 2023)" in decay
        assert "  preset of sgce for cifar10 (symloss/losses/presets.toml)" in lines


def test_data_of_ones_own_is_opened_to_find_its_protocol(tmp_path):
    table = tmp_path / "mine.csv"
    table.write_text("a,label\n" + "".join(f"{i},{i % 2}\n" for i in range(20)))
    found = json.loads(recipe("gce", "--data", str(table), "--json"))["settings"]
    assert (found["model"]["value"], found["model"]["layer"]) == ("mlp", "protocol table")
    assert found["fingerprint"]["value"] is not None


def test_what_cannot_be_meant_is_refused():
    for words, said in (
        (("sgce",), "No table 'sgce'"),
        (("table1/cifar10/sgce",), "must read table/data set/loss/noise"),
        (("--data", "cifar10"), "`--data` requires a loss"),
        (("sgec", "--data", "cifar10"), "did you mean 'sgce'?"),
        (("sgce", "--data", "cifar10", "--profile", "mini"), "`--profile mini` applies to tables only"),
    ):
        done = CliRunner().invoke(app, ["recipe", *words])
        assert isinstance(done.exception, ValueError)
        assert said in str(done.exception)
