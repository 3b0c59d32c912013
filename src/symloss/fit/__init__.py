"""Learning from noisy labels: a classifier that is chosen by noisy labels alone, and the audit of the labels."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from symloss.fit.audit.export import corrections, write_audit
    from symloss.fit.audit.models import RunAudit, audit_fit, audit_run
    from symloss.fit.audit.scores import Audit, WrongCount, audit_labels, count_wrong
    from symloss.fit.estimator import RobustClassifier

__all__ = [
    "Audit",
    "RobustClassifier",
    "RunAudit",
    "WrongCount",
    "audit_fit",
    "audit_labels",
    "audit_run",
    "corrections",
    "count_wrong",
    "write_audit",
]

# Names are resolved when they are used: the files of an audit are named and read without torch.
_HOME = {
    "RobustClassifier": "estimator",
    **dict.fromkeys(("Audit", "WrongCount", "audit_labels", "count_wrong"), "audit.scores"),
    **dict.fromkeys(("RunAudit", "audit_fit", "audit_run"), "audit.models"),
    **dict.fromkeys(("corrections", "write_audit"), "audit.export"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'symloss.fit' has no attribute {name!r}")
    return getattr(importlib.import_module(f"symloss.fit.{_HOME[name]}"), name)
