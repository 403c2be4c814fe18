/** What each view shows, in one line. */

import type { ViewName } from "../data/contract";

export const VIEW_LINES: Record<ViewName, string> = {
  heads: "What each head does, measured from its weights: one verdict per head and measure, with its reason.",
  token: "Which tokens a token looks for, and which look for it, over the whole vocabulary.",
  text: "Which tokens each token of your text attends to, and which term of the score is responsible.",
  positions: "Where a head attends by position alone.",
};
