"""Certificates: the properties of a loss, measured by a search for the worst case, with counter-examples."""

from symloss.theory.certificates.certificate import Certificate, Constant, CounterExample, Finding
from symloss.theory.certificates.certify import certify

__all__ = ["Certificate", "Constant", "CounterExample", "Finding", "certify"]
