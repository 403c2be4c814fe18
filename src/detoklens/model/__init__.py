"""What does the real model do with tokens? The only room that runs transformers: the first blocks, and no more."""
