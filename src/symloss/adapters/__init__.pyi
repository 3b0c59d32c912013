from symloss.adapters import (
    boosting as boosting,
    cleanlab as cleanlab,
    hf as hf,
    hf_causal as hf_causal,
    keras as keras,
    lightning as lightning,
    openmmlab as openmmlab,
    sentence_transformers as sentence_transformers,
    trl as trl,
)
