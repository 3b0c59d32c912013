"""The atlas: every loss of the catalogue as curves and maps, on one page that needs no network."""

from symloss.atlas.page import write_atlas

__all__ = ["write_atlas"]
