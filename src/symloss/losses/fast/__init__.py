"""The fast floor: values together with gradients, by kernels. It imports the formulas, and nothing built on them."""
