/** Types of bundle.json, tokens.json and heads.json; BUNDLE.md specifies them. */

export const FORMAT = 1;
export const KIND = "detoklens explorer";

export type ViewName = "token" | "text" | "positions" | "heads";
export type SplitName = "biases" | "vocabulary";
export type Way = "looks" | "looked";

export interface TermDescription {
  name: string;
  symbol: string;
  words: string;
  meaning: string;
}

export interface Split {
  name: SplitName;
  meaning: string;
  terms: TermDescription[];
}

export interface ArrayDescription {
  file: string;
  dtype: "float16" | "float32" | "float64" | "uint32";
  shape: number[];
  multiplier: number;
  error: number;
}

export interface Model {
  name: string;
  positions: "learned" | "rotary" | "alibi";
  is_causal: boolean;
  n_heads: number;
  heads_per_key: number;
  d_head: number;
  vocab_size: number;
  n_positions: number;
  /** Number of trained positions, counted from the first; all if positions are not a table. */
  trained_positions: number;
  attention_scale: number;
  softcap: number | null;
  window: number | null;
  epsilon: number;
  norm: "layer" | "rms" | "none";
  normed_factors: boolean;
  placeless_token: number | null;
}

export interface CountsDescription {
  threshold: number;
  pairs: number;
  pairs_per_shard: number;
  total_tokens: number;
  total_pairs: number;
  by_query: { shards: number };
  by_key: { shards: number };
}

export interface Bundle {
  format: number;
  kind: string;
  detoklens: string;
  model: Model;
  text_limit: number;
  has_tokens: boolean;
  /** Special tokens and tokens that training barely changed, which are never partners. */
  left_out: number[];
  beginning: number | null;
  sample: { token: number; text: string | null; ids: number[]; head: number };
  splits: Split[];
  rotary: { frequencies: number[]; factor: number } | null;
  alibi_slopes: number[] | null;
  arrays: Record<string, ArrayDescription>;
  counts: CountsDescription | null;
  heads: string | null;
  heads_pending: boolean;
  views: Record<ViewName, string | null>;
  reasons: Record<"counts" | "layer_norm" | "offset" | "vocabulary", string | null>;
}

export interface TokensFile {
  texts: string[];
  bytes: Record<string, string>;
  special: number[];
  continuing_prefix: string;
}

export type Cell = number | string | boolean | null;

export interface HeadColumn {
  name: string;
  dtype: string;
  meaning: string;
}

export interface Verdict {
  value: "yes" | "no" | "untestable";
  heads: string[];
  reason: string;
}

/** One cell of the scorecard. */
export interface Mark {
  head: number;
  measure: string;
  value: number | null;
  verdict: "yes" | "no" | "not testable";
  why: string;
}

export interface HeadCards {
  columns: HeadColumn[];
  rows: Record<string, Cell>[];
  shown: string[];
  sentence: string;
  verdict?: Verdict | null;
  measures: Record<string, string>;
  marks: Mark[];
  shares: Record<string, string>; // columns of `rows` that add up to 1, and their names
  missing: { name: string; meaning: string }[];
}
