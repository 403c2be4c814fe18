"""Inputs of the calibration models: a tokenizer, corpus counts, and structured embeddings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise

import numpy as np
import zstandard
from scipy.cluster.vq import kmeans2
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import svds
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import detoklens as dl
from detoklens import demo

VOCABULARY = 1000
BOS = "<|endoftext|>"


@dataclass(frozen=True, eq=False)
class Texts:
    """A vocabulary with token and bigram counts."""

    tokenizer: str
    vocabulary: dl.Vocabulary
    counts: dl.Counts

    @property
    def size(self) -> int:
        return self.vocabulary.size

    @cached_property
    def tokens(self) -> list[str]:
        return [self.vocabulary.text(token) for token in range(self.size)]

    @cached_property
    def log_counts(self) -> np.ndarray:
        """log(count + 1) of each token, standardized to mean 0 and variance 1."""
        logs = np.log1p(self.counts.tokens.astype(np.float64))
        return (logs - logs.mean()) / logs.std()

    @cached_property
    def association(self) -> csr_matrix:
        """max(0, log P(key before query) / P(key) P(query)) of each query and key that co-occur."""
        bigrams, tokens = self.counts.bigrams, self.counts.tokens.astype(np.float64)
        queries = bigrams.suffixes.astype(np.int64)
        keys, counts = bigrams.prefixes.astype(np.int64), bigrams.counts.astype(np.float64)
        values = np.log(counts * counts.sum() / (tokens[queries] * tokens[keys]))
        return csr_matrix((np.maximum(values, 0), (queries, keys)), shape=(self.size, self.size))

    def lexical_factors(self, rank: int) -> tuple[np.ndarray, np.ndarray]:
        """Query and key vectors whose product is the best approximation of `association` at this rank."""
        left, values, right = svds(self.association, k=rank, random_state=0)
        return left * np.sqrt(values), right.T * np.sqrt(values)

    def clusters(self, number: int) -> np.ndarray:
        """The cluster of each token; tokens with similar neighbours share a cluster."""
        vectors = np.concatenate(self.lexical_factors(8), axis=1)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-9
        return kmeans2(vectors, number, seed=0, minit="++")[1]

    def cluster_association(self, clusters: np.ndarray) -> np.ndarray:
        """Association of query clusters with key clusters: the log ratio of observed to expected pairs."""
        bigrams, number = self.counts.bigrams, int(clusters.max()) + 1
        pairs = np.ones((number, number))
        np.add.at(pairs, (clusters[bigrams.suffixes], clusters[bigrams.prefixes]), bigrams.counts)
        expected = np.outer(pairs.sum(axis=1), pairs.sum(axis=0)) / pairs.sum()
        return np.log(pairs / expected)


@cache
def small_texts() -> Texts:
    """A byte-level BPE with 1,000 tokens, trained on the demo model's sampled documents, and their counts."""
    with demo.DOCUMENTS.open("rb") as file:
        lines = zstandard.ZstdDecompressor().stream_reader(file).read().decode().splitlines()
    documents = [json.loads(line)["text"] for line in lines]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[BOS], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(documents, trainer)
    vocabulary = dl.Vocabulary(tokenizer)
    tokens, pairs = np.zeros(vocabulary.size, np.int64), Counter[tuple[int, int]]()
    for encoded in tokenizer.encode_batch(documents):
        np.add.at(tokens, encoded.ids, 1)
        pairs.update(pairwise(encoded.ids))
    prefixes, suffixes = np.array(list(pairs), np.uint32).T
    counts = dl.Counts.from_arrays(tokens, suffixes, prefixes, np.array(list(pairs.values())), vocabulary.fingerprint)
    return Texts(tokenizer.to_str(), vocabulary, counts)


@cache
def demo_texts() -> Texts:
    """The demo model's own tokenizer and counts."""
    tokenizer = (demo.CHECKPOINT / "tokenizer.json").read_text(encoding="utf-8")
    return Texts(tokenizer, dl.Vocabulary.from_folder(demo.CHECKPOINT), dl.Counts.open(demo.COUNTS))


def iid(texts: Texts, d_model: int, random: np.random.Generator) -> np.ndarray:
    """No structure: an independent random vector per token."""
    return random.normal(size=(texts.size, d_model))


def spelled(texts: Texts, d_model: int, random: np.random.Generator) -> np.ndarray:
    """Sums of letter vectors, with later letters weighted less."""
    letters = {letter: random.normal(size=d_model) for letter in sorted(set("".join(texts.tokens)))}
    made = 0.3 * random.normal(size=(texts.size, d_model))
    for token, text in enumerate(texts.tokens):
        for place, letter in enumerate(text):
            made[token] += letters[letter] / (1 + place)
    return made


def classes(texts: Texts, d_model: int, random: np.random.Generator) -> np.ndarray:
    """One vector per class (leading space, capital, digit, letters, frequency band), plus noise."""
    bands = np.digitize(texts.log_counts, [-1, 0, 1])
    kinds = [
        (text[:1] == " ", text.strip()[:1].isupper(), text.strip().isdigit(), text.strip().isalpha(), int(band))
        for text, band in zip(texts.tokens, bands, strict=True)
    ]
    vectors = {kind: random.normal(size=d_model) for kind in sorted(set(kinds))}
    return np.stack([vectors[kind] for kind in kinds]) + 0.5 * random.normal(size=(texts.size, d_model))


def zipf_normed(texts: Texts, d_model: int, random: np.random.Generator) -> np.ndarray:
    """Rare tokens have larger norms and share a direction, so the embeddings encode frequency throughout."""
    rarity = (texts.log_counts.max() - texts.log_counts) / np.ptp(texts.log_counts)
    made = random.normal(size=(texts.size, d_model)) * (0.5 + rarity[:, None])
    return made + 2 * np.outer(rarity, random.normal(size=d_model))


def demos_own(_texts: Texts, d_model: int, _random: np.random.Generator) -> np.ndarray:
    """The demo model's trained embeddings."""
    found = dl.load(demo.NAME).weights.token_embeddings.astype(np.float64)
    assert found.shape[1] == d_model
    return found / found.std()


EMBEDDINGS: dict[str, Callable[[Texts, int, np.random.Generator], np.ndarray]] = {
    "iid": iid,
    "spelled": spelled,
    "classes": classes,
    "zipf": zipf_normed,
    "demo": demos_own,
}
