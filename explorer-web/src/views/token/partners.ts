/** The partners of a token in one head: scores of all tokens, the largest and the smallest, joined texts. */

import { pairCount, type PairCount } from "../../data/counts";
import type { Way } from "../../data/contract";
import type { AffinityQuestion, Explorer } from "../../explorer";
import { largest, smallest } from "../../math/ranking";
import type { Table } from "../../parts/Downloads";

export interface Partners {
  question: AffinityQuestion;
  plain: Float32Array;
  centred: Float32Array | null; // null if the mean is subtracted already
  ranked: Float32Array; // the one that partners are ranked by
  candidates: Uint32Array;
  top: number[];
  bottom: number[];
}

export async function partnersOf(explorer: Explorer, question: AffinityQuestion, count: number): Promise<Partners> {
  const plain = await explorer.affinity({ ...question, centred: false });
  const centred = question.split === "biases" ? await explorer.affinity({ ...question, centred: true }) : null;
  const ranked = question.centred && centred ? centred : plain;
  const { candidates } = explorer;
  const [top, bottom] = [largest(ranked, count, candidates), smallest(ranked, count, candidates)];
  return { question, plain, centred, ranked, candidates, top, bottom };
}

/** Key and query of a pair, in the order of a text. */
export function sidesOf(way: Way, token: number, partner: number): [number, number] {
  return way === "looks" ? [partner, token] : [token, partner];
}

export interface Partner extends PairCount {
  id: number;
  score: number;
  joined: string;
  is_token: number | null;
}

export function described(
  explorer: Explorer,
  found: Partners,
  counts: Map<number, number> | null,
  id: number,
): Partner {
  const sides = sidesOf(found.question.way, found.question.token, id);
  return {
    id,
    score: found.ranked[id],
    ...pairCount(counts, id, explorer.counts?.threshold ?? 1),
    joined: explorer.vocabulary.joined(...sides),
    is_token: explorer.vocabulary.isToken(...sides),
  };
}

const COLUMNS = [
  "head",
  "direction",
  "offset",
  "centred_rank",
  "list",
  "rank",
  "query_token_id",
  "query_token",
  "key_token_id",
  "key_token",
  "score",
  "centred_score",
  "joined",
  "joined_token_id",
  "count",
];

/** The listed partners, for export. */
export function partnerTable(
  explorer: Explorer,
  all: { found: Partners; counts: Map<number, number> | null }[],
): Table {
  const rows = all.flatMap(({ found, counts }) => [
    ...listRows(explorer, found, counts, "largest", found.top),
    ...listRows(explorer, found, counts, "smallest", found.bottom),
  ]);
  return { columns: COLUMNS, rows };
}

/** Every candidate, from the largest score to the smallest. */
export function wholeTable(explorer: Explorer, all: { found: Partners; counts: Map<number, number> | null }[]): Table {
  const rows = all.flatMap(({ found, counts }) => {
    const { ranked, candidates } = found;
    const ids = Array.from(candidates).sort((one, other) => ranked[other] - ranked[one] || one - other);
    return listRows(explorer, found, counts, "all", ids);
  });
  return { columns: COLUMNS, rows };
}

function listRows(
  explorer: Explorer,
  found: Partners,
  counts: Map<number, number> | null,
  list: string,
  ids: number[],
) {
  const { question } = found;
  const isRotary = explorer.bundle.rotary !== null;
  return ids.map((id, place) => {
    const [key, query] = sidesOf(question.way, question.token, id);
    const partner = described(explorer, found, counts, id);
    return [
      question.head,
      question.way === "looks" ? "token as query" : "token as key",
      isRotary ? question.offset : null,
      question.centred,
      list,
      place + 1,
      query,
      explorer.vocabulary.text(query),
      key,
      explorer.vocabulary.text(key),
      found.plain[id],
      found.centred ? found.centred[id] : null,
      partner.joined,
      partner.is_token,
      partner.count,
    ];
  });
}
