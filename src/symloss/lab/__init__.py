"""The laboratory: published tables as recipes, and the means to run them on one machine or many."""

from symloss.lab.cells import Cell, find_cell, plan
from symloss.lab.tables import Published, Table, list_tables, load_table

__all__ = ["Cell", "Published", "Table", "find_cell", "list_tables", "load_table", "plan"]
