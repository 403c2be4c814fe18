"""Theme and drawing helpers for matplotlib figures; the figures themselves live with their question.

A question describes its figures with `FigureSpec` (spec.py), `answer.figure(name)` draws one, save.py writes files.
Importing these modules does not import matplotlib; drawing does (mpl.py).
"""
