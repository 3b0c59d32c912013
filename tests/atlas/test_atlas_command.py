"""``symloss atlas``: the file it writes, and what it refuses in one sentence."""

from __future__ import annotations

import pytest
from in_turn import in_turn

from symloss.atlas import curves, page, write_atlas
from symloss.atlas.data import atlas_data, known_losses

SCRIPT = "</script><script>window.hacked=2</script>"


@in_turn(
    ("arguments", "sentence"),
    [
        (["--losses", "sgze"], "losses must be names of the catalogue; got 'sgze', did you mean 'sgce'?"),
        (["--losses", ","], "losses must name at least one loss; got none"),
        (["--out", "."], "the atlas must be written to a file such as atlas.html; got the folder '.'"),
        (["--out", "file/a.html"], "file/a.html cannot be written (File exists); what was there before is kept"),
    ],
)
def test_bad_input_gets_one_sentence(run_command, tmp_path, arguments, sentence):
    (tmp_path / "file").write_text("")
    done = run_command("atlas", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"symloss: {sentence}\n")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_an_error_leaves_the_old_page(tmp_path, monkeypatch):
    path = tmp_path / "atlas.html"
    path.write_text("old")

    def fail(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atlas(path, ["ce"], fail)
    assert path.read_text() == "old"
    counted: list[int] = []
    write_atlas(path, ["ce", "mae"], counted.append)
    assert counted == [1, 2]
    assert '"name":"mae"' in path.read_text()
    assert '"name":"sgce"' not in path.read_text()


def test_no_text_of_the_data_ends_the_script():
    data = atlas_data(known_losses(["ce"]))
    data["losses"][0]["reference"] = SCRIPT
    text = page.render(data)
    assert text.count("</script") == 2
    assert SCRIPT not in text
    assert f"{curves.HEIGHT:g} tanh" in text  # the page says by which scores the threshold is sought
