/** Token search: a list of matches, and the pieces of a text of several tokens. */

import { useRef, useState } from "preact/hooks";
import type { Explorer } from "../explorer";
import { change, state } from "../state/store";
import { useAnswer, useExplorer } from "./hooks";
import { whole } from "./numbers";
import { TokenText } from "./TokenText";

const MOST = 60;

export function TokenSearch() {
  const explorer = useExplorer();
  const [typed, setTyped] = useState("");
  const [isOpen, setOpen] = useState(false);
  const [active, setActive] = useState(0);
  const input = useRef<HTMLInputElement>(null);
  const { ids, total } = explorer.vocabulary.search(typed, MOST);
  const pick = (id: number) => {
    setTyped("");
    setOpen(false);
    change({ token: id }, true);
    input.current?.focus();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape") return setOpen(false);
    if (event.key === "Enter" && isOpen && ids.length) return pick(ids[active]);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || !ids.length) return;
    event.preventDefault();
    setOpen(true);
    setActive(isOpen ? (active + step + ids.length) % ids.length : 0);
  };
  const isShown = isOpen && ids.length > 0;
  return (
    <div class="search">
      <label for="token-search">{explorer.vocabulary.hasTexts ? "Find a token" : "Token id"}</label>
      <input
        id="token-search"
        ref={input}
        type="text"
        role="combobox"
        autocomplete="off"
        autocapitalize="off"
        spellcheck={false}
        placeholder={
          explorer.vocabulary.hasTexts
            ? "token, word or #id"
            : `0 to ${explorer.bundle.model.vocab_size - 1}`
        }
        aria-expanded={isShown}
        aria-controls="token-matches"
        aria-autocomplete="list"
        aria-activedescendant={isShown ? `match-${ids[active]}` : undefined}
        aria-describedby="search-note"
        value={typed}
        onInput={(event) => {
          setTyped(event.currentTarget.value);
          setActive(0);
          setOpen(true);
        }}
        onFocus={() => setOpen(true)}
        onBlur={() => setTimeout(() => setOpen(false), 150)}
        onKeyDown={onKeyDown}
      />
      {typed && explorer.vocabulary.hasTexts && <Pieces typed={typed} pick={pick} />}
      <ul id="token-matches" role="listbox" aria-label="Matching tokens" hidden={!isShown}>
        {ids.map((id, place) => (
          <li
            key={id}
            id={`match-${id}`}
            role="option"
            aria-selected={place === active}
            ref={(element) => {
              if (element && place === active) element.scrollIntoView({ block: "nearest" });
            }}
            onMouseDown={(event) => {
              event.preventDefault();
              pick(id);
            }}
          >
            <TokenText id={id} /> <span class="id">#{id}</span>
          </li>
        ))}
      </ul>
      <p id="search-note" class="note" role="status">
        {explorer.bundle.reasons.vocabulary ?? note(typed, ids.length, total)}
      </p>
    </div>
  );
}

function note(typed: string, shown: number, total: number): string {
  if (!typed) return "␣ is a space; #7 is the token with id 7.";
  if (!total) return "No token contains this.";
  const found = `${whole(total)} token${total === 1 ? " contains" : "s contain"} this`;
  return shown < total ? `${found}; the first ${shown} are listed.` : `${found}.`;
}

/** The input as the tokenizer splits it, with and without a leading space. */
function Pieces({ typed, pick }: { typed: string; pick: (id: number) => void }) {
  const explorer = useExplorer();
  const text = typed.replaceAll("␣", " ");
  const { value: readings, problem } = useAnswer(() => readingsOf(explorer, text), [text]);
  if (problem) return <p class="note">{problem}</p>;
  return (
    <>
      {(readings ?? []).map((pieces) => (
        <p class="pieces" key={pieces.join(" ")}>
          <span class="note">{pieces.length} tokens:</span>{" "}
          {pieces.map((id, place) => (
            <button type="button" key={place} aria-pressed={id === state.value.token} onClick={() => pick(id)}>
              <TokenText id={id} />
            </button>
          ))}
        </p>
      ))}
    </>
  );
}

/** The distinct tokenizations with several tokens. */
async function readingsOf({ tokenizer }: Explorer, text: string): Promise<number[][]> {
  const variants = /^\s/.test(text) ? [text] : [text, ` ${text}`];
  const found = await Promise.all(variants.map((variant) => tokenizer.encode(variant)));
  const several = found.filter((pieces) => pieces.length > 1 && pieces.length <= MOST);
  return several.filter((pieces, place) => several.findIndex((other) => other.join() === pieces.join()) === place);
}
