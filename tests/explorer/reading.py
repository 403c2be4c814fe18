"""What a page makes of a bundle, in numpy and from its files alone: BUNDLE.md's formulas once more."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np


@dataclass
class Bundle:
    folder: Path

    @cached_property
    def said(self) -> dict[str, Any]:
        return json.loads((self.folder / "bundle.json").read_text(encoding="utf-8"))

    @property
    def model(self) -> dict[str, Any]:
        return self.said["model"]

    def array(self, name: str) -> np.ndarray:
        about = self.said["arrays"][name]
        stored = np.fromfile(self.folder / about["file"], np.dtype(about["dtype"]).newbyteorder("<"))
        return stored.reshape(about["shape"]).astype(np.float64) * about["multiplier"]

    def keys_of(self, head: int) -> int:
        return head // self.model["heads_per_key"]

    def turned(self, vectors: np.ndarray, by: Any, squared: bool = False) -> np.ndarray:
        if self.said["rotary"] is None:
            return vectors
        factor = self.said["rotary"]["factor"] ** (2 if squared else 1)
        angles = np.multiply.outer(by, np.array(self.said["rotary"]["frequencies"]))
        n = angles.shape[-1]
        first, second = vectors[..., :n], vectors[..., n : 2 * n]
        cosine, sine = factor * np.cos(angles), factor * np.sin(angles)
        rest = vectors[..., 2 * n :]
        return np.concatenate([first * cosine - second * sine, second * cosine + first * sine, rest], axis=-1)

    def affinity(self, head: int, offset: int = 1, centred: bool = False, split: str = "biases") -> np.ndarray:
        scale = self.array("token_scale")[:, None]
        query, key = self.array(f"query_{head}") / scale, self.array(f"key_{self.keys_of(head)}") / scale
        if split == "vocabulary":
            query, key = query + self._less("query", head), key + self._less("key", self.keys_of(head))
        elif centred:
            query = query - self.array("centre_query")[head]
        return self.turned(query, offset, squared=True) @ key.T

    def _less(self, side: str, number: int) -> np.ndarray:
        return self.array(f"bias_{side}")[number] - self.array(f"mean_{side}")[number]

    def scales(self, ids: list[int]) -> np.ndarray:
        if self.model["positions"] != "learned":
            return self.array("token_scale")[ids]
        if self.model["norm"] == "none":
            return np.ones(len(ids))
        both = self.array("token_covariance")[ids] * self.array("position_covariance")[: len(ids)]
        variance = self.array("token_variance")[ids] + self.array("position_variance")[: len(ids)]
        return np.sqrt(np.maximum(variance + 2 * both.sum(axis=1), 0) + self.model["epsilon"])

    def terms(self, head: int, ids: list[int], split: str = "biases") -> dict[str, np.ndarray]:
        scale, places = self.scales(ids)[:, None], np.arange(len(ids))
        query, key = self.array(f"query_{head}")[ids] / scale, self.array(f"key_{self.keys_of(head)}")[ids] / scale
        ones, bias = np.ones((len(ids), 1)), self.array("bias_query")[head]
        if self.model["positions"] == "learned":
            at_query, at_key = (self.array(f"position_{side}_{head}")[: len(ids)] / scale for side in ("query", "key"))
            found = {"ee": query @ key.T, "pp": at_query @ at_key.T, "pe": at_query @ key.T, "ep": query @ at_key.T}
            return found | {"e": ones * (key @ bias), "p": ones * (at_key @ bias)}
        common = "bias" if split == "biases" else "mean"
        a, b = self.array(f"{common}_query")[head], self.array(f"{common}_key")[self.keys_of(head)]
        query, key = query + bias - a, key + self.array("bias_key")[self.keys_of(head)] - b
        if self.said["alibi_slopes"]:
            slope = self.said["alibi_slopes"][head] / self.model["attention_scale"]
            found = {"ee": query @ key.T, "e": ones * (key @ a), "p": -slope * (places[:, None] - places)}
        else:
            query, key = self.turned(query, places), self.turned(key, places)
            a, b = self.turned(ones * a, places), self.turned(ones * b, places)
            found = {"ee": query @ key.T, "e": a @ key.T, "ep": query @ b.T, "p": a @ b.T}
        named = [term["name"] for each in self.said["splits"] if each["name"] == split for term in each["terms"]]
        return {name: found[name] for name in named}

    def attention(self, head: int, ids: list[int], split: str = "biases", off: tuple[str, ...] = ()) -> np.ndarray:
        parts = self.terms(head, ids, split)
        kept = [part for name, part in parts.items() if name not in off]
        scores = sum(kept, np.zeros((len(ids), len(ids)))) * self.model["attention_scale"]
        if self.model["softcap"]:
            scores = self.model["softcap"] * np.tanh(scores / self.model["softcap"])
        offset = np.arange(len(ids))[:, None] - np.arange(len(ids))
        seen = (offset >= 0) | (not self.model["is_causal"])
        if self.model["window"]:
            seen &= np.abs(offset) < self.model["window"]
        raised = np.where(seen, np.exp(scores - scores.max(axis=1, keepdims=True)), 0)
        return raised / raised.sum(axis=1, keepdims=True)

    def count(self, key: int, query: int, way: str = "by_query") -> int:
        """By the shards, as a page finds it."""
        row, other = (query, key) if way == "by_query" else (key, query)
        index = np.fromfile(self.folder / f"counts/{way}.index.bin", "<u4")
        size = self.said["counts"]["pairs_per_shard"]
        for place in range(index[row], index[row + 1]):
            shard = np.fromfile(self.folder / f"counts/{way}-{place // size:03}.bin", "<u4")
            if shard[place % size] == other:
                return int(shard[len(shard) // 2 + place % size])
        return 0
