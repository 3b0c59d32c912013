# The public names of symloss.closed_form, imported on first use (lazy_names.py).
from symloss.closed_form.kernel import KernelUnhingedClassifier as KernelUnhingedClassifier
from symloss.closed_form.networks import centroid_alignment as centroid_alignment
from symloss.closed_form.networks import refit_head as refit_head
from symloss.closed_form.networks import squared_error_centroid as squared_error_centroid
from symloss.closed_form.networks import unhinged_centroid as unhinged_centroid
from symloss.closed_form.unhinged import UnhingedClassifier as UnhingedClassifier
from symloss.closed_form.unhinged import fit_distributed as fit_distributed
