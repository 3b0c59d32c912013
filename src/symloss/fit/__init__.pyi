# The public names of symloss.fit, imported on first use (lazy_names.py).
from symloss.fit.audit.annotation_tools import export_audit as export_audit
from symloss.fit.audit.decisions import corrections as corrections
from symloss.fit.audit.export import write_audit as write_audit
from symloss.fit.audit.models import RunAudit as RunAudit, audit_fit as audit_fit, audit_run as audit_run
from symloss.fit.audit.scores import (
    Audit as Audit,
    WrongCount as WrongCount,
    audit_labels as audit_labels,
    count_wrong as count_wrong,
)
from symloss.fit.estimator import RobustClassifier as RobustClassifier
