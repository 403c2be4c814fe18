/** Controls of the text view: text, head, terms, and what the matrix shows. */

import type { SplitName, TermDescription } from "../../data/contract";
import { Choice, Switch } from "../../parts/Choice";
import { HeadPicker } from "../../parts/HeadPicker";
import { useExplorer } from "../../parts/hooks";
import { idsOf } from "../../state/address";
import { change, state } from "../../state/store";

export function TextControls({ count, split }: { count: number | null; split: SplitName }) {
  const { bundle, tokenizer } = useExplorer();
  const asked = state.value;
  const asIds = asked.text === null;
  const turnToIds = async (on: boolean) => {
    const ids = on && asked.text !== null ? await tokenizer.encode(asked.text).catch(() => asked.ids) : asked.ids;
    change(on ? { text: null, ids } : { text: bundle.sample.text ?? "" }, true);
  };
  return (
    <div class="controls">
      <div class="field wide">
        <label for="text-input">{asIds ? "Token ids" : "Text"}</label>
        <textarea
          id="text-input"
          rows={2}
          spellcheck={false}
          aria-describedby="text-note"
          value={asIds ? undefined : (asked.text ?? "")}
          {...(asIds ? { defaultValue: asked.ids.join(" ") } : {})}
          key={asIds ? "ids" : "text"}
          onInput={(event) => {
            const typed = event.currentTarget.value;
            change({ ...(asIds ? { ids: idsOf(typed) } : { text: typed }), cell: null, ...(asked.other === null ? { cell2: null } : {}) });
          }}
        />
        <p id="text-note" class="note" role="status">
          {count === null ? "" : `${count} token${count === 1 ? "" : "s"}; `}at most {bundle.text_limit}.
          {!bundle.has_tokens && " This model has no tokenizer: type ids, separated by spaces or commas."}
        </p>
      </div>
      <OtherText asIds={asIds} />
      <HeadPicker most={2} />
      <div class="switches">
        {bundle.beginning !== null && (
          <Switch
            label="prepend the BOS token"
            on={asked.bos}
            turn={(on) => change({ bos: on, cell: null, cell2: null }, true)}
          />
        )}
        {bundle.has_tokens && <Switch label="type ids" on={asIds} turn={(on) => void turnToIds(on)} />}
        {bundle.splits.length > 1 && (
          <Switch
            label="split off the vocabulary's mean"
            title={bundle.splits.find((each) => each.name === "vocabulary")?.meaning}
            on={split === "vocabulary"}
            turn={(on) => change({ split: on ? "vocabulary" : "biases", off: [] }, true)}
          />
        )}
      </div>
    </div>
  );
}

/** A second text to compare with. */
function OtherText({ asIds }: { asIds: boolean }) {
  const { other, text, ids } = state.value;
  if (other === null) {
    const same = asIds ? ids.join(" ") : (text ?? "");
    return (
      <button type="button" class="compare" onClick={() => change({ other: same, cell2: null }, true)}>
        Compare with another text
      </button>
    );
  }
  return (
    <div class="field wide">
      <label for="other-input">{asIds ? "Token ids to compare with" : "Text to compare with"}</label>
      <textarea
        id="other-input"
        rows={2}
        spellcheck={false}
        value={other}
        onInput={(event) => change({ other: event.currentTarget.value, cell2: null })}
      />
      <button type="button" class="compare" onClick={() => change({ other: null, cell2: null }, true)}>
        Stop comparing texts
      </button>
    </div>
  );
}

export function DrawChoice() {
  return (
    <Choice
      legend="Drawn as"
      name="draw"
      options={[
        { value: "arcs", label: "arcs" },
        { value: "matrix", label: "matrix" },
      ]}
      chosen={state.value.draw}
      choose={(draw) => change({ draw: draw as "arcs" | "matrix" })}
    />
  );
}

/** Terms with their meanings; a term that is switched off is left out of the softmax. */
export function TermSwitches({ terms }: { terms: TermDescription[] }) {
  const { off } = state.value;
  const turn = (name: string, on: boolean) =>
    change({ off: on ? off.filter((each) => each !== name) : [...off, name] });
  return (
    <fieldset class="terms">
      <legend>Terms (switch one off to see attention without it)</legend>
      <div class="row">
        {terms.map(({ name, symbol, meaning }) => (
          <label key={name} class="switch term" title={meaning}>
            <input
              type="checkbox"
              checked={!off.includes(name)}
              onChange={(event) => turn(name, event.currentTarget.checked)}
            />
            <span>
              <b>{symbol}</b> <span class="soft">{meaning}</span>
            </span>
          </label>
        ))}
      </div>
    </fieldset>
  );
}

export function ShowChoice({ terms, hasOff }: { terms: TermDescription[]; hasOff: boolean }) {
  const { show } = state.value;
  const isKnown = ["attention", "score", "change"].includes(show) || terms.some((term) => term.name === show);
  return (
    <label class="inline">
      Show{" "}
      <select value={isKnown ? show : "attention"} onChange={(event) => change({ show: event.currentTarget.value })}>
        <option value="attention">attention</option>
        {(hasOff || show === "change") && <option value="change">change of attention</option>}
        <option value="score">score</option>
        {terms.map((term) => (
          <option key={term.name} value={term.name}>
            {term.symbol}
          </option>
        ))}
      </select>
    </label>
  );
}
