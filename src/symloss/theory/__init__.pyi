# The modules of symloss.theory, imported on first use (lazy_names.py).
from symloss.theory import binary as binary
from symloss.theory import bounds as bounds
from symloss.theory import certificates as certificates
from symloss.theory import priors as priors
from symloss.theory import regression as regression
