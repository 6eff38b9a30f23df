"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const parts = new Map(); // number of a part of texts to its documents
  document.querySelectorAll("script.texts").forEach((script, i) => parts.set(i, script));
  const at = (id) => document.getElementById(id);
  const PAGE = 25;
  const state = { task: 0, page: 0, open: new Set(), by: null, down: false };

  // A letter that would act on its surroundings is shown, not obeyed: controls, and marks of the direction of writing.
  const ACTS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
  function text(parent, value) {
    const all = String(value);
    let from = 0;
    for (const found of all.matchAll(ACTS)) {
      parent.append(all.slice(from, found.index));
      const code = found[0].codePointAt(0);
      const mark = make(parent, "span", code < 32 ? String.fromCodePoint(0x2400 + code) : "U+" + code.toString(16).toUpperCase().padStart(4, "0"));
      mark.className = "control";
      from = found.index + found[0].length;
    }
    parent.append(all.slice(from));
    return parent;
  }
  function make(parent, tag, content, name) {
    const element = document.createElement(tag);
    if (content !== undefined && content !== null) element.textContent = content;
    if (name) element.className = name;
    parent.append(element);
    return element;
  }
  const mean = (values) => {
    const known = values.filter((v) => v !== null);
    return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
  };

  const tables = data.tables.map((table) => {
    const ends = [];
    let start = 0;
    for (const cell of table.cells) ends.push([start, (start += cell.runs.length)]);
    const rows = table.rows.map(([name, question, target, scores, answers, flags, part, place], order) => {
      const means = ends.map(([a, b]) => mean(scores.slice(a, b)));
      const known = means.filter((m) => m !== null);
      const single = scores.filter((s) => s !== null);
      const range = (values) => (values.length ? Math.max(...values) - Math.min(...values) : 0);
      const apart = ends.map(([a, b]) => range(scores.slice(a, b).filter((s) => s !== null)));
      return {
        name, question, target, scores, answers, flags, part, place, order, means,
        mean: mean(scores),
        cells: range(known),
        runs: Math.max(0, ...apart),
        wrong: single.length > 0 && single.every((s) => s === 0),
        right: single.length > 0 && single.every((s) => s === 1),
        words: [name, question, target, answers, flags.join(" ")].join("\n").toLowerCase(),
      };
    });
    return { ...table, ends, rows };
  });

  const FILTERS = {
    all: () => true,
    flips: (row) => row.cells > 0,
    runs: (row) => row.runs > 0,
    wrong: (row) => row.wrong,
    right: (row) => row.right,
    flagged: (row) => row.flags.length > 0,
  };
  const value = (v) => (v === null ? -Infinity : v);
  const ORDERS = {
    flips: (a, b) => b.cells - a.cells || b.runs - a.runs || a.order - b.order,
    order: (a, b) => a.order - b.order,
    low: (a, b) => value(a.mean) - value(b.mean) || a.order - b.order,
    high: (a, b) => value(b.mean) - value(a.mean) || a.order - b.order,
  };

  function found() {
    const query = [...at("search").value.toLowerCase().matchAll(/"([^"]+)"|(\S+)/g)].map((m) => m[1] ?? m[2]);
    const keep = FILTERS[at("filter").value];
    const rows = tables[state.task].rows.filter((row) => keep(row) && query.every((word) => row.words.includes(word)));
    if (state.by === null) return rows.sort(ORDERS[at("sort").value]);
    const key = state.by === "name" ? (row) => row.order : (row) => value(row.means[state.by]);
    const sign = state.down ? -1 : 1;
    return rows.sort((a, b) => sign * (key(a) - key(b)) || a.order - b.order);
  }

  function head() {
    const table = tables[state.task];
    const line = document.createElement("tr");
    const column = (label, by) => {
      const th = make(line, "th");
      th.scope = "col";
      if (by === undefined) return void text(th, label);
      const button = text(make(th, "button", null, "by"), label);
      button.type = "button";
      if (state.by === by) {
        th.setAttribute("aria-sort", state.down ? "descending" : "ascending");
        button.append(state.down ? " ↓" : " ↑");
      }
      button.addEventListener("click", () => {
        state.down = state.by === by ? !state.down : by !== "name";
        state.by = by;
        state.page = 0;
        at("sort").selectedIndex = -1;
        show();
        document.querySelectorAll("#table thead button")[[...line.querySelectorAll("button")].indexOf(button)]?.focus();
      });
    };
    column("document", "name");
    column("question");
    column("target");
    table.cells.forEach((cell, i) => column(cell.name, i));
    column("flags");
    at("table").tHead.replaceChildren(line);
    return line.children.length;
  }

  function marks(parent, scores) {
    for (const score of scores) {
      if (score === 1) make(parent, "span", "✓", "right").setAttribute("aria-label", "right");
      else if (score === 0) make(parent, "span", "✗", "wrong").setAttribute("aria-label", "wrong");
      else make(parent, "span", score === null ? "–" : score.toFixed(2) + " ");
    }
  }

  function show() {
    const table = tables[state.task];
    const width = head();
    const rows = found();
    const pages = Math.max(1, Math.ceil(rows.length / PAGE));
    state.page = Math.min(Math.max(0, state.page), pages - 1);
    const body = document.createElement("tbody");
    for (const row of rows.slice(state.page * PAGE, (state.page + 1) * PAGE)) {
      const line = make(body, "tr");
      const open = make(make(line, "td"), "button", null, "open");
      text(open, row.name);
      open.type = "button";
      open.setAttribute("aria-expanded", String(state.open.has(row)));
      open.addEventListener("click", () => {
        if (!state.open.delete(row)) {
          state.open.add(row);
          line.after(detail(table, row, width));
        } else line.nextSibling.remove();
        open.setAttribute("aria-expanded", String(state.open.has(row)));
      });
      text(make(line, "td", null, "question"), row.question).dir = "auto";
      text(label(make(line, "td"), "target"), row.target).dir = "auto";
      table.cells.forEach((cell, i) => marks(label(make(line, "td", null, "marks"), cell.name), row.scores.slice(...table.ends[i])));
      const flags = make(line, "td");
      row.flags.forEach((flag) => text(make(flags, "span", null, "flag"), flag));
      if (state.open.has(row)) body.append(detail(table, row, width));
    }
    if (!rows.length) make(make(body, "tr"), "td", "No document matches.").colSpan = width;
    at("table").tBodies[0].replaceWith(body);
    at("count").textContent = `${rows.length} of ${table.rows.length} documents; ${table.metric}, a mark a run` + (table.length < 100 ? `; searched are the first ${table.length} characters of each text` : "");
    at("page").textContent = `Page ${state.page + 1} of ${pages}`;
    at("previous").disabled = state.page === 0;
    at("next").disabled = state.page >= pages - 1;
  }
  function label(element, name) {
    element.dataset.label = name;
    return element;
  }

  function detail(table, row, width) {
    const line = document.createElement("tr");
    line.className = "detail";
    const cell = make(line, "td");
    cell.colSpan = width;
    const note = make(cell, "p", "Loading …");
    texts(row.part).then(
      (all) => {
        note.remove();
        fill(cell, table, row, all[row.place]);
      },
      () => {
        note.textContent = `The texts of this document are in ${data.folder}/${row.part}.js beside the report, which cannot be read from here. Open the report from its folder.`;
      },
    );
    return line;
  }

  function fill(cell, table, row, texts) {
    const names = table.cells.flatMap((c) => c.runs.map((run) => `${c.name} · seed ${run.seed}`));
    texts.prompts.forEach(([prompt, runs], n) => {
      const box = make(cell, "details");
      text(make(box, "summary"), runs.length === names.length ? "Prompt, the same in every run" : "Prompt of " + who(table, runs));
      const shown = text(make(box, "pre"), prompt);
      shown.dir = "auto";
      box.addEventListener("toggle", () => (shown.scrollTop = shown.scrollHeight)); // the question is its end
      box.open = n === 0;
    });
    make(cell, "h4", "Target");
    text(make(cell, "pre"), texts.target).dir = "auto";
    const grid = make(cell, "div", null, "answers");
    texts.answers.forEach((answers, i) => {
      const run = make(grid, "div");
      const title = text(make(run, "h4"), names[i] + " ");
      marks(title, [row.scores[i]]);
      if (answers === null) return void make(run, "p", "not answered in this run");
      for (const flag of texts.flags[i]) text(make(run, "span", null, "flag"), flag);
      answers.forEach((answer, n) => {
        const thought = texts.thinking[i][n];
        if (thought) {
          const box = make(run, "details", null, "thinking");
          text(make(box, "summary"), "Thinking, not scored");
          text(make(box, "pre"), thought).dir = "auto";
        }
        const shown = typeof answer === "number" ? `choice ${n + 1}: log-likelihood ${answer}` : answer === null ? "–" : answer;
        const reading = texts.readings[i][n];
        marked(make(run, "pre"), shown, reading).dir = "auto";
        if (reading) text(make(run, "small"), `read as ${reading[0]}` + (reading[3] ? `; doubtful: ${reading[3]}` : ""));
        else if (texts.readings[i].length) text(make(run, "small"), "nothing was read from it");
        const outcome = texts.outcomes[i][n];
        if (outcome) text(make(run, "small"), outcome);
      });
    });
  }

  // The words that were read stand out; their place is counted in letters, not in UTF-16 units.
  function marked(element, shown, reading) {
    if (!reading || reading[1] < 0) return text(element, shown);
    const letters = Array.from(shown);
    text(element, letters.slice(0, reading[1]).join(""));
    text(make(element, "mark"), letters.slice(reading[1], reading[2]).join(""));
    text(element, letters.slice(reading[2]).join(""));
    return element;
  }

  // Whole cells by their name, single runs by their seed.
  function who(table, runs) {
    const had = new Set(runs);
    return table.cells
      .flatMap((cell, i) => {
        const own = cell.runs.map((run, n) => [table.ends[i][0] + n, run.seed]).filter(([at]) => had.has(at));
        if (own.length === cell.runs.length) return [cell.name];
        return own.map(([, seed]) => `${cell.name} · seed ${seed}`);
      })
      .join("; ");
  }

  const waiting = new Map();
  function texts(part) {
    const known = parts.get(part);
    if (known instanceof Element) parts.set(part, JSON.parse(known.textContent));
    if (parts.has(part)) return Promise.resolve(parts.get(part));
    if (!waiting.has(part)) {
      waiting.set(
        part,
        new Promise((done, failed) => {
          const script = document.createElement("script");
          script.src = `${data.folder}/${part}.js`;
          script.onload = () => (parts.has(part) ? done(parts.get(part)) : failed());
          script.onerror = () => (waiting.delete(part), failed());
          document.head.append(script);
        }),
      );
    }
    return waiting.get(part);
  }
  window.evalsweepTexts = (part, all) => parts.set(part, all);

  // Dark where the reader's system is, until the button says otherwise.
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  function theme(name) {
    document.documentElement.dataset.theme = name;
    at("theme").textContent = name === "dark" ? "Light" : "Dark";
    at("theme").setAttribute("aria-label", `Switch to the ${name === "dark" ? "light" : "dark"} theme`);
  }
  theme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => theme(dark.matches ? "dark" : "light"));
  at("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));

  tables.forEach((table, i) => text(make(at("task"), "option"), table.task).setAttribute("value", i));
  const again = () => {
    state.page = 0;
    show();
  };
  at("task").addEventListener("change", () => {
    state.task = Number(at("task").value);
    state.by = null;
    at("sort").selectedIndex = 0;
    state.open.clear();
    again();
  });
  at("search").addEventListener("input", again);
  at("filter").addEventListener("change", again);
  at("sort").addEventListener("change", () => {
    state.by = null;
    again();
  });
  at("previous").addEventListener("click", () => (state.page--, show()));
  at("next").addEventListener("click", () => (state.page++, show()));
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") (event.preventDefault(), at("search").focus());
    if (event.key === "n" && !at("next").disabled) at("next").click();
    if (event.key === "p" && !at("previous").disabled) at("previous").click();
  });
  if (tables.length) show();
  else at("count").textContent = "No run left documents.";
})();
