"""Questions: base classes, study, answers, catalogue, and one module or package per question."""
