"""Dates in tables: against pandas, out of every kind of table, and what is refused."""

from __future__ import annotations

import datetime
import json

import numpy as np
import pandas as pd
import pytest
from data_helpers import describe_columns
from in_turn import in_turn
from refusals import refused

from symloss import RobustClassifier
from symloss.data import open_data
from symloss.data.dates import readings, seconds
from symloss.data.table_encoder import TableEncoder

ROWS = 60
WHEN = pd.Series(pd.date_range("2019-11-02 05:30", periods=ROWS, freq="31h37min"))
LABELS = ["x", "y"] * (ROWS // 2)


def by_pandas(when: pd.Series) -> np.ndarray:
    """Days from the first midnight, month, weekday and hour."""
    days = (when - when.min().normalize()) / pd.Timedelta(days=1)
    return np.stack([days, when.dt.month, when.dt.day_of_week, when.dt.hour], axis=1).astype(np.float32)


def test_features_are_those_of_pandas_from_every_kind_of_table(tmp_path):
    frame = pd.DataFrame({"when": WHEN, "label": LABELS})
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.to_parquet(tmp_path / "x.parquet")
    encoder = TableEncoder().fit(frame[["when"]])
    expected = by_pandas(WHEN)
    for name in ("x.csv", "x.parquet"):
        found = open_data(str(tmp_path / name))
        np.testing.assert_allclose(found.train.inputs, expected, atol=1e-5)
        assert found.encoder.columns_ == encoder.columns_
    assert encoder.feature_names_ == ("when (day)", "when (month)", "when (weekday)", "when (hour)")
    (column,) = encoder.columns_
    assert column == ("when", "date", "dates from 2019-11-02 to 2020-01-18: day, month, weekday, hour", False)
    # Dates as text, as objects, with a time zone, in other units; and after a round trip.
    again = TableEncoder.from_document(json.loads(json.dumps(encoder.to_document())))
    assert again.feature_names_ == encoder.feature_names_
    spelled = WHEN.dt.strftime("%Y-%m-%dT%H:%M")
    berlin = WHEN.dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin")
    others = (
        spelled,
        spelled + ":00.000000Z",
        list(WHEN.dt.to_pydatetime()),
        berlin,
        WHEN.astype("datetime64[s]"),
        WHEN.astype("datetime64[ns]"),
    )
    for values in others:
        assert again.transform({"when": values}).tobytes() == encoder.transform(frame).tobytes()


def test_days_without_a_time():
    days = [datetime.date(2024, 2, 28) + datetime.timedelta(k) for k in range(3)]
    for values in (days, np.array(days, "datetime64[D]"), pd.to_datetime(days), [str(day) for day in days]):
        encoder = TableEncoder().fit({"when": values})
        assert encoder.feature_names_ == ("when (day)", "when (month)", "when (weekday)")
        assert encoder.transform({"when": values}).tolist() == [[0, 2, 2], [1, 2, 3], [2, 3, 4]]
    # A later table may have dates before the first and after the last one.
    assert encoder.transform({"when": ["2023-02-28", "2024-03-28"]})[:, 0].tolist() == [-365, 29]


def test_missing_dates_are_the_median_and_marked():
    texts = ["2024-01-01", None, "2024-01-04", "2024-01-02"]
    for values in (texts, pd.to_datetime(texts), pd.Series(texts, dtype="string")):
        encoder = TableEncoder().fit({"when": values})
        assert encoder.feature_names_ == ("when (day)", "when (weekday)", "when is missing")
        assert encoder.transform({"when": values}).tolist() == [[0, 0, 0], [1, 1, 1], [3, 3, 0], [1, 1, 0]]
    assert encoder.columns_[0].reason.endswith(": day, weekday; 25 % missing: the median, and a column that marks them")
    encoder = TableEncoder().fit({"when": ["2024-01-01", "2024-01-02"]})  # where none was missing
    assert encoder.transform({"when": [None]}).tolist() == [[0.5, 0.5]]


@in_turn(
    "values, choice, kind, words",
    [
        (["2024-01-01"] * 3, {}, "left out", "dates, always the same"),
        (["2024-01-01"] * 3, {"keep": ["a"]}, "date", "dates from 2024-01-01 to 2024-01-01: day"),
        (["2024-01-01", None, None], {}, "date", "to 2024-01-01: day; 67 % missing"),
        (["2024-01-01", "2024-01-02"], {"categorical": ["a"]}, "category", "a category as asked, 2 values"),
        (pd.to_datetime(["2024-01-01", "2024-01-02"]), {"categorical": ["a"]}, "category", "a category as asked"),
        (["2024-01-01", "2024-02-30"], {}, "category", "text with 2 values"),
        (["2024-01-01", "1.2.2024"], {}, "category", "text with 2 values"),
        (["31/12/2024", "12/31/2024"], {}, "category", "text with 2 values"),
        (["31/12/2024", "31.12.2024"], {}, "category", "text with 2 values"),
        (["31 Dezember 2024", "1 Januar 2025"], {}, "category", "text with 2 values"),
        (["31/12/2024"] * 3, {}, "left out", "dates, always the same"),
        (["31/12/2024", None, None], {}, "date", "dates (day/month/year) from 2024-12-31 to 2024-12-31: day; 67 %"),
        (["20240101", "20240102"], {}, "category", "text with 2 values"),
        (
            ["2024-01-01 10:00", "2024-01-01T11:00:00+05:30"],
            {},
            "date",
            "dates from 2024-01-01 to 2024-01-01: day, hour",
        ),
        ([None, None], {}, "left out", "no value in any row"),
    ],
)
def test_what_is_a_date(values, choice, kind, words):
    column, _ = describe_columns({"a": values, "other": [0.5] * len(values)}, **choice)
    assert column.kind == kind
    assert words in column.reason


@in_turn(
    "text, expected",
    [
        ("1970-01-01", 0),
        ("1969-12-31T23:59:59.5", -0.5),
        ("2000-02-29 12:00Z", 951825600),
        ("2000-02-29 13:30:00+01:30", 951825600),
        ("0001-01-01T00:00+23:59", -62135596800 - 86340),
        ("9999-12-31", 253402214400),
        *((text, None) for text in ("", "2024-1-1", "2024-01-01T", "2024-01-01 25:00", "٢٠٢٤-01-01", "2024-01-01 10")),
    ],
)
def test_seconds(text, expected):
    assert seconds(text) == expected


@in_turn(
    "text, expected",
    [
        ("31/12/1969", -86400),
        ("1/1/70 0:01", 60),
        ("01/01/1970, 12:00 AM", 0),
        ("01/01/1970T12:00:01pm", 43201),
        ("1/1/0001", -62135596800),
        ("31/12/9999", 253402214400),
        ("31/12/68", 3124137600),
        ("1/1/69", -31536000),
        *((f"1/1/1970 {time}", None) for time in ("24:00", "9", "9:5", "0:00 AM", "13:00 PM", "9:30:60", " 9:30")),
        *((day, None) for day in ("1/1/0000", "30/2/2024", "1/13/2024", "1/1/024", "1-1/2024", "٣/1/2024")),
    ],
)
def test_seconds_in_another_format(text, expected):
    assert seconds(text, "day/month/year") == expected


@in_turn("month", [*pd.date_range("2024-01-31", periods=12, freq="ME").strftime("%B"), "Bad"])
def test_months_by_name(month):
    expected = None if month == "Bad" else pd.Timestamp(f"2 {month} 2024").timestamp()
    for name in (month, month.upper(), month[:3], month[:3].lower()):
        assert seconds(f"2 {name} 2024", "day month-name year") == expected
    assert seconds(f"2 {month[:-1]}x 2024", "day month-name year") is None


# As pandas writes them where names of months are English.
FORMATS = {
    "day/month/year": "%d/%m/%Y",
    "month/day/year": "%m/%d/%Y %H:%M",
    "day.month.year": "%d.%m.%Y %H:%M:%S",
    "month-day-year": "%m-%d-%y",
    "year/month/day": "%Y/%m/%dT%I:%M %p",
    "year-month-day": "%Y-%m-%d, %I:%M%p",
    "day month-name year": "%d-%b-%y",
    "month-name day, year": "%B %d, %Y",
}


def iso(when: pd.Series, spelling: str) -> list[str]:
    """As ISO 8601 with as much of the time as in another spelling."""
    seconds = ":%S" if "%S" in spelling else ""
    hours = "T%H:%M" if "%M" in spelling else ""
    return when.dt.strftime(f"%Y-%m-%d{hours}{seconds}").tolist()


@pytest.mark.parametrize(("date_format", "spelling"), FORMATS.items())
def test_other_formats_are_read_as_iso_dates_from_every_kind_of_table(tmp_path, date_format, spelling):
    frame = pd.DataFrame({"when": WHEN.dt.strftime(spelling), "label": LABELS})
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.to_parquet(tmp_path / "x.parquet")
    like_iso = TableEncoder().fit({"when": iso(WHEN, spelling)})
    expected = like_iso.transform({"when": iso(WHEN, spelling)})
    reason = like_iso.columns_[0].reason.replace("dates from", f"dates ({date_format}) from")
    for name in ("x.csv", "x.parquet"):
        found = open_data(str(tmp_path / name))
        assert np.asarray(found.train.inputs).tolist() == expected.tolist()
        assert found.encoder.columns_ == (("when", "date", reason, False),)
    for dtype in (object, "str", "string"):
        np.testing.assert_array_equal(TableEncoder().fit_transform(frame[["when"]].astype(dtype)), expected)
    # New rows are read in the same format, also where they alone would be ambiguous.
    document = json.loads(json.dumps(found.encoder.to_document()))
    assert (document["format"], document["columns"][0]["date_format"]) == (3, date_format)
    new = pd.Series([pd.Timestamp("2024-03-01 18:00"), pd.Timestamp("2024-03-02 00:05")])
    written = [*new.dt.strftime(spelling), None]
    found = TableEncoder.from_document(document).transform({"when": written})
    assert found.tolist() == like_iso.transform({"when": [*iso(new, spelling), None]}).tolist()


def test_a_document_of_iso_dates_names_no_format():
    """As those of earlier versions, which read it."""
    document = TableEncoder().fit({"when": ["2024-01-01", "2024-01-02"]}).to_document()
    assert document["format"] == 2
    assert "date_format" not in document["columns"][0]


def test_a_classifier_learns_from_dates_in_words():
    days = pd.Series(pd.date_range("2024-01-01", periods=ROWS))
    labels = np.where(days.dt.month == 1, "winter", "spring")
    model = RobustClassifier(learners=["closed-form"], budget=0.3, rounds=1)
    model.fit(pd.DataFrame({"when": days.dt.strftime("%d %B %Y")}), labels)
    assert model.predict(pd.DataFrame({"when": ["2 January 2024", "20 FEB 24"]})).tolist() == ["winter", "spring"]
    with refused(ValueError, "'when' of the table must hold a date such as 31 Dec 2026", "got '2024-01-02' in row 1"):
        model.predict(pd.DataFrame({"when": ["2024-01-02"]}))


@in_turn(
    "texts, expected",
    [
        (["01.02.24", "01.02.2025", None], ["day.month.year"]),
        (["31/12/24", "01/02/24"], ["day/month/year"]),
        (["2024/01/02"], ["year/month/day"]),
        (["12.31.2024"], []),
        (["24/01/31"], ["day/month/year"]),
    ],
)
def test_dots_and_short_years_tell_the_order_of_dates(texts, expected):
    assert list(readings(np.array(texts, object))) == expected


@in_turn(
    "texts, formats",
    [
        (["1/2/2024", "12/12/2024"], "day/month/year or month/day/year"),
        (["01-02-24", "01-02-25", None], "day-month-year or month-day-year"),
    ],
)
def test_ambiguous_dates_are_left_out_or_kept_as_text(texts, formats):
    frame = {"a": texts, "other": [0.5] * len(texts)}
    column, _ = describe_columns(frame)
    assert column == ("a", "left out", f"ambiguous dates ({formats}): write them as 2024-12-31", True)
    assert describe_columns(frame, keep=["a"])[0].kind == "category"
    assert describe_columns(frame, categorical=["a"])[0].kind == "category"


def test_a_later_table_with_something_else_is_refused(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("when,label\n2024-01-01,x\n2024-01-02,y\n")
    encoder = open_data(str(path)).encoder
    with refused(ValueError, "column 'when' of the table must hold a date such as", "got 'soon' in row 2"):
        encoder.transform({"when": [None, "soon"]})
    with refused(ValueError, "column 'when' of the table must hold a date such as", "got '5' in row 1"):
        encoder.transform({"when": [5]})
    (tmp_path / "test.csv").write_text("when,label\n\n2024-01-01,x\n1.1.2024,y\n")
    with refused(ValueError, f"of {tmp_path / 'test.csv'} must hold a date such as", "got '1.1.2024' in line 4"):
        open_data(str(path), test=str(tmp_path / "test.csv"))


@in_turn(
    "change",
    [
        {"start": "0"},
        {"start": 10**9},
        {"parts": []},
        {"parts": ["day", "year"]},
        {"parts": ["day", "day"]},
        {"medians": [1.0]},
        {"medians": [float("nan"), 1.0]},
        {"medians": [1e300, 1.0]},
        {"marked": "no"},
        {"marked": None},
        {"date_format": "%d/%m/%Y"},
        {"date_format": None},
        {"date_format": []},
    ],
)
def test_a_damaged_document(change):
    document = TableEncoder().fit({"when": ["2024-01-01", "2024-01-02"]}).to_document()
    TableEncoder.from_document(document)
    document["columns"][0] |= change
    with refused(ValueError, "columns.json must hold what was learnt of each column", "'when'"):
        TableEncoder.from_document(document, "columns.json")
