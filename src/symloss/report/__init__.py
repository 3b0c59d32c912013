"""Audits as a CSV and as one HTML page, and the decisions that were made on it."""

from symloss.report.audit_decisions import corrections
from symloss.report.audit_writing import write_audit

__all__ = ["corrections", "write_audit"]
