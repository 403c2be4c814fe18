"""How often is each verdict wrong, and how small an effect does it find? Models whose truth is known, asked everything.

`texts` makes a small vocabulary with corpus counts, `adversaries` builds the models, `run` asks every verdict of every
model and keeps what was answered, `table` turns that into the tables of docs/calibration.md. It lives outside the
package, as benchmarks/ does: it needs torch, runs for minutes, and uses nothing but the public interface.

    python -m calibration.run            the whole suite, as `make calibrate` runs it
    python -m calibration.run --each 1   one model of each kind, to see that it works
"""
