"""Text corpora: reading, sampling, tokenizing and counting; independent of weights and scores.

From files to counted bigrams:

| module | step |
|---|---|
| `inputs` | files, folders, globs and hub datasets |
| `documents`, `reading`, `parquet` | shards of files, and the texts in them |
| `encoding`, `word_by_word`, `cutting`, `regexes` | texts to token ids |
| `token_files` | or token ids and bigram counts made by other tools |
| `pairs` | token ids to sorted runs of pairs, in bounded memory; runs to files, files to the counts |
| `tasks` | these steps for one shard, in a worker process |
| `count` | the whole run: plan, shards, merges, counts |
| `counts_folder`, `counts` | the folder of counts: locked, checked, read |
"""
