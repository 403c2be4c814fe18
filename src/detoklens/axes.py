"""The one legend of axis names used in array annotations.

| axis      | runs over                                                       | paper |
|-----------|-----------------------------------------------------------------|-------|
| head      | the attention heads of layer 0, from 0                          | h     |
| key_head  | heads with keys of their own: fewer where heads share them      |       |
| query     | what attends: places of a text, or the query tokens asked about | i     |
| key       | what is attended to                                             | j     |
| token     | token ids of the vocabulary                                     | ID    |
| position  | rows of the position table                                      |       |
| d_model   | features of an embedding                                        | d     |
| d_head    | features of one head's query, key or value                      | d'    |
| d_mlp     | features inside the MLP                                         |       |
| offset    | distances i − j between query and key                           | δ     |
| pair      | pairs of features that rotary positions turn together           |       |
| document  | texts of a corpus                                               |       |

Arrays are always indexed in the order head, query, key.
"""
