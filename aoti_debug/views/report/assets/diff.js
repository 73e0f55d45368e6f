"use strict";
// The launches of two runs: how much they differ, the table of both sides, the chosen one in full.
(() => {
  const { data, element } = Report;
  const { cut, filter, measured, tooltip } = Report.rows;
  // The gravest last. What has no counterpart, or was not recorded, is a gap.
  const VERDICTS = [["same", "good"], ["inputs unknown", "mild"], ["consequence", "warn"], ["parts", "bad"]];
  const GAPS = ["only in A", "only in B", "not recorded"];
  const RANK = new Map([...GAPS.slice().reverse(), ...VERDICTS.map(([verdict]) => verdict)].map((verdict, i) => [verdict, verdict === "same" ? -1 : i]));
  const TONE = new Map(VERDICTS);

  const quantity = (value) => (value === "inf" ? Infinity : value ?? null); // JSON has no infinities
  const largest = (tensors, name) => tensors.map((tensor) => quantity(tensor[name])).reduce((a, b) => (b === null || (a !== null && a >= b) ? a : b), null);
  const ulps = (value) => (value === null ? "–" : value >= 1e300 ? "NaN" : value < 1e7 ? String(value) : Report.error(value));

  data.launches.forEach((launch) => {
    const verdict = data.verdicts[launch.verdict];
    launch.marks = [];
    launch.ulp = largest(launch.tensors, "ulp");
    const how = launch.ulp ?? largest(launch.tensors, "atol");
    const local = GAPS.includes(verdict) ? undefined : verdict === "same" ? 0 : how ?? Infinity;
    launch.comparison = { verdict, local, inUlp: launch.ulp !== null, reason: local === undefined ? verdict : "" };
  });
  const counts = {};
  data.launches.forEach(({ comparison: { verdict } }) => (counts[verdict] = (counts[verdict] ?? 0) + 1));

  const { areMeasured, isBeyond } = Report.errors({
    launches: data.launches,
    verdicts: VERDICTS,
    gaps: GAPS,
    counts,
    first: data.first,
    label: data.first_parts ? "≠ parts first" : "≠ differs first",
    beyond: "?",
    exponents: [-20, 20],
    numbers: ({ local, inUlp }) => (local === 0 ? "the same bytes" : local === Infinity ? (inUlp ? "NaN in one of the runs" : "how much is not known") : `differs by up to ${inUlp ? `${ulps(local)} ULP` : Report.error(local)}`),
  });
  const about = document.getElementById("errors-about");
  if (!areMeasured) about.textContent = "What the launches wrote was not recorded.";
  else if (isBeyond) about.append(" At the top, ?: a NaN, or how much they differ was not recorded.");
  document.getElementById("first-spread").append(...data.spread.map(Report.spread));

  const named = (launches) => launches.map(([id, kernel]) => `${id} ${kernel}`).join(", ");
  function differing({ tensors }) {
    return tensors.map(({ name, different, elements }) => (different === undefined ? name : `${name} ${different} of ${elements}`)).join(", ");
  }

  const rows = data.launches.map((launch) => ({
    id: launch.id,
    order: launch.order,
    a: launch.a.map(([id]) => id).join(", "),
    kernel_a: launch.a.map(([, kernel]) => kernel).join(", "),
    b: launch.b.map(([id]) => id).join(", "),
    kernel_b: launch.b.map(([, kernel]) => kernel).join(", "),
    line: Report.modelLine(launch.info),
    what: differing(launch),
    ulp: launch.ulp === Infinity ? 1e300 : launch.ulp,
    cause: launch.cause.split(":")[0],
    verdict: launch.comparison.verdict,
  }));
  const isWide = document.getElementById("table").clientWidth > 900; // pixels
  const byOrder = (a, b, x, y) => x.getData().order - y.getData().order;
  Report.rows.table({
    rows,
    columns: [
      { title: "A", field: "a", width: isWide ? 84 : 70, sorter: byOrder, tooltip, ...filter("launch of A") },
      { title: "kernel of A", field: "kernel_a", minWidth: 140, widthGrow: 3, formatter: cut, tooltip, ...filter("kernel of A") },
      { title: "B", field: "b", width: isWide ? 84 : 70, sorter: byOrder, ...filter("launch of B") },
      { title: "kernel of B", field: "kernel_b", minWidth: 140, widthGrow: 3, formatter: cut, tooltip, ...filter("kernel of B") },
      { title: "model line", field: "line", visible: isWide, minWidth: 130, widthGrow: 1.1, formatter: cut, tooltip, ...filter("model line") },
      { title: "what differs", field: "what", minWidth: 110, widthGrow: 2.2, tooltip, ...filter("what differs") },
      measured("ULP max", "ulp", 106, ulps),
      ...(data.launches.some(({ cause }) => cause) ? [{ title: "cause", field: "cause", width: 100, tooltip, ...filter("cause") }] : []),
      {
        title: "verdict", field: "verdict", width: 132, headerSortStartingDir: "desc", ...filter("verdict"),
        sorter: (a, b) => RANK.get(a) - RANK.get(b),
        formatter: (cell) => element("span", { class: `verdict-word ${TONE.get(cell.getValue()) ?? ""}` }, cell.getValue()),
      },
    ],
    gravity: ({ verdict }) => RANK.get(verdict),
    isMarked: ({ verdict }) => verdict !== "same",
    words: (row) => [row.a, row.kernel_a, row.b, row.kernel_b, row.line, row.what, row.cause, row.verdict],
  });

  const HEADS = ["tensor", "differ", "ULP", "absolute", "relative", "element", "A has", "B has"];
  function tensorRow(tensor) {
    const { name, different, elements, worst, values, reason } = tensor;
    const known = different !== undefined;
    const cells = known
      ? [`${different} of ${elements}`, ulps(quantity(tensor.ulp)), Report.error(quantity(tensor.atol)), Report.error(quantity(tensor.rtol)), `[${worst.join(", ")}]`, ...(values ?? ["–", "–"]).map(String)]
      : [reason];
    return element("tr", {}, element("th", { scope: "row" }, name), ...cells.map((words) => element("td", { colspan: known ? null : HEADS.length - 1 }, words)));
  }

  const panel = document.getElementById("detail");
  Report.onChoose((launch, by) => {
    const [frame] = launch.info.frames;
    const sides = [["A", launch.a], ["B", launch.b]].map(([side, launches]) => [side, element("dd", { class: "kernel" }, named(launches) || "–")]);
    const table = element("table", { class: "small arguments" },
      element("thead", {}, element("tr", {}, ...HEADS.map((head) => element("th", { scope: "col" }, head)))),
      element("tbody", {}, ...launch.tensors.map(tensorRow)));
    panel.replaceChildren(
      element("h3", {}, element("span", { class: "launch" }, (launch.b[0] ?? launch.a[0])[0]), ` ${launch.info.kernel}`),
      element("p", { class: `verdict-word ${TONE.get(launch.comparison.verdict) ?? ""}` }, data.meanings[launch.verdict] || launch.comparison.verdict),
      ...(frame ? [element("p", { class: "frame" }, Report.place(frame), ` in ${frame.function}`)] : []),
      ...(frame && frame.text ? [element("pre", { class: "code one" }, element("code", {}, frame.text.trim()))] : []),
      Report.pairs(sides),
      ...(launch.tensors.length ? [element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "tensors that differ" }, table)] : []),
      ...(launch.cause ? [element("p", { class: "remark" }, launch.cause)] : []),
      ...launch.notes.map((note) => element("p", { class: "remark" }, note)),
    );
    if (by === "timeline" || by === "link") panel.scrollIntoView({ block: "nearest" });
  });
  if (data.first !== null) Report.choose(data.first, "start");
})();
