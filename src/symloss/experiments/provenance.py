"""Where the figures of a report come from: machines, versions, commands, time."""

from __future__ import annotations

from collections import Counter

from symloss import __version__
from symloss.experiments.difference import DIFFERENCE
from symloss.experiments.report import Report
from symloss.training.reading import Run

UNKNOWN = "unknown"


def hardware(run: Run) -> str:
    """The hardware of a run, such as "Intel(R) Xeon(R) Processor (x86_64), 2 threads a run"."""
    versions = run.result.versions
    threads = versions.get("threads")
    suffix = "" if threads is None else f", {threads} thread{'' if threads == 1 else 's'} a run"
    return f"{versions.get('processor') or 'processor unknown'} ({versions.get('machine') or UNKNOWN}){suffix}"


def software(run: Run) -> str:
    """The versions of a run, such as "symloss 0.1.0 (commit 5c6d4a5), Python 3.11.7, torch 2.13.0"."""
    versions = run.result.versions
    commit = versions.get("commit")
    ours = f"symloss {versions.get('symloss') or UNKNOWN} ({f'commit {commit}' if commit else 'commit unknown'})"
    return f"{ours}, Python {versions.get('python') or UNKNOWN}, torch {versions.get('torch') or UNKNOWN}"


def counted(texts: list[str]) -> str:
    """Each text once, the most frequent first. If there are several, each has its number of runs.

    >>> counted(["a", "b", "a"])
    'a (2 runs); b (1 run)'
    """
    counts = Counter(texts).most_common()
    if len(counts) == 1:
        return counts[0][0]
    return "; ".join(f"{text} ({number(n, 'run')})" for text, n in counts) or UNKNOWN


def number(n: int, what: str) -> str:
    """A number with its noun, in the singular or the plural.

    >>> number(1, "run"), number(2, "run")
    ('1 run', '2 runs')
    """
    return f"{n} {what}" + ("" if n == 1 else "s")


def duration(seconds: float) -> str:
    """A time in the unit that suits it.

    >>> duration(12.34), duration(754), duration(7300), duration(500_000)
    ('12.3 s', '12.6 min', '2.0 h', '5.8 days')
    """
    for unit, length, limit in (("s", 1, 60), ("min", 60, 3600), ("h", 3600, 48 * 3600)):
        if seconds < limit:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds / 86400:.1f} days"


def counts(report: Report) -> str:
    """The numbers of runs, such as "30 finished runs, 1 unfinished or failed"."""
    runs = report.runs
    parts = [f"{number(len(runs.finished), 'finished run')}"]
    if report.left_out:
        parts.append(f"{report.left_out} of them not of the tables that are shown")
    for pairs, what in ((runs.unfinished, "unfinished or failed"), (runs.repeated, "repeated")):
        parts += [f"{len(pairs)} {what}"] if pairs else []
    parts += [f"{len(report.untested)} not tested yet"] if report.untested else []
    return ", ".join(parts)


def facts(report: Report) -> list[tuple[str, str]]:
    """Facts about the runs and how to read the figures, as pairs of a name and a text."""
    shown = list(report.shown)
    pairs = [("Runs", counts(report)), ("Protocol", protocol(report))]
    if shown:
        ns = sorted({cell.last.n for s in report.sections for b in s.tables for *_, cell in b.cells() if cell.last})
        pairs += [
            ("Hardware", counted([hardware(run) for run in shown])),
            ("Versions", counted([software(run) for run in shown])),
            ("Training time", f"{duration(sum(run.result.seconds for run in shown))} in all"),
            ("Spread", f"standard deviation (n - 1) over runs with different seeds; n = {', '.join(map(str, ns))}"),
        ]
    if any(section.compares for section in report.sections):
        pairs.append(("Difference", DIFFERENCE))
    return pairs


def commands(report: Report) -> list[str]:
    """The commands that train the runs of published tables again, and the command of this report."""
    return [*(section.command for section in report.sections if section.command), report.command]


def protocol(report: Report) -> str:
    """Whether the recipes were run in full, in words."""
    protocols = []
    for section in report.sections:
        whole = "full: the whole recipe" if section.recipe else "settings of one's own"
        protocols.append(section.reduced or whole)
    return "; ".join(dict.fromkeys(protocols)) or "no finished run"


def maker() -> str:
    """The program that writes the report, with its version."""
    return f"symloss {__version__}"
