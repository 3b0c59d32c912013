"""The laboratory trains published tables on one machine or many, and searches for settings."""

from symloss.recipes.cells import Cell, find_cell, plan
from symloss.recipes.published_tables import Published, PublishedTable, list_tables, load_table

__all__ = ["Cell", "Published", "PublishedTable", "find_cell", "list_tables", "load_table", "plan"]
