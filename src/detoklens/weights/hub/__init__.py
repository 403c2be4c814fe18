"""How does a checkpoint on the hub become a local folder?

    access          what the hub says about a model, and its small files in the hub's cache
    cached          what is on disk already
    remote_weights  which tensor is in which remote file, and where in it
    selection       which bytes are needed, and the small safetensors file that they make up
    assembly        that small file on disk: begun, continued after an interruption, finished by a rename
    checkpoint      the whole way: `fetch_checkpoint`, `fetch_tokenizer`

The way to the hub itself is `detoklens.hub`.
Nothing here imports huggingface_hub, or any network code, before it is called.
"""

from detoklens.weights.hub.checkpoint import fetch_checkpoint, fetch_tokenizer

__all__ = ["fetch_checkpoint", "fetch_tokenizer"]
