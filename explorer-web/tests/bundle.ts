/** A bundle's description for tests of what needs no arrays. */

import type { Bundle } from "../src/data/contract";

const term = (name: string) => ({ name, symbol: name, words: name, meaning: name });

export const bundle = {
  model: { n_heads: 4, vocab_size: 100, n_positions: 64, trained_positions: 40, is_causal: true },
  text_limit: 64,
  has_tokens: true,
  left_out: [],
  beginning: 0,
  sample: { token: 7, text: "a b", ids: [1, 2], head: 2 },
  splits: [{ name: "biases", meaning: "", terms: [term("ee"), term("p")] }],
  views: { token: null, text: null, positions: null, heads: null },
} as unknown as Bundle;
