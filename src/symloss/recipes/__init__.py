"""Recipes: the default of every hyper-parameter, with its source."""
