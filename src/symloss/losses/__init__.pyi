# The public names of symloss.losses, imported on first use (lazy_names.py).
from symloss.losses.base import Loss as Loss
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
    ANLCE as ANLCE,
    ANLFL as ANLFL,
    JALCE as JALCE,
    JALFL as JALFL,
    NCE as NCE,
    NFL as NFL,
    NGCE as NGCE,
    NNCE as NNCE,
    NNFL as NNFL,
    SCE as SCE,
    DirichletCE as DirichletCE,
    LabelSmoothing as LabelSmoothing,
)
from symloss.losses.compose import (
    Decomposition as Decomposition,
    blend as blend,
    complement as complement,
    decompose as decompose,
    dirichlet as dirichlet,
    noisy as noisy,
    relative as relative,
    symmetrize as symmetrize,
)
from symloss.losses.criterion import Criterion as Criterion
from symloss.losses.heads import LinearLoss as LinearLoss
from symloss.losses.layers import (
    BatchNormScores as BatchNormScores,
    EpsSoftmax as EpsSoftmax,
    SoftCap as SoftCap,
    UnitScores as UnitScores,
    append_scores as append_scores,
    l1_penalty as l1_penalty,
)
from symloss.losses.spec import create_loss as create_loss, list_losses as list_losses
from symloss.losses.validation import checked as checked, plain as plain
