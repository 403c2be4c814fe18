/** Token texts: lookup, display, joining and search. */

import type { TokensFile } from "./contract";

export const SEAM = "·";
const LONGEST = 40; // characters of a token on the page
const UNSEEN = /^[\p{C}\p{Z}]$/u;
const NAMED: Record<string, string> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/** A token for display: spaces as ␣, invisible and bidirectional characters escaped, long tokens truncated. */
export function shown(text: string): string {
  const characters = [...text];
  const visible = characters.slice(0, LONGEST).map(visibleCharacter).join("");
  return characters.length <= LONGEST ? visible : `${visible}…`;
}

function visibleCharacter(character: string): string {
  if (character === " ") return "␣";
  if (!UNSEEN.test(character)) return character;
  if (NAMED[character]) return NAMED[character];
  const code = character.codePointAt(0) as number;
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
  if (code < 0x10000) return `\\u${code.toString(16).padStart(4, "0")}`;
  return `\\U${code.toString(16).padStart(8, "0")}`;
}

export class Vocabulary {
  private idOfText: Map<string, number> | null = null;
  private lowered: string[] | null = null;

  constructor(
    private readonly size: number,
    private readonly file: TokensFile | null,
  ) {}

  get hasTexts(): boolean {
    return this.file !== null;
  }

  text(id: number): string {
    return this.file?.texts[id] ?? `<id ${id}>`;
  }

  shown(id: number): string {
    const text = this.file?.texts[id];
    return text === undefined ? this.text(id) : shown(text);
  }

  /** The texts of two tokens joined as bytes, without the mark of a continuation token. */
  joined(key: number, query: number): string {
    if (!this.file) return `${this.text(key)} ${this.text(query)}`;
    const { bytes } = this.file;
    if (!bytes[key] && !bytes[query]) return this.text(key) + this.unmarked(query);
    return readable([...this.bytesOf(key), ...this.bytesOf(query)]);
  }

  joinedShown(key: number, query: number): string {
    return `${this.shown(key)}${SEAM}${this.file ? shown(this.unmarked(query)) : this.shown(query)}`;
  }

  /** The smallest id with exactly this text. */
  idOf(text: string): number | null {
    if (!this.file) return null;
    if (!this.idOfText) {
      this.idOfText = new Map();
      for (let id = this.file.texts.length - 1; id >= 0; id--) this.idOfText.set(this.file.texts[id], id);
    }
    return this.idOfText.get(text) ?? null;
  }

  isToken(key: number, query: number): number | null {
    return this.file ? this.idOf(this.joined(key, query)) : null;
  }

  /** The tokens that equal, start with or contain the input, in this order; ␣ is a space, #7 is id 7. */
  search(typed: string, most: number): { ids: number[]; total: number } {
    const byId = /^#?(\d+)$/.exec(typed.trim());
    const direct = byId && (typed.trim().startsWith("#") || !this.file) ? Number(byId[1]) : null;
    if (direct !== null) return direct < this.size ? { ids: [direct], total: 1 } : { ids: [], total: 0 };
    if (!this.file || !typed) return { ids: [], total: 0 };
    return this.searchTexts(typed.replaceAll("␣", " "), most);
  }

  private searchTexts(wanted: string, most: number): { ids: number[]; total: number } {
    const texts = this.file?.texts ?? [];
    this.lowered ??= texts.map((text) => text.toLowerCase());
    const low = wanted.toLowerCase();
    const bare = low.trimStart();
    const groups: number[][] = [[], [], [], [], []];
    for (let id = 0; id < texts.length; id++) {
      const text = this.lowered[id];
      if (!text.includes(low)) continue;
      groups[group(texts[id], text, wanted, low, bare)].push(id);
    }
    for (const found of groups.slice(2))
      found.sort((one, other) => texts[one].length - texts[other].length || one - other);
    const all = groups.flat();
    return { ids: all.slice(0, most), total: all.length };
  }

  /** The query's text without WordPiece's mark of continuation tokens. */
  private unmarked(id: number): string {
    const text = this.text(id);
    const mark = this.file?.continuing_prefix ?? "";
    return mark && text.startsWith(mark) ? text.slice(mark.length) : text;
  }

  private bytesOf(id: number): Uint8Array {
    const hex = this.file?.bytes[id];
    if (!hex) return new TextEncoder().encode(this.text(id));
    return Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));
  }
}

/** 0: equal; 1: equal up to case or a leading space; 2: prefix; 3: prefix after a space; 4: contained. */
function group(text: string, lowered: string, wanted: string, low: string, bare: string): number {
  if (text === wanted) return 0;
  if (lowered.trimStart() === bare) return 1;
  if (lowered.startsWith(low)) return 2;
  return lowered.trimStart().startsWith(bare) ? 3 : 4;
}

/** Bytes as text; invalid UTF-8 as \xNN. */
export function readable(bytes: number[]): string {
  let text = "";
  for (let place = 0; place < bytes.length;) {
    const length = characterLength(bytes, place);
    if (length === 0) text += `\\x${bytes[place++].toString(16).padStart(2, "0")}`;
    else {
      text += new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(bytes.slice(place, place + length)));
      place += length;
    }
  }
  return text;
}

/** Number of bytes of the character here; 0 if no complete character starts here. */
function characterLength(bytes: number[], place: number): number {
  const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  for (let length = 1; length <= 4 && place + length <= bytes.length; length++) {
    try {
      strict.decode(Uint8Array.from(bytes.slice(place, place + length)));
      return length;
    } catch {
      continue;
    }
  }
  return 0;
}
