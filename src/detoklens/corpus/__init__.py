"""Text corpora: reading, sampling, tokenizing and counting; independent of weights and scores."""
