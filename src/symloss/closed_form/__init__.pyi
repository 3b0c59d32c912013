# The public names of symloss.closed_form, imported on first use (lazy_names.py).
from symloss.closed_form.kernel import KernelUnhingedClassifier as KernelUnhingedClassifier
from symloss.closed_form.networks import (
    centroid_alignment as centroid_alignment,
    refit_head as refit_head,
    squared_error_centroid as squared_error_centroid,
    unhinged_centroid as unhinged_centroid,
)
from symloss.closed_form.unhinged import UnhingedClassifier as UnhingedClassifier, fit_distributed as fit_distributed
