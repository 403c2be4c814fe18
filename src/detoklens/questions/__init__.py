"""Questions: one file each; study, answer, store. The room that composes."""
