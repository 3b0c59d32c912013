# The modules of symloss.theory, imported on first use (lazy_names.py).
from symloss.theory import (
    binary as binary,
    bounds as bounds,
    certificates as certificates,
    linearize as linearize,
    margin_certificates as margin_certificates,
    priors as priors,
    regression as regression,
)
