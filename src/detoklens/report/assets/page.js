"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  // Data is ASCII JSON: HTML would drop NUL and turn CR into LF.
  const dataOf = (id) => JSON.parse(byId(id).content.textContent);
  const make = (tag, text, name) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (name) element.className = name;
    return element;
  };

  // Light or dark: the system's choice until the button is pressed.
  const scheme = byId("scheme");
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.scheme || (systemDark.matches ? "dark" : "light")) === "dark";
  const showScheme = () => {
    scheme.setAttribute("aria-pressed", String(isDark()));
  };
  scheme.hidden = false;
  scheme.addEventListener("click", () => {
    document.documentElement.dataset.scheme = isDark() ? "light" : "dark";
    showScheme();
  });
  systemDark.addEventListener("change", showScheme);
  showScheme();

  // Sortable tables: each heading becomes a button, a second press reverses the order, empty cells stay last.
  const cellValue = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.value !== undefined ? Number(cell.dataset.value) : cell.textContent === "–" ? null : cell.textContent;
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  const sortBy = (table, column, direction) => {
    const rows = [...table.tBodies[0].rows];
    const sign = direction === "ascending" ? 1 : -1;
    rows.sort((first, second) => {
      const a = cellValue(first, column), b = cellValue(second, column);
      if (a === null || b === null) return (a === null) - (b === null);
      return sign * compare(a, b);
    });
    table.tBodies[0].append(...rows);
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      const button = make("button", heading.textContent);
      button.type = "button";
      heading.replaceChildren(button);
      button.addEventListener("click", () => {
        const numeric = [...table.tBodies[0].rows].some((row) => row.cells[column].dataset.value !== undefined);
        const current = heading.getAttribute("aria-sort");
        const direction = current ? (current === "ascending" ? "descending" : "ascending") : numeric ? "descending" : "ascending";
        headings.forEach((other) => other.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", direction);
        sortBy(table, column, direction);
      });
    });
  }

  // Downloads come from the page itself, so it can be shared as one file.
  const download = (text, type, name) => {
    const address = URL.createObjectURL(new Blob([text], { type }));
    const link = make("a");
    link.href = address;
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  };
  for (const link of document.querySelectorAll("a[data-figure]")) {
    link.addEventListener("click", (event) => {
      const drawing = byId(link.dataset.figure).querySelector("svg").cloneNode(true);
      drawing.setAttribute("color", "#1a1b1c");
      event.preventDefault();
      download(new XMLSerializer().serializeToString(drawing), "image/svg+xml", link.download);
    });
  }
  for (const link of document.querySelectorAll("a[data-csv]")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      download(dataOf(link.dataset.csv), "text/csv", link.download);
    });
  }

  // Search: partners are token ids packed as [token, head, rank]; token text is only ever set as textContent.
  const data = dataOf("partner-data");
  const field = byId("token");
  if (data && field) startSearch(data, field);

  function startSearch(index, input) {
    const SHOWN = 24;
    const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const unpacked = (view) => ({
      ids: new (index.id_bytes === 2 ? Uint16Array : Uint32Array)(bytes(view.partners).buffer),
      seen: view.seen ? bytes(view.seen) : null,
    });
    const views = {};
    const view = () => {
      const name = byId("centred").checked ? "centred" : "plain";
      return (views[name] ??= unpacked(index[name]));
    };
    const isSeen = (seen, place) => seen !== null && ((seen[place >> 3] >> (7 - (place & 7))) & 1) === 1;
    const textOf = (id) => (index.tokens ? index.tokens[id] : "id " + id);
    const rowOf = new Map(index.searched.map((id, row) => [id, row]));
    const lowered = index.searched.map((id) => textOf(id).toLowerCase());
    const idOf = new Map();
    if (index.tokens) index.tokens.forEach((text, id) => idOf.has(text) || idOf.set(text, id));

    const matching = (text) => {
      const asked = text.replaceAll(" ", index.tokens ? "␣" : " ").toLowerCase();
      const scored = [];
      lowered.forEach((token, row) => {
        const at = token.indexOf(asked);
        if (at < 0) return;
        const exact = textOf(index.searched[row]) === text.replaceAll(" ", "␣");
        scored.push([exact ? -1 : token.length - asked.length + (at ? 1 : 0), row]);
      });
      return scored.sort((a, b) => a[0] - b[0] || a[1] - b[1]).map((pair) => pair[1]);
    };

    // The fewest tokens that spell a text, preferring long ones; null if there are none.
    const spelled = (text) => {
      const best = new Array(text.length + 1).fill(null);
      best[text.length] = [];
      for (let from = text.length - 1; from >= 0; from--) {
        for (let to = text.length; to > from; to--) {
          const id = idOf.get((from ? index.mark : "") + text.slice(from, to));
          if (id !== undefined && best[to] && (!best[from] || best[to].length + 1 < best[from].length)) best[from] = [id, ...best[to]];
        }
      }
      return best[0];
    };
    const piecesOf = (asked) => {
      if (!asked || asked.length > 60 || !index.tokens) return [];
      const text = asked.replaceAll(" ", "␣");
      const ways = [text.startsWith("␣") ? text : "␣" + text, text, text.toLowerCase()];
      const found = ways.map(spelled).filter((ids) => ids !== null);
      if (found.some((ids) => ids.length === 1)) return [];
      return found.sort((a, b) => a.length - b.length)[0] || [];
    };

    const token = (text) => make("bdi", text, "token");
    const joined = (key, query) => {
      const text = textOf(query);
      if (!index.mark) return textOf(key) + text;
      return text.startsWith(index.mark) ? textOf(key) + text.slice(index.mark.length) : null;
    };

    // The rank of the preceding piece among the partners of the chosen piece.
    const whereBefore = (row, before) => {
      const { ids } = view();
      const places = [];
      for (let h = 0; h < index.n_heads; h++) {
        const start = (row * index.n_heads + h) * index.top;
        const rank = ids.subarray(start, start + index.top).indexOf(before);
        if (rank >= 0) places.push("rank " + (rank + 1) + " in L0H" + h);
      }
      const said = make("p");
      const where = places.length ? places.join(", ") : "not in the top " + index.top + " of any head";
      said.append("Preceding piece ", token(textOf(before)), ": " + where + ".");
      return said;
    };

    // One row per head, its partners in a line that wraps: any number of heads fits any screen.
    const partnerTable = (row) => {
      const { ids, seen } = view();
      const query = index.searched[row];
      const table = make("table");
      const caption = make("caption", "Strongest partners (keys) of ");
      caption.append(token(textOf(query)), seen ? "; shaded: pair occurs in the corpus" : "");
      if (index.tokens) caption.append("; underlined: the joined pair is itself a token");
      const head = make("tr");
      head.append(make("th", "head"), make("th", "keys, best first"));
      const body = make("tbody");
      for (let h = 0; h < index.n_heads; h++) {
        const partners = make("ol");
        for (let rank = 0; rank < index.top; rank++) {
          const place = (row * index.n_heads + h) * index.top + rank;
          const item = make("li", undefined, isSeen(seen, place) ? "seen" : undefined);
          const partner = token(textOf(ids[place]));
          if (index.tokens && idOf.has(joined(ids[place], query))) partner.classList.add("whole");
          item.append(partner);
          partners.append(item);
        }
        const name = make("th", "L0H" + h), cell = make("td"), line = make("tr");
        name.setAttribute("scope", "row");
        cell.append(partners);
        line.append(name, cell);
        body.append(line);
      }
      const thead = make("thead");
      thead.append(head);
      head.querySelectorAll("th").forEach((th) => th.setAttribute("scope", "col"));
      table.append(caption, thead, body);
      const region = make("div", undefined, "scroll");
      region.tabIndex = 0;
      region.setAttribute("role", "region");
      region.setAttribute("aria-label", "Strongest partners");
      region.append(table);
      return region;
    };

    let chosen = null;
    const choose = (row, before) => {
      chosen = row === undefined ? null : [row, before];
      for (const button of byId("search").querySelectorAll("button[data-row]"))
        button.setAttribute("aria-pressed", String(button.dataset.row === String(row)));
      if (chosen === null) byId("found").replaceChildren();
      else byId("found").replaceChildren(...(before === undefined ? [] : [whereBefore(row, before)]), partnerTable(row));
    };

    const tokenButton = (id, before) => {
      const button = make("button");
      const row = rowOf.get(id);
      button.type = "button";
      button.append(token(textOf(id)));
      if (row === undefined) button.disabled = true;
      else {
        button.dataset.row = String(row);
        button.addEventListener("click", () => choose(row, before));
      }
      return button;
    };

    const showPieces = (pieces) => {
      const line = byId("pieces");
      line.replaceChildren();
      if (!pieces.length) return;
      line.append("Pieces: ");
      pieces.forEach((id, place) => line.append(place ? " · " : "", tokenButton(id, place ? pieces[place - 1] : undefined)));
    };

    let rows = [], pieces = [], shown = 0;
    const showMore = () => {
      const next = rows.slice(shown, shown + SHOWN);
      shown += next.length;
      byId("matches").append(
        ...next.map((row) => {
          const item = make("li");
          item.append(tokenButton(index.searched[row]));
          return item;
        }),
      );
      const counted = rows.length ? shown + " of " + rows.length + " shown" : "No searchable token contains this.";
      byId("search-count").textContent = input.value && (rows.length || !pieces.length) ? counted : "";
      byId("more").hidden = shown >= rows.length;
    };

    const search = () => {
      rows = input.value ? matching(input.value) : [];
      shown = 0;
      pieces = piecesOf(input.value);
      byId("matches").replaceChildren();
      showPieces(pieces);
      showMore();
      const last = pieces.length ? rowOf.get(pieces[pieces.length - 1]) : undefined;
      if (rows.length) choose(rows[0]);
      else choose(last, last === undefined ? undefined : pieces[pieces.length - 2]);
    };
    input.addEventListener("input", search);
    byId("more").addEventListener("click", showMore);
    byId("centred").addEventListener("change", () => chosen && choose(...chosen));
    search();
  }

  // A link into a folded part of the appendix opens it.
  const openTarget = () => {
    const target = location.hash.length > 1 && byId(decodeURIComponent(location.hash.slice(1)));
    const folded = target && target.closest("details");
    if (folded) folded.open = true;
  };
  addEventListener("hashchange", openTarget);
  openTarget();

  // Open everything for printing.
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
})();
