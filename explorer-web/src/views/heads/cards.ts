/** Sorting and formatting of head cards. */

import type { Cell, HeadCards, HeadColumn } from "../../data/contract";
import { brief } from "../../parts/numbers";

export function numeric(cards: HeadCards): HeadColumn[] {
  return cards.columns.filter(({ name }) => cards.rows.some((row) => typeof row[name] === "number"));
}

/** Format a value; unknown is a dash. */
export function shownCell(value: Cell | undefined): string {
  if (value === null || value === undefined) return "–";
  return typeof value === "number" ? brief(value) : String(value);
}

/** Sort by a column; unknown values last, ties by head. */
export function sorted(rows: Record<string, Cell>[], column: string, descending: boolean): Record<string, Cell>[] {
  const sign = descending ? -1 : 1;
  return [...rows].sort((one, other) => {
    const [a, b] = [one[column] ?? null, other[column] ?? null];
    if (a === null || b === null) return Number(a === null) - Number(b === null) || byHead(one, other);
    return sign * compared(a, b) || byHead(one, other);
  });
}

function byHead(one: Record<string, Cell>, other: Record<string, Cell>): number {
  return Number(one.head) - Number(other.head);
}

function compared(one: Cell, other: Cell): number {
  if (typeof one === "string" || typeof other === "string") return String(one).localeCompare(String(other));
  return Number(one) - Number(other);
}
