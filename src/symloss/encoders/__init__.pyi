# The public names of symloss.encoders, imported on first use (lazy_names.py).
from symloss.encoders.features import encode as encode
from symloss.encoders.images import ImageEncoder as ImageEncoder, image_encoder as image_encoder
from symloss.encoders.names import check_encoder as check_encoder, installed as installed, kind as kind
