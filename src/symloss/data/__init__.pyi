# The public names of symloss.data, imported on first use (lazy_names.py).
from symloss.data.dataset import DataSet as DataSet
from symloss.data.dataset import Examples as Examples
from symloss.data.dataset import ImageFiles as ImageFiles
from symloss.data.dataset import Scaling as Scaling
from symloss.data.download import get as get
from symloss.data.opening import open_data as open_data
from symloss.data.published import open_webvision as open_webvision
from symloss.data.source import KNOWN as KNOWN
from symloss.data.source import DataSource as DataSource
from symloss.environment import data_root as data_root
