"use strict";
// The list of results: search, and the choice of two runs to compare.
(() => {
  const search = document.getElementById("search");
  if (!search) return;
  const kind = document.getElementById("kind");
  const compare = document.getElementById("compare");
  const rows = [...document.querySelectorAll("tbody tr")];
  const words = rows.map((row) => row.textContent.toLowerCase());
  const boxes = [...document.querySelectorAll("tbody input")];
  let chosen = []; // names, in the order in which they were chosen

  function select() {
    const wanted = search.value.trim().toLowerCase().split(/\s+/);
    let shown = 0;
    rows.forEach((row, i) => {
      row.hidden = !wanted.every((word) => words[i].includes(word)) || (kind.value !== "" && row.dataset.kind !== kind.value);
      shown += row.hidden ? 0 : 1;
    });
    document.getElementById("shown").textContent = shown === rows.length ? "" : `${shown} of ${rows.length}`;
  }

  function choose() {
    const checked = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    chosen = [...chosen.filter((name) => checked.has(name)), ...[...checked].filter((name) => !chosen.includes(name))];
    compare.disabled = chosen.length !== 2;
    const names = chosen.map((name, i) => `${"AB"[i] ?? "?"}: ${name}`).join(", ");
    document.getElementById("chosen").textContent = chosen.length > 2 ? "choose two only" : names || "choose two: the first one is A";
  }

  search.addEventListener("input", select);
  kind.addEventListener("change", select);
  boxes.forEach((box) => box.addEventListener("change", choose));
  compare.addEventListener("click", () => {
    const [a, b] = chosen;
    compare.disabled = true;
    compare.textContent = "comparing …";
    window.location.assign(`/diff?${new URLSearchParams({ a, b })}`);
  });
  window.addEventListener("pageshow", () => {
    compare.textContent = "compare two runs";
    select(); // a browser may have kept what was typed and checked
    choose();
  });
})();
