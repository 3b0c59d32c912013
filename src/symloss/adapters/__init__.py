"""Use symloss inside other libraries, with one module for each.

Modules are imported on first use, and each imports its own library only:

- ``boosting``: XGBoost and LightGBM classifiers with any loss
- ``cleanlab``: exchange audits with cleanlab, in both directions
- ``hf``: a loss for the Hugging Face Trainer, and for models that call ``self.loss_function``
- ``hf_causal``: a Trainer for language models that never holds all scores
- ``keras``: a loss for Keras 3 on torch, saved and loaded with the model
- ``lightning``: a callback that tracks the mean margin of each training example, to find mislabelled ones
- ``openmmlab``: a loss for OpenMMLab configurations, such as those of MMPretrain
- ``sentence_transformers``: a contrastive loss of text pairs, with any loss in place of cross-entropy
- ``trl``: supervised fine-tuning with any loss of the label's log-probability
"""

from symloss.lazy_names import attach

__getattr__, __dir__ = attach(__name__)
