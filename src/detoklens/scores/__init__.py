"""What would layer 0 attend to? The terms, the attention, the output: pure mathematics."""
