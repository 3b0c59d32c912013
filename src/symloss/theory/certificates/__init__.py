"""Certificates: does a loss have the properties it claims? Measured by adversarial search, with counter-examples."""

from symloss.theory.certificates.certificate import Certificate, Constant, CounterExample, Finding
from symloss.theory.certificates.certify import certify

__all__ = ["Certificate", "Constant", "CounterExample", "Finding", "certify"]
