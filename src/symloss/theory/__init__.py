"""The paper's theory as tools: certificates of losses, binary margins, regression, priors and bounds.

Its modules are imported on first use. ``__init__.pyi`` lists them.
"""

from symloss.lazy_names import attach

__getattr__, __dir__ = attach(__name__)
