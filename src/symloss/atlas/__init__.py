"""The atlas: every loss of the catalogue as curves and maps, on one page that needs no network, and as figures."""

from symloss.atlas.figures import write_figures
from symloss.atlas.page import write_atlas

__all__ = ["write_atlas", "write_figures"]
