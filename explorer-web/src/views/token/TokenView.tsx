/** Partners of a token: Tᵉᵉ with the whole vocabulary, as query or as key, head by head. */

import { useMemo, useState } from "preact/hooks";
import type { SplitName } from "../../data/contract";
import { fileName } from "../../exports/download";
import type { AffinityQuestion } from "../../explorer";
import { rankOf } from "../../math/ranking";
import { Choice, Switch } from "../../parts/Choice";
import { Downloads } from "../../parts/Downloads";
import { HeadPicker, headName } from "../../parts/HeadPicker";
import { TokenSearch } from "../../parts/TokenSearch";
import { TokenText } from "../../parts/TokenText";
import { useAnswer, useExplorer, useReady } from "../../parts/hooks";
import { whole } from "../../parts/numbers";
import { TOPS, type State } from "../../state/address";
import { change, state } from "../../state/store";
import { PartnerList } from "./PartnerList";
import { PartnersDrawing } from "./PartnersDrawing";
import { Strip } from "./Strip";
import { partnersOf, partnerTable, wholeTable, type Partners } from "./partners";

/** The default is what `detoklens partners` ranks by. */
export function tokenSplit(asked: State): SplitName {
  return asked.split ?? "biases";
}

export function TokenView() {
  const explorer = useExplorer();
  const asked = state.value;
  const split = tokenSplit(asked);
  const questions = asked.heads.map((head): AffinityQuestion => ({
    head,
    token: asked.token,
    way: asked.way,
    centred: asked.centred && split === "biases",
    offset: asked.offset,
    split,
  }));
  const answer = useAnswer(
    () => Promise.all(questions.map((each) => partnersOf(explorer, each, asked.top))),
    [questions, asked.top],
  );
  const counts = useAnswer(
    async () => ({ of: asked.token, row: (await explorer.counts?.row(asked.token, asked.way)) ?? null }),
    [asked.token, asked.way],
  );
  useReady(!answer.waiting && !counts.waiting);
  const found = answer.value ?? [];
  const row = counts.value?.of === found[0]?.question.token ? (counts.value?.row ?? null) : null;
  const lists = useMemo(
    () => found.map((each) => <HeadPartners key={each.question.head} found={each} counts={row} />),
    [answer.value, row],
  ); // memoized, so that waiting redraws nothing
  const all = found.map((each) => ({ found: each, counts: row }));
  return (
    <section aria-labelledby="view-title">
      <h2 id="view-title">Token partners: {asked.way === "looks" ? "keys of a query" : "queries of a key"}</h2>
      <p class="note">
        Tᵉᵉ is the part of the attention score that depends on the two tokens only. A query token attends more to keys with
        a larger Tᵉᵉ. In text, the key comes before the query.
      </p>
      <TokenControls />
      <TokenTitle />
      {answer.problem && <p class="problem">{answer.problem}</p>}
      {counts.problem && <p class="problem">{counts.problem}</p>}
      <div class={answer.waiting ? "waiting" : ""} aria-busy={answer.waiting}>
        {lists}
      </div>
      {explorer.bundle.left_out.length > 0 && (
        <p class="note">
          {whole(explorer.bundle.left_out.length)} of {whole(explorer.bundle.model.vocab_size)} tokens are not ranked:
          special ones, and those that training barely changed. <code>--all-tokens</code> ranks them too.
        </p>
      )}
      {explorer.bundle.reasons.counts && <p class="note">{explorer.bundle.reasons.counts}</p>}
      {explorer.bundle.reasons.offset && <p class="note">{explorer.bundle.reasons.offset}</p>}
      <Downloads
        name={fileName(explorer.bundle.model.name, "token", asked.token, ...asked.heads.map(headName))}
        title={`${explorer.bundle.model.name}: partners of ${explorer.vocabulary.shown(asked.token)}`}
        picture={() => found.map((each) => <PartnersDrawing key={each.question.head} found={each} counts={row} />)}
        tables={{ CSV: () => partnerTable(explorer, all), "CSV of all ranked tokens": () => wholeTable(explorer, all) }}
      />
    </section>
  );
}

function TokenControls() {
  const explorer = useExplorer();
  const { bundle } = explorer;
  const asked = state.value;
  const split = tokenSplit(asked);
  return (
    <div class="controls">
      <TokenSearch />
      <HeadPicker most={4} />
      <Choice
        legend="Token"
        name="way"
        options={[
          { value: "looks", label: "as query: its keys" },
          { value: "looked", label: "as key: its queries" },
        ]}
        chosen={asked.way}
        choose={(way) => change({ way }, true)}
      />
      <Choice
        legend="Ranked by"
        name="rank"
        options={[
          { value: "plain", label: "Tᵉᵉ" },
          ...(split === "biases"
            ? [{ value: "centred", label: "Tᵉᵉ centred", title: "minus each key's mean over all query tokens" }]
            : []),
        ]}
        chosen={asked.centred && split === "biases" ? "centred" : "plain"}
        choose={(value) => change({ centred: value === "centred" }, true)}
      />
      {bundle.rotary && <OffsetInput />}
      {bundle.splits.length > 1 && (
        <Switch
          label="without the vocabulary's mean"
          title={bundle.splits.find((each) => each.name === "vocabulary")?.meaning}
          on={split === "vocabulary"}
          turn={(on) => change({ split: on ? "vocabulary" : "biases" }, true)}
        />
      )}
      <Choice
        legend="Number of partners"
        name="top"
        options={TOPS.map((top) => ({ value: top, label: String(top) }))}
        chosen={asked.top}
        choose={(top) => change({ top }, true)}
      />
    </div>
  );
}

function OffsetInput() {
  const { model } = useExplorer().bundle;
  const first = model.is_causal ? 0 : 1 - model.n_positions;
  return (
    <label class="field" title="how many positions the key is before the query">
      <span>Offset i − j</span>
      <input
        type="number"
        min={first}
        max={model.n_positions - 1}
        value={state.value.offset}
        onInput={(event) => {
          const offset = event.currentTarget.valueAsNumber;
          if (Number.isInteger(offset) && offset >= first && offset < model.n_positions) change({ offset });
        }}
      />
    </label>
  );
}

function TokenTitle() {
  const explorer = useExplorer();
  const { token } = state.value;
  const hasCounts = explorer.arrays.has("token_counts");
  const counted = useAnswer(
    async () => (hasCounts ? (await explorer.arrays.get("token_counts"))[token] : null),
    [token],
  );
  return (
    <p class="chosen" aria-live="polite">
      <strong>
        <TokenText id={token} />
      </strong>{" "}
      <span class="soft">
        token #{token}
        {counted.value !== null && ` · ${whole(counted.value)} times in the corpus`}
      </span>
    </p>
  );
}

function HeadPartners({ found, counts }: { found: Partners; counts: Map<number, number> | null }) {
  const [pointed, point] = useState<number | null>(null);
  const { question } = found;
  const { bundle } = useExplorer();
  const name = question.centred ? "Tᵉᵉ centred" : "Tᵉᵉ";
  const isRanked = !bundle.left_out.includes(question.token);
  const offset = bundle.rotary ? `, offset ${question.offset}` : "";
  return (
    <section class="head" aria-label={headName(question.head)}>
      <h3>
        {headName(question.head)}{" "}
        <span class="soft">
          {name + offset} · the token itself:{" "}
          {isRanked ? `rank ${whole(rankOf(found.ranked, question.token, found.candidates))} of` : "not among the ranked"}{" "}
          {whole(found.candidates.length)}
        </span>
      </h3>
      <Strip found={found} name={name} pointed={pointed} />
      <div class="lists">
        <PartnerList
          title={`Largest ${name}`}
          kind="positive"
          found={found}
          ids={found.top}
          counts={counts}
          point={point}
        />
        <PartnerList
          title={`Smallest ${name}`}
          kind="negative"
          found={found}
          ids={found.bottom}
          counts={counts}
          point={point}
        />
      </div>
    </section>
  );
}
