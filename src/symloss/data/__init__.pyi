# The public names of symloss.data, imported on first use (lazy_names.py).
from symloss.data.dataset import DataSet as DataSet, Examples as Examples, ImageFiles as ImageFiles, Scaling as Scaling
from symloss.data.download import get as get
from symloss.data.opening import open_data as open_data
from symloss.data.published import open_webvision as open_webvision
from symloss.data.source import KNOWN as KNOWN, DataSource as DataSource
from symloss.environment import data_root as data_root
