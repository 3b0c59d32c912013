"""Models: those of the published protocol, an MLP for tables, and any of the user's own."""

from __future__ import annotations

from symloss.models.factory import create_model, list_models

__all__ = ["create_model", "list_models"]
