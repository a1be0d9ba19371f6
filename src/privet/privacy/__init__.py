"""The mathematics of privacy: sampling, clipping, noise, trade-off functions, accounting."""
