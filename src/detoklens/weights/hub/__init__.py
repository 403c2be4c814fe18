"""How does a checkpoint on the hub become a local folder? The package's only door to the network.

    access          what the hub says about a model, and its small files, by huggingface_hub and in its cache
    cached          what is on disk already
    ranges          exactly the asked bytes of a remote file, however often the connection breaks
    remote_weights  which tensor is in which remote file, and where in it
    selection       which bytes are needed, and the small safetensors file that they make up
    assembly        that small file on disk: begun, continued after an interruption, finished by a rename
    plain_errors    one line for each way in which this can fail
    checkpoint      the whole way: `fetch_checkpoint`, `fetch_tokenizer`

Nothing here imports huggingface_hub, or any network code, before it is called.
"""

from detoklens.weights.hub.checkpoint import fetch_checkpoint, fetch_tokenizer

__all__ = ["fetch_checkpoint", "fetch_tokenizer"]
