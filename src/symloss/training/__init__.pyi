# The public names of symloss.training, imported on first use (lazy_names.py).
from symloss.training.results import EpochRow as EpochRow, Result as Result
from symloss.training.run import train as train
from symloss.training.settings import Settings as Settings
