"""The benchmark of heads with a vocabulary, at a small size."""

import pytest

from symloss.bench import token_heads
from symloss.bench.__main__ import do

SMALL = (16, 8, 50)


def test_every_job_runs():
    for job in token_heads.token_jobs(repeats=1, size=SMALL):
        found = do(job | ({"size": SMALL} if job["what"] == "token errors" else {}))
        if job["what"] == "token times":
            assert list(found["ratios"]) == token_heads.ways(job["dtype"])
            assert found["ratios"][token_heads.BASE] == 1
        elif job["what"] == "token memory":
            assert found["extra_bytes"] >= 0
        else:
            errors = [error for ways in found.values() for way in ways.values() for error in way]
            assert 0 < min(errors) <= max(errors) < 0.02


@pytest.mark.parametrize(
    ("times", "memory", "errors", "missed"),
    [
        (1.09, 150e6, 1.9, 0),
        (1.2, 150e6, 1.9, 1),
        (1.09, 350e6, 1.9, 1),
        (1.09, 150e6, 2.1, 2),  # of features and of weights
    ],
)
def test_targets(times, memory, errors, missed):
    rows = [{"dtype": "bfloat16", "ratios": {token_heads.BASE: 1.0, "gce head": times}}]
    extra = [
        {"dtype": "bfloat16", "way": token_heads.BASE, "extra_bytes": 4e9},
        {"dtype": "bfloat16", "way": "gce head", "extra_bytes": memory},
        {"dtype": "bfloat16", "way": "gce head, float32 sum", "extra_bytes": 4 * 512 * 151_936},
    ]
    found = {"gce": {"scores, then loss": [1.0, 1.0], "head": [errors, errors], "head, float32 sum": [1.0, 1.0]}}
    assert len(token_heads.token_head_failures(rows, extra, found)) == missed
