# The one list of public names: imported on first use (lazy_names.py), typed for editors and type checkers.
from symloss import (
    adapters as adapters,
    closed_form as closed_form,
    data as data,
    experiments as experiments,
    fit as fit,
    functional as functional,
    losses as losses,
    noise as noise,
    theory as theory,
    training as training,
)
from symloss.fit.audit.probabilities import audit as audit
from symloss.fit.estimator import RobustClassifier as RobustClassifier
from symloss.losses.catalogue.paper import (
    SGCE as SGCE,
    AlphaMAE as AlphaMAE,
    SymmetrizedCosine as SymmetrizedCosine,
    SymmetrizedMSE as SymmetrizedMSE,
    Unhinged as Unhinged,
)
from symloss.losses.catalogue.probability import (
    AEL as AEL,
    AGCE as AGCE,
    AUL as AUL,
    CE as CE,
    GCE as GCE,
    JS as JS,
    MAE as MAE,
    RCE as RCE,
    Focal as Focal,
    PHuberCE as PHuberCE,
    PHuberGCE as PHuberGCE,
    TaylorCE as TaylorCE,
)
from symloss.losses.catalogue.score_vector import LDRKL as LDRKL, MSE as MSE, BiTempered as BiTempered, Cosine as Cosine
from symloss.losses.catalogue.sums import (
    NCE as NCE,
    NFL as NFL,
    NGCE as NGCE,
    NNCE as NNCE,
    NNFL as NNFL,
    SCE as SCE,
    DirichletCE as DirichletCE,
    LabelSmoothing as LabelSmoothing,
)
from symloss.losses.compose import blend as blend, decompose as decompose, symmetrize as symmetrize
from symloss.losses.criterion import Criterion as Criterion
from symloss.losses.heads import LinearLoss as LinearLoss
from symloss.losses.of_logp import of_logp as of_logp
from symloss.losses.spec import create_loss as create_loss, list_losses as list_losses
from symloss.theory.bounds import gap_bound as gap_bound
from symloss.theory.certificates import certify as certify
from symloss.theory.linearize import linearize as linearize
from symloss.theory.margin_certificates import certify_margin as certify_margin
from symloss.training.best_epoch import BestEpoch as BestEpoch
from symloss.training.margins import MarginRecorder as MarginRecorder

__version__: str
