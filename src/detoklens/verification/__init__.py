"""Does the decomposition equal the real model? What is compared, head by head, with what transformers says."""
