// What all pages do: the colours, copying commands, sorting and filtering tables.
"use strict";

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("theme", root.dataset.theme); } catch { /* not kept then */ }
  document.dispatchEvent(new Event("theme"));
});

// Charts are drawn in the colours of the moment, and paper is white.
let shown = null;
window.addEventListener("beforeprint", () => {
  shown = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
  document.dispatchEvent(new Event("theme"));
});
window.addEventListener("afterprint", () => {
  document.documentElement.dataset.theme = shown;
  document.dispatchEvent(new Event("theme"));
});

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // pages opened from a file may not use the clipboard's own interface
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

for (const button of document.querySelectorAll(".copy")) {
  button.addEventListener("click", async () => {
    await copyText(button.parentElement.querySelector("code").textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}

const tables = {};
for (const element of document.querySelectorAll("table.data")) {
  tables[element.id] = new DataTable(element, {
    paging: false,
    order: [],
    autoWidth: false,
    language: { search: "Search", info: "_TOTAL_ rows", infoFiltered: "of _MAX_", infoEmpty: "no row", zeroRecords: "No row fits the filters." },
    layout: { topStart: "search", topEnd: "info", bottomStart: null, bottomEnd: null },
  });
}

// A filter shows the rows that have exactly its word in its column.
function filterColumn(id, column, word) {
  const escaped = word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  tables[id].column(column).search(word ? `^${escaped}$` : "", { regex: true, smart: false }).draw();
}

for (const group of document.querySelectorAll(".filters[data-table]")) {
  for (const select of group.querySelectorAll("select")) {
    const apply = () => filterColumn(group.dataset.table, Number(select.dataset.column), select.value);
    select.addEventListener("change", apply);
    if (select.value) apply(); // kept by the browser when a reader comes back
  }
}

for (const tile of document.querySelectorAll("button.tile")) {
  tile.addEventListener("click", () => {
    const select = document.querySelector(`.filters select[data-column="${tile.dataset.column}"]`);
    select.value = select.value === tile.dataset.value ? "" : tile.dataset.value;
    select.dispatchEvent(new Event("change"));
  });
}
for (const select of document.querySelectorAll(".filters select")) {
  select.addEventListener("change", () => {
    for (const tile of document.querySelectorAll(`button.tile[data-column="${select.dataset.column}"]`)) {
      tile.setAttribute("aria-pressed", String(tile.dataset.value === select.value));
    }
  });
}

// A link to folded commands opens them.
function unfold() {
  const target = document.getElementById(location.hash.slice(1));
  if (target?.matches("details")) target.open = true;
}
window.addEventListener("hashchange", unfold);
unfold();
