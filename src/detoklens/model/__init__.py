"""The first blocks of the real model. Only this package imports torch and transformers."""
