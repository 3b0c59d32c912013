"""Losses: one small algebra, a dozen potentials, and a catalogue in which every published loss is one line."""
