"""OutEffHop attention (Hu et al. 2024) and what it does to the outliers of an encoder."""
