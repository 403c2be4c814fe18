/** Export a view as a drawing, a table or a link. */

import { render, type ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { csvText, type CsvValue } from "../exports/csv";
import { download } from "../exports/download";
import { svgText } from "../exports/svg";
import type { Explorer } from "../explorer";
import { ExplorerContext, useExplorer } from "./hooks";

export interface Table {
  columns: string[];
  rows: CsvValue[][];
}

interface Props {
  name: string; // of the files
  title: string; // of the drawing
  picture: () => ComponentChildren; // <svg> elements, made on demand
  tables: Record<string, () => Table | Promise<Table>>; // by button label
}

export function Downloads({ name, title, picture, tables }: Props) {
  const explorer = useExplorer();
  return (
    <div class="downloads" role="group" aria-label="Export this view">
      <button type="button" onClick={() => download(`${name}.svg`, "image/svg+xml", drawn(explorer, title, picture()))}>
        SVG
      </button>
      {Object.entries(tables).map(([label, table]) => (
        <button type="button" key={label} onClick={() => void saveTable(`${name}.csv`, table)}>
          {label}
        </button>
      ))}
      <CopyLink />
    </div>
  );
}

async function saveTable(name: string, table: () => Table | Promise<Table>): Promise<void> {
  const { columns, rows } = await table();
  download(name, "text/csv", csvText(columns, rows));
}

/** Copy the address, which holds the whole state. */
function CopyLink() {
  const [said, setSaid] = useState("");
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      setSaid("Copied");
    } catch {
      setSaid("Copy the link from the address bar");
    }
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setSaid(""), 4000);
  };
  return (
    <>
      <button type="button" onClick={() => void copy()}>
        Copy link
      </button>
      <span role="status" class="note">
        {said}
      </span>
    </>
  );
}

/** Render a drawing off-screen for a moment, so that the style sheet applies, and return its text. */
function drawn(explorer: Explorer, title: string, picture: ComponentChildren): string {
  const holder = document.createElement("div");
  holder.className = "picture";
  document.body.append(holder);
  render(<ExplorerContext.Provider value={explorer}>{picture}</ExplorerContext.Provider>, holder);
  try {
    return svgText(title, [...holder.querySelectorAll("svg")]);
  } finally {
    render(null, holder);
    holder.remove();
  }
}
