"""Learning from wrong labels: the choice of a learner by noisy labels alone, and the list of labels that look wrong."""

from symloss.fit.audit import Audit, audit_labels
from symloss.fit.classifier import RobustClassifier
from symloss.fit.fit_audit import audit_fit
from symloss.fit.run_audit import RunAudit, audit_run
from symloss.fit.wrong_count import WrongCount, count_wrong

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
