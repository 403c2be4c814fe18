"""Does the decomposition equal the real model? The only room that runs transformers, as an oracle."""
