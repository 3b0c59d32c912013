"""Learning from wrong labels: the choice of a learner by noisy labels alone, and the list of labels that look wrong."""

from symloss.robust.classifier import RobustClassifier

__all__ = ["RobustClassifier"]
