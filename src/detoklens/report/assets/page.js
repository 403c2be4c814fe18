"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  // Data is JSON of plain ASCII: HTML itself would lose NUL and turn CR into LF.
  const dataOf = (id) => JSON.parse(byId(id).content.textContent);
  const make = (tag, text, name) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (name) element.className = name;
    return element;
  };

  // Light and dark: the system's choice until the button says otherwise.
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

  // Sortable tables: each heading becomes a button; a second press turns the order round; empty cells stay last.
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

  // Downloads come out of the page itself, so that it can be sent alone.
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

  // The search: partners are token ids, packed [token, head, rank]; tokens are only ever set as text.
  const data = dataOf("partner-data");
  const field = byId("token");
  if (data && field) startSearch(data, field);

  function startSearch(index, input) {
    const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const ids = new Uint32Array(bytes(index.partners).buffer);
    const seen = index.seen ? bytes(index.seen) : null;
    const isSeen = (place) => seen !== null && ((seen[place >> 3] >> (7 - (place & 7))) & 1) === 1;
    const lowered = index.searched.map((id) => index.tokens[id].toLowerCase());

    const matching = (text) => {
      const asked = text.replaceAll(" ", "␣").toLowerCase();
      const scored = [];
      lowered.forEach((token, row) => {
        const at = token.indexOf(asked);
        if (at < 0) return;
        const exact = index.tokens[index.searched[row]] === text.replaceAll(" ", "␣");
        scored.push([exact ? -1 : token.length - asked.length + (at ? 1 : 0), row]);
      });
      return scored.sort((a, b) => a[0] - b[0] || a[1] - b[1]).map((pair) => pair[1]);
    };

    const token = (text) => {
      const element = make("bdi", text, "token");
      return element;
    };

    const partnerTable = (row) => {
      const table = make("table");
      const caption = make("caption", "Strongest partners (keys) of ");
      caption.append(token(index.tokens[index.searched[row]]), seen ? "; shaded: the pair occurs in the corpus" : "");
      const head = make("tr");
      head.append(make("th", "rank"));
      for (let h = 0; h < index.n_heads; h++) head.append(make("th", "L0H" + h));
      const body = make("tbody");
      for (let rank = 0; rank < index.top; rank++) {
        const line = make("tr");
        line.append(make("td", String(rank + 1)));
        for (let h = 0; h < index.n_heads; h++) {
          const place = (row * index.n_heads + h) * index.top + rank;
          const cell = make("td", undefined, isSeen(place) ? "seen" : undefined);
          cell.append(token(index.tokens[ids[place]]));
          line.append(cell);
        }
        body.append(line);
      }
      const thead = make("thead");
      thead.append(head);
      head.querySelectorAll("th").forEach((th) => th.setAttribute("scope", "col"));
      table.append(caption, thead, body);
      const region = make("div", undefined, "scroll");
      region.append(table);
      return region;
    };

    const choose = (row) => {
      for (const button of byId("matches").querySelectorAll("button"))
        button.setAttribute("aria-pressed", String(button.dataset.row === String(row)));
      byId("found").replaceChildren(partnerTable(row));
    };

    const search = () => {
      const rows = input.value ? matching(input.value) : [];
      byId("search-count").textContent = !input.value ? "" : rows.length === 1 ? "1 token matches" : rows.length + " tokens match";
      byId("matches").replaceChildren(
        ...rows.slice(0, 24).map((row) => {
          const button = make("button");
          button.type = "button";
          button.dataset.row = String(row);
          button.append(token(index.tokens[index.searched[row]]));
          button.addEventListener("click", () => choose(row));
          const item = make("li");
          item.append(button);
          return item;
        }),
      );
      if (rows.length) choose(rows[0]);
      else byId("found").replaceChildren();
    };
    input.addEventListener("input", search);
  }

  // On paper everything is open.
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
})();
