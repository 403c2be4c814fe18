"""How does a file on the Hugging Face hub become a local one? The package's only door to the network.

    repository    a model's or a dataset's name, and which commits, etags and file names can be believed
    pace          a transfer that is too slow ends
    answers       one question, one answer: bounded in time and in memory, whatever the other side sends
    files         which files has a commit, where are their bytes, and where is one on this disk?
    ranges        exactly the asked bytes of a remote file, however often the connection breaks
    cache         huggingface_hub's folders: what is there already, and a file more
    plain_errors  one line for each way in which this can fail

Of huggingface_hub are used: its settings (endpoint, token, folders, offline switch), its session and the layout of its
cache. Its downloads are not: they believe the answers' headers, and make them names of files.

Nothing here imports huggingface_hub, or any network code, before it is called.
"""
