"use strict";
// All launches, to sort and filter.
(() => {
  if (!document.getElementById("table")) return;
  const { data, element, duration } = Report;
  const { cut, filter, measured, tooltip } = Report.rows;
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

  // Errors take the place of columns that say little about numbers.
  const compared = Boolean(data.comparison);
  const VERDICTS = data.comparison?.verdicts ?? [];
  const verdictRank = (row) => VERDICTS.indexOf(data.launches[row.getData().order].comparison?.verdict);
  const areInherited = rows.some((row) => row.inherited !== null);
  const areMeasured = rows.some((row) => row.local !== null);
  const errors = compared ? [
    ...(areMeasured ? [measured("local", "local"), ...(areInherited ? [measured("inherited", "inherited", 112)] : []), measured("eager", "eager"), measured("ULP max", "ulp", 106)] : []),
    ...(rows.some((row) => row.metric !== null) ? [measured("metric", "metric")] : []),
    {
      title: "verdict", field: "verdict", minWidth: 150, widthGrow: 3, headerSortStartingDir: "desc", ...filter("verdict"),
      sorter: (a, b, x, y) => verdictRank(x) - verdictRank(y), tooltip,
    },
  ] : [];
  const general = [
    { title: "host time", field: "duration", width: 122, hozAlign: "right", sorter: "number", formatter: (cell) => document.createTextNode(duration(cell.getValue())) },
    { title: "largest magnitude", field: "worst", minWidth: 186, widthGrow: 1.6, formatter: cut, tooltip, sorter: (a, b) => severity(a) - severity(b), headerSortStartingDir: "desc", ...filter("largest magnitude") },
  ];

  Report.rows.table({
    rows,
    columns: [
      { title: "launch", field: "id", width: 92, sorter: (a, b, x, y) => x.getData().order - y.getData().order, ...filter("launch") },
      { title: "kernel", field: "kernel", minWidth: 170, widthGrow: 4, formatter: cut, tooltip, ...filter("kernel") },
      ...(compared ? [] : [{ title: "kind", field: "kind", width: 96, ...filter("kind") }]),
      { title: "model line", field: "line", minWidth: 142, widthGrow: 1.4, formatter: cut, tooltip, ...filter("model line") },
      ...(compared ? errors : general),
      {
        title: "status", field: "status", minWidth: 150, widthGrow: 1.8, headerSortStartingDir: "desc", ...filter("status"),
        sorter: (a, b, x, y) => gravity(x.getData().marks) - gravity(y.getData().marks),
        formatter: (cell) => {
          const { marks, status } = cell.getData();
          return marks.length ? element("span", { class: "marks" }, ...Report.markElements(marks)) : document.createTextNode(status);
        },
      },
    ],
    gravity: (row) => gravity(row.marks),
    isMarked: (row) => row.marks.length > 0,
    words: (row) => [row.id, row.kernel, row.kind, row.line, row.worst, row.status, row.verdict],
  });
})();
