"""The mathematics of layer 0: score terms, attention and output.

Axis names in array annotations, here and in other packages:

| axis      | runs over                                                       | paper |
|-----------|-----------------------------------------------------------------|-------|
| head      | the attention heads of layer 0, from 0                          | h     |
| key_head  | heads with separate keys: fewer where heads share keys          |       |
| query     | what attends: positions of a text, or query tokens              | i     |
| key       | what is attended to                                             | j     |
| token     | token ids of the vocabulary                                     | ID    |
| position  | rows of the position table                                      |       |
| d_model   | features of an embedding                                        | d     |
| d_head    | features of one head's query, key or value                      | d'    |
| d_mlp     | features inside the MLP                                         |       |
| offset    | distances i − j between query and key                           | δ     |
| pair      | pairs of features that rotary positions rotate together         |       |
| document  | texts of a corpus                                               |       |

Arrays are always indexed in the order head, query, key.
"""
