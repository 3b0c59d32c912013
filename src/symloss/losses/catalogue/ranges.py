"""Ranges of parameters that several losses share.

A range ends where the loss or its gradient no longer fits into float32, or where the loss is nearly constant.
"""

from symloss.losses.record import Range

GAMMA = Range("[0, 100]", "how much confident examples are weighed down")
ALPHA = Range("[0, 1e6]", "weight of the first loss")
BETA = Range("[0, 1e6]", "weight of the second loss")
AGCE_A = Range("(0, 1000]", "offset of the probability")
AUL_A = Range("(1, 1000]", "what the probability is taken from")
AEL_A = Range("[0.001, 1000]", "scale of the probability")
AMSE_A = Range("[1, 1000]", "what the label's probability is drawn to, at 1 MSE / C")
EXPONENT = Range("(0, 10]", "exponent; at 1 MAE")
TAU = Range("(1, inf)", "largest slope in p")
