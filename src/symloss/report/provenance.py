"""Where the figures of a report come from: machines, versions, commands, time."""

from __future__ import annotations

from collections import Counter

from symloss import __version__
from symloss.report.difference import DIFFERENCE
from symloss.report.document import Report
from symloss.runs.reading import Run

UNKNOWN = "unknown"


def hardware(run: Run) -> str:
    """As in "Intel(R) Xeon(R) Processor (x86_64), 2 threads a run"."""
    versions = run.result.versions
    threads = versions.get("threads")
    suffix = "" if threads is None else f", {threads} thread{'' if threads == 1 else 's'} a run"
    return f"{versions.get('processor') or 'processor unknown'} ({versions.get('machine') or UNKNOWN}){suffix}"


def software(run: Run) -> str:
    """As in "symloss 0.1.0 (commit 5c6d4a5), Python 3.11.7, torch 2.13.0"."""
    versions = run.result.versions
    commit = versions.get("commit")
    ours = f"symloss {versions.get('symloss') or UNKNOWN} ({f'commit {commit}' if commit else 'commit unknown'})"
    return f"{ours}, Python {versions.get('python') or UNKNOWN}, torch {versions.get('torch') or UNKNOWN}"


def counted(texts: list[str]) -> str:
    """Each once, the most frequent first, with its number where there are several.

    >>> counted(["a", "b", "a"])
    'a (2 runs); b (1 run)'
    """
    counts = Counter(texts).most_common()
    if len(counts) == 1:
        return counts[0][0]
    return "; ".join(f"{text} ({number(n, 'run')})" for text, n in counts) or UNKNOWN


def number(n: int, what: str) -> str:
    return f"{n} {what}" + ("" if n == 1 else "s")


def duration(seconds: float) -> str:
    """
    >>> duration(12.34), duration(754), duration(7300), duration(500_000)
    ('12.3 s', '12.6 min', '2.0 h', '5.8 days')
    """
    for unit, length, limit in (("s", 1, 60), ("min", 60, 3600), ("h", 3600, 48 * 3600)):
        if seconds < limit:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds / 86400:.1f} days"


def counts(report: Report) -> str:
    """Of runs: "30 finished runs, 1 unfinished or failed"."""
    runs = report.runs
    said = [f"{number(len(runs.finished), 'finished run')}"]
    if report.left_out:
        said.append(f"{report.left_out} of them not of the tables that are shown")
    for pairs, what in ((runs.unfinished, "unfinished or failed"), (runs.repeated, "repeated")):
        said += [f"{len(pairs)} {what}"] if pairs else []
    said += [f"{len(report.untested)} not tested yet"] if report.untested else []
    return ", ".join(said)


def facts(report: Report) -> list[tuple[str, str]]:
    """What was run, on what and with what, and how the figures are to be read: pairs of a name and a text."""
    shown = list(report.shown)
    found = [("Runs", counts(report)), ("Protocol", protocol(report))]
    if shown:
        ns = sorted({cell.last.n for s in report.sections for b in s.tables for *_, cell in b.cells() if cell.last})
        found += [
            ("Hardware", counted([hardware(run) for run in shown])),
            ("Versions", counted([software(run) for run in shown])),
            ("Training time", f"{duration(sum(run.result.seconds for run in shown))} in all"),
            ("Spread", f"standard deviation (n - 1) over runs with different seeds; n = {', '.join(map(str, ns))}"),
        ]
    if any(section.has_published for section in report.sections):
        found.append(("Difference", DIFFERENCE))
    return found


def commands(report: Report) -> list[str]:
    """What trains the runs of the recipes again, and what makes this report of them."""
    return [*(section.command for section in report.sections if section.command), report.command]


def protocol(report: Report) -> str:
    found = []
    for section in report.sections:
        whole = "full: the whole recipe" if section.recipe else "settings of one's own"
        found.append(section.reduced or whole)
    return "; ".join(dict.fromkeys(found)) or "no finished run"


def maker() -> str:
    return f"symloss {__version__}"
