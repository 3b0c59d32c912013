"""Every hyper-parameter that nobody has to give, once, with its source."""
