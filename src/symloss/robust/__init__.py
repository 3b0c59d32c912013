"""Learning from wrong labels: the choice of a learner by noisy labels alone, and the list of labels that look wrong."""

from symloss.robust.audit import Audit, audit_labels
from symloss.robust.classifier import RobustClassifier
from symloss.robust.fit_audit import audit_fit
from symloss.robust.run_audit import RunAudit, audit_run
from symloss.robust.wrong_count import WrongCount, count_wrong

__all__ = [
    "Audit",
    "RobustClassifier",
    "RunAudit",
    "WrongCount",
    "audit_fit",
    "audit_labels",
    "audit_run",
    "count_wrong",
]
