"use strict";
// All launches, to sort and filter. Tabulator keeps only the visible rows in the page.
(() => {
  const place = document.getElementById("table");
  if (!place) return;
  const { data, element, duration } = Report;
  const PRINTED = 200; // rows on paper
  const RANK = new Map(Report.marks.map((mark, index) => [mark.name, index]));

  const rows = data.launches.map((launch) => ({
    id: launch.id,
    order: launch.order,
    kernel: launch.info.kernel + (launch.loops.length ? ` [${launch.loops.join(".")}]` : ""),
    kind: launch.info.kind,
    line: Report.modelLine(launch.info),
    duration: launch.duration,
    worst: launch.worst,
    status: launch.marks.length ? launch.marks.join(", ") : launch.status === "returned" ? "" : launch.status,
    marks: launch.marks,
    local: launch.comparison?.local ?? null,
    inherited: launch.comparison?.inherited ?? null,
    eager: launch.comparison?.eager ?? null,
    ulp: launch.comparison?.ulpMax ?? null,
    metric: launch.comparison?.metric ?? null,
    verdict: launch.comparison ? launch.comparison.verdict + (launch.comparison.reason ? `: ${launch.comparison.reason}` : "") : "",
  }));

  // "3 NaN in buf4" > "2 Inf in buf4" > "41.9 in buf4" > ""
  function severity(text) {
    const [, amount, bad] = /^(\S+) (NaN|Inf)?/.exec(text) ?? [null, "-1", null];
    return (bad === "NaN" ? 2e300 : bad === "Inf" ? 1e300 : 0) + Math.min(Math.abs(Number(amount)) || 0, 1e299);
  }
  const gravity = (marks) => (marks.length ? RANK.size - RANK.get(marks[0]) : 0);
  const text = (cell) => document.createTextNode(cell.getValue() ?? "");
  const filter = (label) => ({ headerFilter: "input", headerFilterPlaceholder: "filter", headerFilterParams: { elementAttributes: { "aria-label": `filter by ${label}` } } });

  // Errors take the place of columns that say little about numbers.
  const compared = Boolean(data.comparison);
  const VERDICTS = data.comparison?.verdicts ?? [];
  const verdictRank = (row) => VERDICTS.indexOf(data.launches[row.getData().order].comparison?.verdict);
  const measured = (title, field, width = 92) => ({
    title, field, width, hozAlign: "right", headerSortStartingDir: "desc",
    sorter: (a, b) => (a ?? -1) - (b ?? -1),
    formatter: (cell) => document.createTextNode(cell.getValue() === null ? "" : Report.error(cell.getValue())),
  });
  const areInherited = rows.some((row) => row.inherited !== null);
  const areMeasured = rows.some((row) => row.local !== null);
  const errors = compared ? [
    ...(areMeasured ? [measured("local", "local"), ...(areInherited ? [measured("inherited", "inherited", 112)] : []), measured("eager", "eager"), measured("ULP max", "ulp", 106)] : []),
    ...(rows.some((row) => row.metric !== null) ? [measured("metric", "metric")] : []),
    {
      title: "verdict", field: "verdict", minWidth: 150, widthGrow: 3, headerSortStartingDir: "desc", ...filter("verdict"),
      sorter: (a, b, x, y) => verdictRank(x) - verdictRank(y), tooltip: (_, cell) => element("span", {}, cell.getValue()),
    },
  ] : [];
  const general = [
    { title: "host time", field: "duration", width: 122, hozAlign: "right", sorter: "number", formatter: (cell) => document.createTextNode(duration(cell.getValue())) },
    { title: "worst value", field: "worst", minWidth: 110, widthGrow: 1.6, sorter: (a, b) => severity(a) - severity(b), headerSortStartingDir: "desc", ...filter("worst value") },
  ];

  const table = new Tabulator(place, {
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
    columns: [
      { title: "launch", field: "id", width: 92, sorter: (a, b, x, y) => x.getData().order - y.getData().order, ...filter("launch") },
      { title: "kernel", field: "kernel", minWidth: 170, widthGrow: 4, tooltip: (_, cell) => element("span", {}, cell.getValue()), ...filter("kernel") },
      ...(compared ? [] : [{ title: "kind", field: "kind", width: 96, ...filter("kind") }]),
      { title: "model line", field: "line", minWidth: 110, widthGrow: 1.4, ...filter("model line") },
      ...(compared ? errors : general),
      {
        title: "status", field: "status", minWidth: compared ? 150 : 215, widthGrow: 1.8, headerSortStartingDir: "desc", ...filter("status"),
        sorter: (a, b, x, y) => gravity(x.getData().marks) - gravity(y.getData().marks),
        formatter: (cell) => {
          const { marks, status } = cell.getData();
          return marks.length ? element("span", { class: "marks" }, ...Report.markElements(marks)) : document.createTextNode(status);
        },
      },
    ],
  });

  // On paper: the launches with the gravest marks, then the first ones.
  function printed() {
    const active = table.getRows("active");
    if (active.length <= PRINTED) return active;
    const gravest = [...active].sort((a, b) => gravity(b.getData().marks) - gravity(a.getData().marks));
    const kept = new Set(gravest.slice(0, PRINTED));
    return active.filter((row) => kept.has(row));
  }

  const search = document.getElementById("search");
  const marked = document.getElementById("marked");
  const words = new Map(rows.map((row) => [row.id, [row.id, row.kernel, row.kind, row.line, row.worst, row.status, row.verdict].join("\n").toLowerCase()]));
  function refilter() {
    const wanted = search.value.trim().toLowerCase();
    if (!wanted && !marked.checked) table.clearFilter();
    else table.setFilter((row) => (!marked.checked || row.marks.length > 0) && words.get(row.id).includes(wanted));
  }
  search.addEventListener("input", refilter);
  marked.addEventListener("change", refilter);
  table.on("dataFiltered", (_, found) => {
    const paper = found.length > PRINTED ? `; ${PRINTED} of them are printed` : "";
    document.getElementById("shown").textContent = (found.length === rows.length ? Report.count(rows.length, "launch") : `${found.length} of ${Report.count(rows.length, "launch")}`) + paper;
  });

  table.on("rowSelected", (row) => Report.choose(row.getIndex(), "table"));
  place.addEventListener("keydown", (event) => {
    if (event.target.closest("input")) return;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -Infinity, End: Infinity };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const active = table.getRows("active").map((row) => row.getIndex());
    if (!active.length) return;
    const now = active.indexOf(Report.chosen()?.id);
    const next = Math.min(Math.max(now + steps[event.key], 0), active.length - 1);
    Report.choose(active[next], "keys");
  });

  let built = false;
  function show(launch, by) {
    const row = table.getRow(launch.id);
    if (!row) return;
    if (!row.isSelected()) {
      table.deselectRow();
      row.select();
    }
    if (by !== "table") table.scrollToRow(row, "nearest", false).catch(() => {}); // filtered out: nowhere to scroll to
  }
  Report.onChoose((launch, by) => built && show(launch, by));
  table.on("tableBuilt", () => {
    built = true;
    place.querySelector(".tabulator-tableholder").setAttribute("aria-label", "launches: arrow keys choose one");
    if (Report.chosen()) show(Report.chosen(), "start");
    document.documentElement.dataset.ready = String(Math.round(performance.now())); // milliseconds since the page was asked for
  });
})();
