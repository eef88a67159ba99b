"""OutEffHop attention (Hu et al. 2024) and its effect on the outliers of an encoder."""
