"use strict";
// What the tables of launches share: columns, search, the choice of a row with keys. Tabulator keeps only the visible rows in the page.
Report.rows = (() => {
  const { element } = Report;
  const PRINTED = 200; // rows on paper
  const text = (cell) => document.createTextNode(cell.getValue() ?? "");
  const cut = (cell) => Report.cutElement(cell.getValue() ?? "");
  const tooltip = (_, cell) => element("span", {}, cell.getValue());
  const filter = (label) => ({ headerFilter: "input", headerFilterPlaceholder: "filter", headerFilterParams: { elementAttributes: { "aria-label": `filter by ${label}` } } });
  const measured = (title, field, width = 92, words = Report.error) => ({
    title, field, width, hozAlign: "right", headerSortStartingDir: "desc",
    sorter: (a, b) => (a ?? -1) - (b ?? -1),
    formatter: (cell) => document.createTextNode(cell.getValue() === null ? "" : words(cell.getValue())),
  });

  // A table in #table, of rows with an id; `gravity` of a row decides what is printed, `isMarked` what the box above
  // leaves, `words` of it what the search looks through.
  function table({ rows, columns, gravity, isMarked, words }) {
    const place = document.getElementById("table");
    const made = new Tabulator(place, {
      data: rows,
      index: "id",
      height: Math.min(Math.max(rows.length * 29 + 80, 200), 560),
      layout: "fitColumns",
      selectableRows: 1,
      columnDefaults: { formatter: text, headerSortTristate: true, vertAlign: "middle" },
      printAsHtml: true,
      printStyled: false,
      printRowRange: () => printed(),
      placeholder: "no launch matches",
      columns,
    });

    // On paper: the gravest launches, then the first ones.
    function printed() {
      const active = made.getRows("active");
      if (active.length <= PRINTED) return active;
      const gravest = [...active].sort((a, b) => gravity(b.getData()) - gravity(a.getData()));
      const kept = new Set(gravest.slice(0, PRINTED));
      return active.filter((row) => kept.has(row));
    }

    const search = document.getElementById("search");
    const marked = document.getElementById("marked");
    const found = new Map(rows.map((row) => [row.id, words(row).join("\n").toLowerCase()]));
    function refilter() {
      const wanted = search.value.trim().toLowerCase();
      if (!wanted && !marked.checked) made.clearFilter();
      else made.setFilter((row) => (!marked.checked || isMarked(row)) && found.get(row.id).includes(wanted));
    }
    search.addEventListener("input", refilter);
    marked.addEventListener("change", refilter);
    made.on("dataFiltered", (_, left) => {
      const paper = left.length > PRINTED ? `; ${PRINTED} of them are printed` : "";
      document.getElementById("shown").textContent = (left.length === rows.length ? Report.count(rows.length, "launch") : `${left.length} of ${Report.count(rows.length, "launch")}`) + paper;
    });

    made.on("rowSelected", (row) => Report.choose(row.getIndex(), "table"));
    place.addEventListener("keydown", (event) => {
      if (event.target.closest("input")) return;
      const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -Infinity, End: Infinity };
      if (!(event.key in steps)) return;
      event.preventDefault();
      const active = made.getRows("active").map((row) => row.getIndex());
      if (!active.length) return;
      const now = active.indexOf(Report.chosen()?.id);
      const next = Math.min(Math.max(now + steps[event.key], 0), active.length - 1);
      Report.choose(active[next], "keys");
    });

    let built = false;
    function show(launch, by) {
      const row = made.getRow(launch.id);
      if (!row) return;
      if (!row.isSelected()) {
        made.deselectRow();
        row.select();
      }
      if (by !== "table") made.scrollToRow(row, "nearest", false).catch(() => {}); // filtered out: nowhere to scroll to
    }
    Report.onChoose((launch, by) => built && show(launch, by));
    made.on("tableBuilt", () => {
      built = true;
      place.querySelector(".tabulator-tableholder").setAttribute("aria-label", "launches: arrow keys choose one");
      if (Report.chosen()) show(Report.chosen(), "start");
      document.documentElement.dataset.ready = String(Math.round(performance.now())); // milliseconds since the page was asked for
    });
  }

  return { cut, tooltip, filter, measured, table };
})();
