"""Measure each verdict's false-positive rate and power on models with known ground truth.

`texts` makes a small vocabulary with corpus counts, `adversaries` builds the models, `run` computes every verdict for
every model and caches the results, and `table` turns them into the tables of docs/calibration.md. Like benchmarks/,
this lives outside the package: it needs torch, runs for minutes, and uses only the public API.

    python -m calibration.run            the whole suite, as in `make calibrate`
    python -m calibration.run --each 1   a smoke test with one model of each kind
"""
