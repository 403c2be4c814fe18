"""The mathematics of layer 0: score terms, attention and output."""
