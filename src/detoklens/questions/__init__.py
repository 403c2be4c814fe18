"""Questions: base classes, study, answers, catalogue, and one package per question."""
