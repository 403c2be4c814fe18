"""Files on the Hugging Face hub. The only package that uses the network.

    repository        the files of a model or dataset: commit, size, etag, and their place in the cache
    session           requests bounded in time and memory, byte ranges of a file, one line for every way this can fail

huggingface_hub provides the settings (endpoint, token, folders, offline switch), the HTTP session, URLs, locks and the
cache layout. Its own requests are not used. `hf_hub_download` and `HfApi` read answers of any size and build file names
from response headers, and `get_hf_file_metadata` first fetches a telemetry registry, also of any size.

Importing these modules imports huggingface_hub, so import them where a hub name is known to be needed.
"""
