/** The state of the page and its address: #/token?head=1&token=302 … */

import type { Bundle, SplitName, ViewName, Way } from "../data/contract";

export type Drawing = "arcs" | "matrix";

export interface State {
  view: ViewName;
  heads: number[]; // at least one; the Text view shows at most two, Positions the first
  token: number;
  way: Way;
  centred: boolean;
  offset: number;
  split: SplitName | null; // null: the view's default
  top: number;
  text: string | null; // null: typed as ids
  ids: number[];
  other: string | null; // the text (or ids) to compare with
  draw: Drawing;
  bos: boolean;
  off: string[]; // terms switched off
  show: string; // what the matrix draws: attention, change, score or a term
  cell: [number, number] | null;
  cell2: [number, number] | null; // in the second panel
  query: number;
  norm: boolean;
  all: boolean; // every column of the head cards
  sort: string;
  descending: boolean;
  x: string | null;
  y: string | null;
}

export const VIEWS: ViewName[] = ["heads", "token", "text", "positions"];
const FAR = 1000; // default query position: farther ones make distances hard to see
export const TOPS = [10, 25, 50, 100];

const KEYS: Record<ViewName, string[]> = {
  token: ["head", "heads", "token", "way", "centred", "offset", "split", "top"],
  text: ["head", "heads", "text", "ids", "other", "draw", "bos", "split", "off", "show", "cell", "cell2"],
  positions: ["head", "query", "ln", "split"],
  heads: ["head", "all", "sort", "descending", "x", "y"],
};

/** The parts of the state in each view's address. */
const SAID: Record<ViewName, (keyof State)[]> = {
  token: ["heads", "token", "way", "centred", "offset", "split", "top"],
  text: ["heads", "text", "ids", "other", "draw", "bos", "split", "off", "show", "cell", "cell2"],
  positions: ["heads", "query", "norm", "split"],
  heads: ["heads", "all", "sort", "descending", "x", "y"],
};

/** The state after navigating to an address; what it does not mention is unchanged. */
export function moved(before: State, hash: string, bundle: Bundle): State {
  const said = parsed(hash, bundle);
  const taken = ["view" as const, ...SAID[said.view]].map((name) => [name, said[name]]);
  return { ...before, ...(Object.fromEntries(taken) as Partial<State>) };
}

export function defaults(bundle: Bundle): State {
  const { sample, model } = bundle;
  return {
    view: "heads",
    heads: [within(sample.head, 0, model.n_heads - 1) ?? 0],
    token: sample.token,
    way: "looks",
    centred: false,
    offset: 1,
    split: null,
    top: TOPS[0],
    text: bundle.has_tokens ? sample.text : null,
    ids: sample.ids,
    other: null,
    draw: "arcs",
    bos: false,
    off: [],
    show: "attention",
    cell: null,
    cell2: null,
    query: Math.min(Math.floor(model.trained_positions / 2), FAR),
    norm: true,
    all: false,
    sort: "head",
    descending: false,
    x: null,
    y: null,
  };
}

/** The state of an address; unknown or invalid values fall back to defaults. */
export function parsed(hash: string, bundle: Bundle): State {
  const [path, search = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const said = new URLSearchParams(search);
  const state = defaults(bundle);
  const { model } = bundle;
  const number = (name: string, low: number, high: number) => within(wholeNumber(said.get(name)), low, high);
  const first = model.is_causal ? 0 : 1 - model.n_positions;
  return {
    ...state,
    view: VIEWS.find((view) => view === path) ?? state.view,
    heads: headsOf(said, model.n_heads) ?? state.heads,
    token: number("token", 0, model.vocab_size - 1) ?? state.token,
    way: said.get("way") === "looked" ? "looked" : "looks",
    centred: said.get("centred") === "1",
    offset: number("offset", first, model.n_positions - 1) ?? state.offset,
    split: bundle.splits.find((split) => split.name === said.get("split"))?.name ?? null,
    top: TOPS.find((top) => String(top) === said.get("top")) ?? state.top,
    ...textOf(said, bundle, state),
    other: said.get("other"),
    draw: said.get("draw") === "matrix" ? "matrix" : "arcs",
    bos: said.get("bos") === "1" && bundle.beginning !== null,
    off: (said.get("off") ?? "").split(",").filter((name) => hasTerm(bundle, name)),
    show: shownOf(said.get("show"), bundle),
    cell: cellOf(said.get("cell"), bundle.text_limit),
    cell2: cellOf(said.get("cell2"), bundle.text_limit),
    query: number("query", 0, model.n_positions - 1) ?? state.query,
    norm: said.get("ln") !== "0",
    all: said.get("all") === "1",
    sort: said.get("sort") ?? state.sort,
    descending: said.get("descending") === "1",
    x: said.get("x"),
    y: said.get("y"),
  };
}

/** The address of a state, without defaults. */
export function written(state: State, bundle: Bundle): string {
  const usual = valuesOf(defaults(bundle));
  const values = valuesOf(state);
  const said = new URLSearchParams();
  for (const key of KEYS[state.view]) {
    const always = key === "head" || key === "token";
    const value = values[key];
    if (value !== null && (always ? key in values : value !== usual[key])) said.set(key, value);
  }
  const search = said.toString().replaceAll("%2C", ",");
  return `#/${state.view}${search ? `?${search}` : ""}`;
}

function valuesOf(state: State): Record<string, string | null> {
  const several = ["token", "text"].includes(state.view) && state.heads.length > 1;
  return {
    head: several ? null : String(state.heads[0]),
    heads: several ? state.heads.join(",") : null,
    token: String(state.token),
    way: state.way,
    centred: flag(state.centred),
    offset: String(state.offset),
    split: state.split,
    top: String(state.top),
    text: state.text,
    ids: state.text === null ? state.ids.join(",") : null,
    other: state.other,
    draw: state.draw,
    bos: flag(state.bos),
    off: state.off.length ? state.off.join(",") : null,
    show: state.show,
    cell: state.cell && state.cell.join(","),
    cell2: state.cell2 && state.cell2.join(","),
    query: String(state.query),
    ln: state.norm ? "1" : "0",
    all: flag(state.all),
    sort: state.sort,
    descending: flag(state.descending),
    x: state.x,
    y: state.y,
  };
}

function flag(value: boolean): string {
  return value ? "1" : "0";
}

function wholeNumber(text: string | null): number | undefined {
  return text !== null && /^-?\d{1,9}$/.test(text) ? Number(text) : undefined;
}

function within(value: number | undefined, low: number, high: number): number | undefined {
  return value !== undefined && Number.isInteger(value) && value >= low && value <= high ? value : undefined;
}

function headsOf(said: URLSearchParams, count: number): number[] | null {
  const listed = (said.get("heads") ?? said.get("head") ?? "").split(",");
  const heads = listed.map((each) => within(wholeNumber(each), 0, count - 1)).filter((head) => head !== undefined);
  return heads.length ? [...new Set(heads)] : null;
}

function textOf(said: URLSearchParams, bundle: Bundle, usual: State): { text: string | null; ids: number[] } {
  const text = said.get("text");
  if (text !== null && bundle.has_tokens) return { text, ids: usual.ids };
  const ids = said.get("ids");
  return ids === null ? { text: usual.text, ids: usual.ids } : { text: null, ids: idsOf(ids) };
}

/** The integers in the input. */
export function idsOf(typed: string): number[] {
  return (typed.match(/\d+/g) ?? []).map(Number);
}

function hasTerm(bundle: Bundle, name: string): boolean {
  return bundle.splits.some((split) => split.terms.some((term) => term.name === name));
}

function shownOf(said: string | null, bundle: Bundle): string {
  if (said === "change" || said === "score") return said;
  return said && hasTerm(bundle, said) ? said : "attention";
}

function cellOf(said: string | null, limit: number): [number, number] | null {
  const places = (said ?? "").split(",").map((each) => within(wholeNumber(each), 0, limit - 1));
  return places.length === 2 && places[0] !== undefined && places[1] !== undefined ? [places[0], places[1]] : null;
}
