/** Answers the views' questions about one bundle: fetches arrays and applies the mathematics. */

import { Arrays } from "./data/arrays";
import type { Bundle, HeadCards, Split, SplitName, TokensFile, Way } from "./data/contract";
import { Counts } from "./data/counts";
import { fetchJson, fetchPending } from "./data/fetching";
import { Problem } from "./data/problem";
import { TextTokenizer } from "./data/tokenizer";
import { Vocabulary } from "./data/vocabulary";
import { lookedFor, lookedForBy, lookingFor, type Head } from "./math/affinity";
import { attentionOf, type Sight } from "./math/attention";
import {
  alibiKernel,
  kernelCurves,
  learnedCurves,
  rotaryKernel,
  type Kernel,
  type PositionCurves,
} from "./math/positions";
import {
  alibiTerms,
  dividedRows,
  learnedScale,
  learnedTerms,
  restricted,
  rotaryTerms,
  scoreOf,
  type Terms,
} from "./math/terms";

type HeadsFile = HeadCards | { problem: string };

const ASK_AGAIN = 2000; // milliseconds between two looks for what is still being computed

export interface AffinityQuestion {
  head: number;
  token: number;
  way: Way;
  centred: boolean;
  offset: number;
  split: SplitName;
}

export class Explorer {
  readonly arrays: Arrays;
  readonly counts: Counts | null;
  readonly tokenizer: TextTokenizer;
  readonly sight: Sight;
  readonly candidates: Uint32Array; // the tokens that partners are chosen from
  private cards: Promise<HeadCards> | null = null;
  private inverseScale: Float32Array | null = null;
  private keyMeans: { of: string; means: Float32Array } | null = null;

  constructor(
    readonly bundle: Bundle,
    readonly vocabulary: Vocabulary,
  ) {
    const { model } = bundle;
    this.arrays = new Arrays(bundle.arrays);
    this.counts = bundle.counts && new Counts(bundle.counts, model.vocab_size);
    this.tokenizer = new TextTokenizer(bundle.has_tokens, !bundle.model.is_causal);
    const leftOut = new Set(bundle.left_out);
    this.candidates = Uint32Array.from({ length: model.vocab_size }, (_, id) => id).filter((id) => !leftOut.has(id));
    this.sight = {
      attentionScale: model.attention_scale,
      softcap: model.softcap,
      isCausal: model.is_causal,
      window: model.window,
    };
  }

  static async of(bundle: Bundle): Promise<Explorer> {
    const tokens = bundle.has_tokens ? await fetchJson<TokensFile>("tokens.json") : null;
    return new Explorer(bundle, new Vocabulary(bundle.model.vocab_size, tokens));
  }

  split(name: SplitName): Split {
    return this.bundle.splits.find((each) => each.name === name) ?? this.bundle.splits[0];
  }

  headCards(): Promise<HeadCards> {
    return (this.cards ??= this.readHeadCards());
  }

  private async readHeadCards(): Promise<HeadCards> {
    const { heads, heads_pending: isPending, views } = this.bundle;
    if (!heads) throw new Problem(views.heads ?? "This bundle has no head cards.");
    const reading = isPending ? fetchPending<HeadsFile>(heads, ASK_AGAIN) : fetchJson<HeadsFile>(heads);
    const found = await reading;
    if ("problem" in found) throw new Problem(found.problem);
    return found;
  }

  /** Tᵉᵉ of a token, as query or as key, with every token. */
  async affinity(question: AffinityQuestion): Promise<Float32Array> {
    this.checkToken(question.token);
    const head = await this.head(question.head, question.split);
    const ask = question.way === "looks" ? lookedFor : lookingFor;
    const scores = ask(head, question.token, question.offset, this.bundle.rotary);
    return question.centred && question.split === "biases" ? this.centred(scores, head, question) : scores;
  }

  /** Scores minus each key's mean over all query tokens. */
  private async centred(scores: Float32Array, head: Head, question: AffinityQuestion): Promise<Float32Array> {
    const means = await this.meansOfKeys(head, question);
    if (question.way === "looks") return scores.map((score, key) => score - means[key]);
    return scores.map((score) => score - means[question.token]);
  }

  /** Each key's mean over all query tokens; cached for the latest head and offset. */
  private async meansOfKeys(head: Head, question: AffinityQuestion): Promise<Float32Array> {
    const of = `${question.head} ${question.offset}`;
    if (this.keyMeans?.of === of) return this.keyMeans.means;
    const mean = await this.arrays.row("centre_query", question.head);
    this.keyMeans = { of, means: lookedForBy(head, mean, question.offset, this.bundle.rotary) };
    return this.keyMeans.means;
  }

  async terms(head: number, ids: number[], split: SplitName): Promise<Terms> {
    this.checkText(ids);
    const found =
      this.bundle.model.positions === "learned" ? this.sixTerms(head, ids) : this.offsetTerms(head, ids, split);
    return restricted(
      await found,
      this.split(split).terms.map((term) => term.name),
    );
  }

  attention(terms: Terms, off: readonly string[] = []): Float32Array {
    return attentionOf(scoreOf(terms, off), terms.length, this.sight);
  }

  /** Tᵖ, Tᵖᵖ, their sum and its softmax along the keys; for rotary and ALiBi, the kernel and its softmax. */
  async positions(head: number, query: number, norm: boolean, split: SplitName): Promise<PositionCurves> {
    this.checkHead(head);
    const length = this.bundle.model.n_positions;
    if (!(query >= 0 && query < length))
      throw new Problem(`Position ${query} does not exist; positions go from 0 to ${length - 1}.`);
    if (this.bundle.model.positions !== "learned") {
      return kernelCurves(await this.kernel(head, split), query, length, this.sight);
    }
    const [queries, keys, bias, scale] = await Promise.all([
      this.arrays.floats(`position_query_${head}`),
      this.arrays.floats(`position_key_${head}`),
      this.arrays.row("bias_query", head),
      this.arrays.floats("position_scale"),
    ]);
    const factors = { width: this.bundle.model.d_head, query: queries, key: keys, bias, scale: norm ? scale : null };
    return learnedCurves(factors, query, length, this.sight);
  }

  async kernel(head: number, split: SplitName): Promise<Kernel> {
    this.checkHead(head);
    const { model, rotary, alibi_slopes: slopes } = this.bundle;
    if (slopes) return alibiKernel(slopes[head], model.attention_scale);
    if (!rotary) throw new Problem(`${model.name}: learned positions do not depend on the offset alone.`);
    const common = await this.common(head, split);
    return rotaryKernel(common.query, common.key, rotary);
  }

  checkToken(token: number): void {
    const size = this.bundle.model.vocab_size;
    if (Number.isInteger(token) && token >= 0 && token < size) return;
    throw new Problem(`Token id ${token} is not in the vocabulary; ids go from 0 to ${size - 1}.`);
  }

  checkText(ids: number[]): void {
    const { text_limit: limit, model } = this.bundle;
    if (!ids.length) throw new Problem("The text is empty; type at least one token.");
    if (ids.length > limit) {
      const why = limit < model.n_positions ? `this page shows at most ${limit}` : `the model reads at most ${limit}`;
      throw new Problem(`This text has ${ids.length} tokens and ${why}; shorten it by ${ids.length - limit}.`);
    }
    ids.forEach((id) => this.checkToken(id));
    if (model.placeless_token !== null && ids.includes(model.placeless_token)) {
      throw new Problem(`Token id ${model.placeless_token} is padding and has no position; remove it.`);
    }
  }

  private checkHead(head: number): void {
    const { n_heads: heads } = this.bundle.model;
    if (!(Number.isInteger(head) && head >= 0 && head < heads)) {
      throw new Problem(`Head ${head} does not exist; heads go from 0 to ${heads - 1}.`);
    }
  }

  private keysOf(head: number): number {
    return Math.floor(head / this.bundle.model.heads_per_key);
  }

  /** Query and key factors of a head, and the vectors added to them. */
  private async head(head: number, split: SplitName): Promise<Head> {
    this.checkHead(head);
    const width = this.bundle.model.d_head;
    const [query, key, inverseScale] = await Promise.all([
      this.arrays.factors(`query_${head}`),
      this.arrays.factors(`key_${this.keysOf(head)}`),
      this.inverses(),
    ]);
    const nothing = new Float64Array(width);
    const common = split === "vocabulary" ? await this.lessCommon(head, split) : { query: nothing, key: nothing };
    return {
      width,
      inverseScale,
      query: { factors: query, common: common.query },
      key: { factors: key, common: common.key },
    };
  }

  private async inverses(): Promise<Float32Array> {
    const scale = await this.arrays.floats("token_scale");
    return (this.inverseScale ??= scale.map((value) => 1 / value));
  }

  /** The shared query and key of a head, by split. */
  private async common(head: number, split: SplitName): Promise<{ query: Float64Array; key: Float64Array }> {
    const kind = split === "vocabulary" ? "mean" : "bias";
    const [query, key] = await Promise.all([
      this.arrays.row(`${kind}_query`, head),
      this.arrays.row(`${kind}_key`, this.keysOf(head)),
    ]);
    return { query: Float64Array.from(query), key: Float64Array.from(key) };
  }

  /** The biases minus the shared part: what is added to each token's factor. */
  private async lessCommon(head: number, split: SplitName): Promise<{ query: Float64Array; key: Float64Array }> {
    const [biases, common] = await Promise.all([this.common(head, "biases"), this.common(head, split)]);
    return {
      query: biases.query.map((value, place) => value - common.query[place]),
      key: biases.key.map((value, place) => value - common.key[place]),
    };
  }

  private async sixTerms(head: number, ids: number[]): Promise<Terms> {
    const width = this.bundle.model.d_head;
    const places = ids.map((_, place) => place);
    const [query, key, positionQuery, positionKey, bias, scale] = await Promise.all([
      this.arrays.rows(`query_${head}`, ids),
      this.arrays.rows(`key_${this.keysOf(head)}`, ids),
      this.arrays.floats(`position_query_${head}`),
      this.arrays.floats(`position_key_${head}`),
      this.arrays.row("bias_query", head),
      this.textScale(ids),
    ]);
    const tokens = { query: dividedRows(query, places, width, scale), key: dividedRows(key, places, width, scale) };
    const positions = {
      query: dividedRows(positionQuery, places, width, scale),
      key: dividedRows(positionKey, places, width, scale),
    };
    return learnedTerms(tokens, positions, bias, scale);
  }

  private async offsetTerms(head: number, ids: number[], split: SplitName): Promise<Terms> {
    const { model, rotary, alibi_slopes: slopes } = this.bundle;
    const places = ids.map((_, place) => place);
    const [query, key, scale, common, own] = await Promise.all([
      this.arrays.rows(`query_${head}`, ids),
      this.arrays.rows(`key_${this.keysOf(head)}`, ids),
      this.textScale(ids),
      this.common(head, split),
      this.lessCommon(head, split),
    ]);
    const rows = (table: Float32Array, added: Float64Array) => dividedRows(table, places, model.d_head, scale, added);
    const parts = { tokens: { query: rows(query, own.query), key: rows(key, own.key) }, common };
    if (slopes) return alibiTerms(parts, slopes[head], model.attention_scale, scale);
    if (!rotary) throw new Problem("This bundle lacks the frequencies of its rotary positions.");
    return rotaryTerms(parts, rotary, scale);
  }

  /** σ at each position of a text. */
  private async textScale(ids: number[]): Promise<Float32Array> {
    const { model } = this.bundle;
    if (model.positions !== "learned") {
      const scale = await this.arrays.floats("token_scale");
      return Float32Array.from(ids, (id) => scale[id]);
    }
    if (model.norm === "none") return new Float32Array(ids.length).fill(1);
    const thin = this.arrays.has("token_covariance");
    const nothing = new Float32Array();
    const [variance, position, tokenCovariance, positionCovariance] = await Promise.all([
      this.arrays.floats("token_variance"),
      this.arrays.floats("position_variance"),
      thin ? this.arrays.rows("token_covariance", ids) : nothing,
      thin ? this.arrays.floats("position_covariance") : nothing,
    ]);
    const rank = thin ? this.arrays.shape("token_covariance")[1] : 0;
    const token = ids.map((id) => variance[id]);
    return learnedScale({ token, position, tokenCovariance, positionCovariance, rank, epsilon: model.epsilon });
  }
}
