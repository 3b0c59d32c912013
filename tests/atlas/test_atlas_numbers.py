"""What the atlas holds is what plain formulas give, as it comes out of the page again; what the command refuses."""

from __future__ import annotations

import base64
import functools
import json
import math
import re
import zlib

import numpy as np
import pytest
import reference
from conftest import every_loss
from in_turn import in_turn
from scipy import integrate, optimize, stats

from symloss.atlas import curves, data as atlas, figures, page, write_atlas, write_figures
from symloss.atlas.data import FACTS, arrays, atlas_data, drawn_losses, pack
from symloss.checks import Interval
from symloss.losses.catalogue import RECORDS

STEP = 1 / 131070
"""Half a step of 16 bits: the promised error, in ranges of the array."""
SCRIPT = "</script><script>window.hacked=2</script>"


def unpack(scales: str, codes: str, lengths: list[int]) -> list[np.ndarray]:
    """Return the arrays that ``pack`` packed, as the page reads them."""
    raw_scales, raw_codes = (zlib.decompress(base64.b64decode(text)) for text in (scales, codes))
    pairs = np.frombuffer(raw_scales, "<f8").reshape(-1, 2)
    low, high = np.frombuffer(raw_codes, np.uint8).reshape(2, -1).astype("<u2")
    parts = np.split(np.cumsum(low + 256 * high, dtype="<u2"), np.cumsum(lengths)[:-1])
    return [least + step * part for (least, step), part in zip(pairs, parts, strict=True)]


def at_defaults(name: str, **values: float) -> dict[str, np.ndarray]:
    """The numbers of a loss, packed and unpacked."""
    numbers = arrays(RECORDS[name].loss(**values))
    lengths = [len(array) for array in numbers.values()]
    return dict(zip(numbers, unpack(*pack(list(numbers.values())), lengths), strict=True))


def assert_stored(stored: np.ndarray, places: list[int], expected: list[float]) -> None:
    error = 1.01 * STEP * np.ptp(stored) + 1e-12 * max(1, np.abs(stored).max())
    assert np.abs(stored[places] - expected).max() <= error


def on_the_line(p: float, classes: int) -> list[float]:
    return [math.log(p), *[math.log((1 - p) / (classes - 1))] * (classes - 1)]


def spread_out(count: int) -> list[int]:
    return [0, count // 3, 2 * count // 3, count - 1]


@every_loss
@in_turn("classes", [2, 10])
def test_curves_are_the_plain_formulas(name, classes):
    stored, p = at_defaults(name), curves.probabilities(classes).tolist()
    places = [i for i in spread_out(len(p)) if 1e-4 < p[i] < 1 - 1e-4]
    scores = [on_the_line(p[i], classes) for i in places]
    assert len(places) >= 2
    assert_stored(stored[f"value {classes}"], places, [reference.value(name, z, 0) for z in scores])
    assert_stored(stored[f"weight {classes}"], places, [-reference.gradient(name, z, 0, [0])[0] for z in scores])
    others = [reference.value(name, z, 0) + (classes - 1) * reference.value(name, z, 1) for z in scores]
    assert_stored(stored[f"sum {classes}"], places, others)


@in_turn(("name", "values"), [("gce", {"q": 0.3}), ("alpha-mae", {"kappa": 5.0}), ("agce", {"a": 2.5, "q": 0.3})])
def test_parameters_reach_the_curves(name, values):
    stored, p = at_defaults(name, **values), curves.probabilities(3).tolist()
    places = spread_out(len(p))[1:3]
    expected = [reference.value(name, on_the_line(p[i], 3), 0, **values) for i in places]
    assert_stored(stored["value 3"], places, expected)
    assert np.abs(at_defaults(name)["value 3"][places] - expected).max() > 1e-3


def test_the_line_serves_both_axes():
    for classes in curves.CLASSES:
        margins, p = curves.margins(classes).numpy(), curves.probabilities(classes).numpy()
        assert np.allclose(margins, np.log(p / (1 - p) * (classes - 1)))
        for grid, (low, high), widest in ((margins, (-8, 12), 0.51), (p, (0.002, 0.998), 0.06)):
            inside = grid[(grid >= low - 1e-9) & (grid <= high + 1e-9)]
            assert (inside[0], inside[-1]) == pytest.approx((low, high))
            assert 0 <= np.diff(inside).min() <= np.diff(inside).max() < widest
        assert 0 in margins


@every_loss
def test_the_triangle_holds_the_plain_formulas(name):
    stored = at_defaults(name)
    n, edge = curves.STEPS, curves.EDGE
    order = [(n - row, row - k, k) for row in range(n + 1) for k in range(row + 1)]
    counts = [(n, 0, 0), (7, 7, 7), (2, 18, 1), (0, 0, n)]
    places = [order.index(each) for each in counts]
    scores = [[math.log(edge + (1 - 3 * edge) * count / n) for count in each] for each in counts]
    assert len(stored["simplex value"]) == len(order)
    assert_stored(stored["simplex value"], places, [reference.value(name, z, 0) for z in scores])
    sums = [sum(reference.value(name, z, y) for y in range(3)) for z in scores]
    assert_stored(stored["simplex sum"], places, sums)


@functools.cache
def plain_risk(name: str, theta: float, rate: float) -> float:
    """The risk, from plain formulas and adaptive quadrature."""

    def plain(z: list[float], y: int, q: float = 0.7) -> float:
        p = np.exp(z) / np.exp(z).sum()
        return {"ce": -np.log(p[y]), "mae": 1 - p[y], "sgce": ((p**q).mean() - p[y] ** q) / q}[name]

    def expected(x: float, true: int) -> float:
        z = [3 * math.tanh(theta - x), 3 * math.tanh(x - theta), *[-3.0] * 8]
        return (1 - rate) * plain(z, true) + rate / 9 * sum(plain(z, y) for y in range(10) if y != true)

    parts = [(0, 0.75, stats.norm(-1.5, 0.6)), (1, 0.25, stats.norm(1.5, 0.6))]
    return sum(
        share
        * integrate.quad(lambda x, k=k, d=d: expected(x, k) * d.pdf(x), d.mean() - 5, d.mean() + 5, epsabs=1e-7)[0]
        for k, share, d in parts
    )


@pytest.mark.parametrize("name", ["ce", "mae", "sgce"])
def test_the_risk_is_the_integral_of_plain_formulas(name):
    stored, thetas = at_defaults(name), curves.THETAS.tolist()
    places = [10, 60, 100]
    for field, rate in (("clean", 0.0), ("noisy", 0.8)):
        assert_stored(stored[f"risk {field}"], places, [plain_risk(name, thetas[i], rate) for i in places])
    # In between the page draws a straight line from rate to rate.
    between = (stored["risk clean"] + stored["risk noisy"]) / 2
    assert between[places] == pytest.approx([plain_risk(name, thetas[i], 0.4) for i in places], abs=1e-4)


@pytest.mark.parametrize(("name", "rate"), [("ce", 0.0), ("ce", 0.6), ("mae", 0.6)])
def test_the_minimum_is_where_the_integral_is_least(name, rate):
    stored = at_defaults(name)["risk minima"][curves.NOISE.index(rate)]
    found = optimize.minimize_scalar(
        lambda theta: plain_risk(name, theta, rate), bounds=(-2.0, 1.0), method="bounded", options={"xatol": 1e-3}
    )
    assert stored == pytest.approx(found.x, abs=0.01)


def test_the_share_on_the_right_side():
    theta = curves.THETAS.numpy()
    left, right = stats.norm(-1.5, 0.6).cdf(theta), stats.norm(1.5, 0.6).cdf(theta)
    assert curves.accuracy().numpy() == pytest.approx(0.75 * left + 0.25 * (1 - right))
    densities = curves.densities().numpy()
    shape = stats.norm(1.5, 0.6).pdf(theta) / stats.norm(1.5, 0.6).pdf(1.5)
    assert densities[1] == pytest.approx(0.25 * shape)
    assert densities[0].max() == pytest.approx(0.75)


def test_packing_keeps_sixteen_bits():
    generator = np.random.default_rng(0)
    normal = [generator.normal(size=size) for size in (50, 3, 9)]
    given = [normal[0], 1e-15 * normal[1], np.full(4, 7.25), 1e9 + normal[2]]
    found = unpack(*pack(given), [50, 3, 4, 9])
    for one, other in zip(given, found, strict=True):
        assert np.abs(one - other).max() <= 1.001 * STEP * np.ptp(one) + 2e-16 * np.abs(one).max()
    assert (found[2] == 7.25).all()
    assert not (found[0] == given[0]).all()
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="the numbers must be finite"):
            pack([np.array([1.0, bad])])


@every_loss
def test_sliders_stop_at_allowed_values(name):
    record = RECORDS[name]
    places = atlas.positions(record)
    assert len(places) == len(set(places)) <= 60
    assert {p.name for p in record.parameters} == {each.parameter.name for each in atlas.sliders(record)}
    for slider in atlas.sliders(record):
        numbers = [point for point in slider.points if point is not None]
        assert numbers == sorted(set(numbers))
        assert len(numbers) >= 5
        assert all(point in Interval(slider.parameter.interval) for point in numbers)
        assert slider.points[slider.default] == slider.parameter.default
    rest = tuple(each.default for each in atlas.sliders(record))
    assert rest in places
    several = [sum(i != k for i, k in zip(place, rest, strict=True)) for place in places]
    assert max(several) == min(len(rest), 2 if atlas.moves_together(record) else 1)


def test_a_parameter_of_an_unknown_name_has_a_slider(monkeypatch):
    monkeypatch.setattr(atlas, "POINTS", {})
    points = atlas.sliders(RECORDS["gce"])[0].points
    assert points == (0.0875, 0.175, 0.35, 0.7, 1.4, 2.8, 5.6)
    record = RECORDS["alpha-mae"]  # in which kappa stands in the place of alpha
    found = [atlas.values_at(record, place) for place in atlas.positions(record)]
    assert {"alpha": None, "kappa": 5.6} in found or {"alpha": None, "kappa": 4.0} in found
    assert all((values["alpha"] is None) != (values["kappa"] is None) for values in found)


@pytest.mark.slow
def test_the_whole_page(run_command, tmp_path):
    path = tmp_path / "new" / "atlas.html"
    done = run_command("atlas", "--out", path)
    assert (done.returncode, done.stderr) == (0, "")
    text = path.read_text()
    assert done.stdout == f"written to {path} ({len(text.encode()) / 1e6:.1f} MB)\n"
    assert [each.name for each in path.parent.iterdir()] == ["atlas.html"]
    assert len(text.encode()) < 2_000_000
    words = re.sub(r'"(scales|codes)":"[^"]*"', "", text)
    assert len(words) < 300_000
    assert not re.search(r"https?:|[\"'(]//|\burl\(|@import|\bfetch\(|XMLHttp|src=|data:(?![,; ])", words)
    sums_are_flat_where_a_loss_is_symmetric_and_nowhere_else(
        json.loads(re.search(r'id="data">(.+?)</script>', text)[1])
    )


def sums_are_flat_where_a_loss_is_symmetric_and_nowhere_else(data):
    names, lengths = list(data["fields"]), list(data["fields"].values())
    settings = sum(len(entry["positions"]) for entry in data["losses"])
    stored = unpack(data["scales"], data["codes"], lengths * settings)
    seen = {True: 0, False: 0}
    for entry in data["losses"]:
        for place, digits in zip(entry["positions"].values(), entry["facts"], strict=True):
            start = (entry["first"] + place) * len(names)
            fields = dict(zip(names, stored[start : start + len(names)], strict=True))
            for classes, digit in zip(data["classes"], digits, strict=True):
                symmetric = bool(int(digit, 16) >> FACTS.index("symmetric") & 1)
                pairs = [(f"sum {classes}", f"value {classes}")] + [("simplex sum", "simplex value")] * (classes == 3)
                for total, value in pairs:
                    share = np.ptp(fields[total]) / max(np.ptp(fields[value]), 1e-12)
                    assert share < 1e-9 if symmetric else share > 1e-6, (entry["name"], place, classes, share)
                    seen[symmetric] += 1
                if classes == curves.THRESHOLD_CLASSES and symmetric:
                    assert np.ptp(fields["risk minima"]) < 1e-6, (entry["name"], place)
                elif classes == curves.THRESHOLD_CLASSES and entry["name"] in ("ce", "mse"):
                    assert np.ptp(fields["risk minima"]) > 1, (entry["name"], place)
    assert min(seen.values()) > 1000


@in_turn(
    ("arguments", "sentence"),
    [
        (["--losses", "sgze"], "there is no loss named 'sgze'; did you mean 'sgce'?"),
        (["--losses", ","], "losses must name at least one loss; got none"),
        (
            ["--losses", "ce:normalize=l2"],
            "`normalize` must be left out of 'ce:normalize=l2': the atlas draws losses of raw scores",
        ),
        (["--figures", "x"], "figures must be of at most 8 losses, chosen by `--losses`; got 40"),
        (
            ["--losses", "ce", "--figures", "file"],
            "file cannot be written (File exists); what was there before is kept",
        ),
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
    data = atlas_data(drawn_losses(["ce"]))
    data["losses"][0]["reference"] = SCRIPT
    text = page.render(data)
    assert text.count("</script") == 2
    assert SCRIPT not in text
    assert f"{curves.HEIGHT:g} tanh" in text  # the page says by which scores the threshold is sought


OWN = """
def twice(z, y):
    return -2 * z.log_softmax(1).gather(1, y[:, None])[:, 0]


def nan(z, y):
    return z[:, 0].sqrt()
"""


def entries_of(losses):
    """What the page holds of each loss: its entry, and its numbers by field."""
    data = atlas_data(drawn_losses(losses))
    names, lengths = list(data["fields"]), list(data["fields"].values())
    settings = sum(len(entry["positions"]) for entry in data["losses"])
    stored = unpack(data["scales"], data["codes"], lengths * settings)
    starts = ((entry, entry["first"] * len(names)) for entry in data["losses"])
    return {entry["name"]: (entry, dict(zip(names, stored[at : at + len(names)], strict=True))) for entry, at in starts}


def test_composed_and_own_losses_are_drawn_too(tmp_path, monkeypatch):
    (tmp_path / "of_mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    found = entries_of(["of_mine:twice", "0.5*ce + mae", "symmetrize( ce )", "symmetrize(ce)", "gce:q=0.2", "ce"])
    assert list(found) == ["ce", "of_mine:twice", "0.5*ce + mae", "symmetrize(ce)", "gce:q=0.2"]
    scores = [on_the_line(p, 10) for p in curves.probabilities(10).tolist()]
    places = spread_out(len(scores))
    plain = {
        "of_mine:twice": lambda z, y: 2 * reference.value("ce", z, y),
        "0.5*ce + mae": lambda z, y: 0.5 * reference.value("ce", z, y) + reference.value("mae", z, y),
        "symmetrize(ce)": lambda z, y: reference.value("unhinged", z, y),
        "gce:q=0.2": lambda z, y: reference.value("gce", z, y, q=0.2),
    }
    for name, value in plain.items():
        entry, stored = found[name]
        assert_stored(stored["value 10"], places, [value(scores[i], 0) for i in places])
        assert (entry["sliders"], entry["facts"]) == ([], None), "what is not declared is not claimed"
        assert entry["reference"] == (
            "your own code" if name.startswith("of_mine") else "composed of losses of the catalogue"
        )
    assert found["ce"][0]["facts"]
    assert np.ptp(found["symmetrize(ce)"][1]["sum 10"]) < 1e-9
    assert np.ptp(found["0.5*ce + mae"][1]["sum 10"]) > 1
    with pytest.raises(ValueError, match="of_mine:nan must be finite at all points of the atlas; got value 2 with inf"):
        atlas_data(drawn_losses(["of_mine:nan"]))


def test_figures_are_vectors_and_the_same_every_time(tmp_path):
    losses = ["ce", "ce + mae", "ce - mae"]
    names = {"curves", "triangle-ce", "triangle-ce-mae", "triangle-ce-mae-2"}
    first, second = (write_figures(tmp_path / folder, losses) for folder in ("a", "b"))
    assert {path.name for path in first} == {name + suffix for name in names for suffix in (".svg", ".pdf")}
    for one, other in zip(first, second, strict=True):
        content = one.read_bytes()
        assert content == other.read_bytes()
        if one.suffix == ".svg":
            assert b"<image" not in content
            assert not re.search(rb"\d{4}-\d\d-\d\dT", content)
        else:
            assert b"/FontFile2" in content, "embedded TrueType"
            assert b"/CreationDate" not in content
    texts = {path.read_bytes() for path in first}
    assert len(texts) == len(first), "each figure is another one"


def test_figures_draw_what_the_page_holds(tmp_path):
    figure = figures._curves({name: RECORDS[name].loss() for name in ("ce", "sgce")})
    value, weight, total, minima = figure.axes
    for line, name in enumerate(("ce", "sgce")):
        stored = at_defaults(name)
        x = value.lines[line].get_xdata()
        places = [curves.probabilities(10).tolist().index(p) for p in x]
        assert len(places) > 20
        for panel, field in ((value, "value"), (weight, "weight"), (total, "sum")):
            assert_stored(stored[f"{field} 10"], places, panel.lines[line].get_ydata())
        assert_stored(stored["risk minima"], list(range(17)), minima.lines[line].get_ydata())
        assert value.lines[line].get_label() == name
    triangle = figures._triangle("ce", RECORDS["ce"].loss())
    left = triangle.axes[0]
    corners = np.array(left.dataLim.get_points())
    edge = curves.EDGE
    expected = [[1.5 * edge, edge * math.sqrt(3) / 2], [1 - 1.5 * edge, (1 - 2 * edge) * math.sqrt(3) / 2]]
    assert corners == pytest.approx(np.array(expected), abs=1e-9)
