"""Finding the wrong labels of training data."""

from symloss.robust.audit import Audit, audit_labels
from symloss.robust.run_audit import RunAudit, audit_run
from symloss.robust.wrong_count import WrongCount, count_wrong

__all__ = ["Audit", "RunAudit", "WrongCount", "audit_labels", "audit_run", "count_wrong"]
