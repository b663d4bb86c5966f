// Two encodings in every table that has both; and chosen cells of any tables side by side.
"use strict";
(() => {
  const data = window.compareData;
  const most = 6; // cells side by side
  const minus = (text) => text.replace(/-(?=\d)/g, "\u2212");

  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  function table(header, rows, caption) {
    const head = element("tr", {}, ...header.map((word, i) => element("th", { scope: "col", ...(i ? { class: "number" } : {}) }, word)));
    const body = rows.map((row) => element("tr", {}, ...row.map((cell, i) =>
      i ? element("td", { class: "number" }, cell) : element("th", { scope: "row" }, ...[cell].flat()))));
    return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
      element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)));
  }

  const badge = (word) => element("span", { class: `badge ${word.replace(" ", "-")}` }, word);

  // Two encodings.
  const first = document.getElementById("first");
  const second = document.getElementById("second");
  const pairs = document.getElementById("pairs");

  const opposite = { better: "worse", worse: "better" };

  function showPairs() {
    const rows = [];
    for (const one of data.tables) {
      for (const found of Object.values(one.pairs)) {
        const own = found.rows.indexOf(first.value), other = found.rows.indexOf(second.value);
        for (const [a, b, effect, low, high, p, seeds, verdict] of found.pairs) {
          const sign = a === own && b === other ? 1 : a === other && b === own ? -1 : 0;
          if (!sign) continue;
          const signed = (value) => (value > 0 ? "+" : "") + value.toFixed(one.digits);
          const ends = low === null ? null : [sign * low, sign * high].sort((x, y) => x - y);
          const word = sign > 0 ? verdict : opposite[verdict] ?? verdict;
          const better = one.higher ? "higher" : "lower";
          rows.push([
            [element("a", { href: one.page }, one.name), element("small", {}, `${found.name}; ${one.metric}, ${better} is better`)],
            minus(signed(sign * effect)), badge(word),
            ends ? minus(`${signed(ends[0])} to ${signed(ends[1])}`) : "-",
            p, seeds ? `${seeds} paired` : p === "-" ? "-" : "pooled deviation",
          ]);
        }
      }
    }
    const name = (select) => select.value;
    pairs.replaceChildren(rows.length
      ? table(["Table", `${name(first)} minus ${name(second)}`, `${name(first)} is`, "95 % interval", "p", "Seeds"], rows, "Differences")
      : element("p", {}, first.value === second.value ? "Choose two different encodings." : "No table has both."));
  }
  for (const select of [first, second]) select.addEventListener("change", showPairs);

  // Chosen cells.
  const tableSelect = document.getElementById("table");
  const cellSelect = document.getElementById("cell");
  const list = document.getElementById("chosen");
  const out = document.getElementById("side-by-side");
  const chart = document.getElementById("curves");
  let chosen = [];

  data.tables.forEach((one, i) => tableSelect.append(element("option", { value: i }, one.name)));
  function fillCells() {
    cellSelect.replaceChildren(...data.tables[tableSelect.value].cells.map((cell, i) =>
      element("option", { value: i }, `${cell.label}, ${cell.attention}`)));
  }
  tableSelect.addEventListener("change", fillCells);

  function showChosen() {
    list.replaceChildren(...chosen.map((one, i) => {
      const remove = element("button", { type: "button", "aria-label": `Remove ${one.name}` }, "×");
      remove.addEventListener("click", () => { chosen.splice(i, 1); showChosen(); });
      return element("li", {}, element("a", { href: one.cell.page }, one.name), " ", remove);
    }));
    document.getElementById("add").disabled = chosen.length >= most;
    out.replaceChildren();
    chart.hidden = true;
    if (!chosen.length) return;
    const names = chosen.map((one) => one.name);
    const metrics = [...new Set(chosen.flatMap((one) => one.cell.metrics.map(([label]) => label)))];
    const number = (one, label) => {
      const found = one.cell.metrics.find(([own]) => own === label);
      return found ? `${minus(found[2])} (${found[1].filter((v) => v !== "-").length})` : "-";
    };
    out.append(element("h3", {}, "Metrics: mean (number of seeds)"),
      table(["Metric", ...names], metrics.map((label) => [label, ...chosen.map((one) => number(one, label))]), "Metrics"));
    if (chosen.length === 2 && chosen[0].table === chosen[1].table) out.append(...seedBySeed());
    const keys = [...new Set(chosen.flatMap((one) => Object.keys(one.config)))].sort();
    const differing = keys.filter((key) => new Set(chosen.map((one) => one.config[key])).size > 1);
    out.append(element("h3", {}, "Configuration: what differs"), differing.length
      ? table(["Setting", ...names], differing.map((key) => [key, ...chosen.map((one) => one.config[key] ?? "not set")]), "Configuration")
      : element("p", {}, "Nothing."));
    // One line for each run: of its last training, and of validation where there was any.
    const series = chosen.flatMap((one) => Object.entries(one.cell.curves).flatMap(([seed, curves]) => {
      const names = Object.keys(curves);
      const first = names.filter((name) => name.endsWith("validation")).pop() ?? names.at(-1);
      return names.map((name) => ({
        type: "scatter", mode: "lines+markers", name: `${one.name}, seed ${seed}, ${name}`,
        visible: name === first || "legendonly",
        x: curves[name].map(([x]) => x), y: curves[name].map(([, y]) => y),
      }));
    }));
    chart.hidden = !series.length;
    if (series.length) {
      window.drawChart(chart, { data: series, layout: { xaxis: { title: { text: "updates" } }, yaxis: { title: { text: "loss" } } } });
    } else {
      out.append(element("p", {}, "These trainings keep no learning curve."));
    }
  }

  function seedBySeed() {
    const [a, b] = chosen;
    const label = a.table.metric;
    const values = (one) => {
      const found = one.cell.metrics.find(([own]) => own === label);
      return new Map(found ? one.cell.seeds.map((seed, i) => [seed, Number(found[1][i])]) : []);
    };
    const left = values(a), right = values(b);
    const common = [...left.keys()].filter((seed) => right.has(seed));
    if (!common.length) return [];
    const rows = common.map((seed) => [`seed ${seed}`, minus(String(left.get(seed))), minus(String(right.get(seed))),
      minus((left.get(seed) - right.get(seed)).toFixed(a.table.digits))]);
    return [element("h3", {}, `Seed by seed: ${label}`), table(["Seed", a.name, b.name, "difference"], rows, "Seed by seed")];
  }

  document.getElementById("add").addEventListener("click", () => {
    const own = data.tables[tableSelect.value];
    const cell = own.cells[cellSelect.value];
    const name = `${cell.label}, ${cell.attention} (${own.name})`;
    if (chosen.length < most && !chosen.some((one) => one.name === name)) {
      chosen.push({ name, cell, table: own, config: { ...own.config, ...cell.config } });
      showChosen();
    }
  });

  if (data.tables.length) {
    fillCells();
    showPairs();
    showChosen();
  }
})();
