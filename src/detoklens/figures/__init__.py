"""Tables in, matplotlib figures out, without any state: the only room that imports matplotlib.

A question names its figures (`spec.py`: tables, title, caption, function); `answer.figure(name)` draws one, `save.py`
writes it into files, `svg.py` makes it fit for a page.
"""
