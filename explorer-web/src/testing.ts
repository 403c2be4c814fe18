/** `window.detoklens`, for tests and benchmarks: the numbers that the views show. */

import type { Bundle, SplitName } from "./data/contract";
import type { AffinityQuestion, Explorer } from "./explorer";
import { firstView } from "./parts/hooks";
import { timings } from "./state/timing";
import { described, partnersOf } from "./views/token/partners";

type Asked = Partial<AffinityQuestion> & Pick<AffinityQuestion, "head" | "token">;

const exposed = { ready: firstView, timings };

/** Available before the bundle is read: a promise that resolves when the first view is drawn. */
export function exposeReady(): void {
  Object.assign(window, { detoklens: exposed });
}

export function expose(explorer: Explorer): void {
  Object.assign(exposed, api(explorer));
}

function complete(asked: Asked): AffinityQuestion {
  return { way: "looks", centred: false, offset: 1, split: "biases", ...asked };
}

function api(explorer: Explorer) {
  const usual: SplitName = explorer.bundle.splits[0].name;
  return {
    bundle: explorer.bundle as Bundle,
    encode: (text: string) => explorer.tokenizer.encode(text),
    affinity: async (asked: Asked) => Array.from(await explorer.affinity(complete(asked))),
    partners: async ({ top = 10, ...asked }: Asked & { top?: number }) => {
      const question = complete(asked);
      const found = await partnersOf(explorer, question, top);
      const counts = (await explorer.counts?.row(question.token, question.way)) ?? null;
      const each = (id: number) => described(explorer, found, counts, id);
      return { top: found.top.map(each), bottom: found.bottom.map(each) };
    },
    terms: async ({ head, ids, split = usual }: { head: number; ids: number[]; split?: SplitName }) => {
      const terms = await explorer.terms(head, ids, split);
      const values = Object.fromEntries(terms.names.map((name) => [name, Array.from(terms.parts[name])]));
      return { names: terms.names, values, scale: Array.from(terms.scale) };
    },
    attention: async ({
      head,
      ids,
      split = usual,
      off = [],
    }: {
      head: number;
      ids: number[];
      split?: SplitName;
      off?: string[];
    }) => Array.from(explorer.attention(await explorer.terms(head, ids, split), off)),
    positions: async ({
      head,
      query,
      ln = true,
      split = usual,
    }: {
      head: number;
      query: number;
      ln?: boolean;
      split?: SplitName;
    }) => {
      const { first, p, pp, sum, attention } = await explorer.positions(head, query, ln, split);
      return {
        first,
        p: p && Array.from(p),
        pp: pp && Array.from(pp),
        sum: Array.from(sum),
        attention: Array.from(attention),
      };
    },
    kernel: async ({ head, offsets, split = usual }: { head: number; offsets: number[]; split?: SplitName }) =>
      offsets.map(await explorer.kernel(head, split)),
  };
}
