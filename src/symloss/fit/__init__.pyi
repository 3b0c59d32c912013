# The public names of symloss.fit, imported on first use (lazy_names.py).
from symloss.fit.audit.export import corrections as corrections
from symloss.fit.audit.export import write_audit as write_audit
from symloss.fit.audit.models import RunAudit as RunAudit
from symloss.fit.audit.models import audit_fit as audit_fit
from symloss.fit.audit.models import audit_run as audit_run
from symloss.fit.audit.scores import Audit as Audit
from symloss.fit.audit.scores import WrongCount as WrongCount
from symloss.fit.audit.scores import audit_labels as audit_labels
from symloss.fit.audit.scores import count_wrong as count_wrong
from symloss.fit.estimator import RobustClassifier as RobustClassifier
