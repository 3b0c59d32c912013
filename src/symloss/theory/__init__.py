"""The paper's theory as tools: certificates of losses, binary margins, regression, priors and bounds."""
