"""One kernel for the GPU for each loss: written from the traced formula of the loss, compiled by Triton."""
