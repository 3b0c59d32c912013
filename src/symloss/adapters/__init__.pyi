from symloss.adapters import (
    boosting as boosting,
    cleanlab as cleanlab,
    hf as hf,
    hf_causal as hf_causal,
    hf_tokens as hf_tokens,
    keras as keras,
    lightning as lightning,
    openmmlab as openmmlab,
    sentence_transformers as sentence_transformers,
    trl as trl,
)
